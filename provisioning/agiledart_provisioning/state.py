"""State on which a provisioning policy decides: types of operators, leased hosts, what runs on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class OperatorType:
    """One type of operators; all its instances are alike.

    Attributes:
        name: unique in the state.
        cpu: shares that an instance needs; 1,024 are one core.
        memory: megabytes that an instance needs.
        image_mb: megabytes that a host downloads before its first instance starts.
        slo_ms: expected milliseconds for an item, measured without a queue.
        duration_ms: current milliseconds for an item; None: no item was measured yet.
        durations_ms: last durations, oldest first.
        queue: items that wait.
        scalings: scaling operations of this type so far, up and down.
    """

    name: str
    cpu: float
    memory: float
    image_mb: float
    slo_ms: float
    duration_ms: float | None = None
    durations_ms: tuple[float, ...] = ()
    queue: float = 0.0
    scalings: int = 0


@dataclass(frozen=True, slots=True)
class MachineOffer:
    """A kind of machine that can be leased.

    Attributes:
        cpu: shares. memory: megabytes. cost: price of one billing time unit.
    """

    cpu: float
    memory: float
    cost: float


@dataclass(frozen=True, slots=True)
class Host:
    """A leased machine.

    Attributes:
        name: unique in the state.
        cpu, memory: capacity, in shares and megabytes.
        cost: price of one billing time unit.
        paid_until_s: second at which the paid time ends.
        images: types whose image is on its disk.
        instances: type → instances that run or start there.
        is_running: False: the lease was requested and the machine is still starting.
        busy: busy share 0 … 1, oldest sample first.
    """

    name: str
    cpu: float
    memory: float
    cost: float
    paid_until_s: float
    images: frozenset[str] = frozenset()
    instances: Mapping[str, int] = field(default_factory=dict)
    is_running: bool = True
    busy: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ProvisioningState:
    """Everything that a decision depends on.

    Attributes:
        now_s: time, in seconds of the caller's clock.
        btu_s: length of a billing time unit.
        types, hosts: in the caller's order, which breaks ties.
        offer: the machine that a new lease brings.
        waiting: reasons why work waits for capacity: applications in the queue, refused scaling steps.
        violations: items whose duration exceeded their bound, for the cost.
    """

    now_s: float
    btu_s: float
    types: tuple[OperatorType, ...]
    hosts: tuple[Host, ...]
    offer: MachineOffer
    waiting: tuple[str, ...] = ()
    violations: float = 0.0

    def type_named(self, name: str) -> OperatorType:
        """Return the type with this name."""
        return next(entry for entry in self.types if entry.name == name)

    def host_named(self, name: str) -> Host:
        """Return the host with this name."""
        return next(host for host in self.hosts if host.name == name)

    def free_cpu(self, host: Host) -> float:
        """Return the shares of a host that no instance uses."""
        return host.cpu - sum(self.type_named(name).cpu * number for name, number in host.instances.items())

    def free_memory(self, host: Host) -> float:
        """Return the megabytes of a host that no instance uses."""
        return host.memory - sum(self.type_named(name).memory * number for name, number in host.instances.items())

    def instances_of(self, name: str) -> int:
        """Return the number of instances of a type on all hosts."""
        return sum(host.instances.get(name, 0) for host in self.hosts)

    def with_host(self, changed: Host) -> "ProvisioningState":
        """Return the state in which a host, found by its name, is replaced."""
        return replace(self, hosts=tuple(changed if host.name == changed.name else host for host in self.hosts))

    def with_instances(self, host_name: str, type_name: str, change: int) -> "ProvisioningState":
        """Return the state in which a host has more or fewer instances of a type. A new type brings its image along."""
        host = self.host_named(host_name)
        instances = dict(host.instances)
        instances[type_name] = instances.get(type_name, 0) + change
        if instances[type_name] < 0:
            raise ValueError(f"{host_name} has no instance of {type_name} to stop")
        if not instances[type_name]:
            del instances[type_name]
        images = host.images | {type_name} if change > 0 else host.images
        return self.with_host(replace(host, instances=instances, images=images))

    def with_scaling(self, type_name: str) -> "ProvisioningState":
        """Return the state with one more scaling operation of a type."""
        types = tuple(
            replace(entry, scalings=entry.scalings + 1) if entry.name == type_name else entry for entry in self.types
        )
        return replace(self, types=types)

    def with_new_host(self, name: str) -> "ProvisioningState":
        """Return the state with a host of the offer that is still starting; its first billing time unit is paid."""
        offer = self.offer
        host = Host(name, offer.cpu, offer.memory, offer.cost, self.now_s + self.btu_s, is_running=False)
        return replace(self, hosts=(*self.hosts, host))

    def without_host(self, name: str) -> "ProvisioningState":
        """Return the state without a host."""
        return replace(self, hosts=tuple(host for host in self.hosts if host.name != name))
