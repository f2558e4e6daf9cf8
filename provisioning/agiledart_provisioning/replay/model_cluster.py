"""Modelled cluster of a replay: hosts that start, instances that download their image, releases that wait, and the ledger."""

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action, ActionKind
from agiledart_provisioning.billing import Lease
from agiledart_provisioning.provisioning_settings import SHUTDOWN_GRACE_S
from agiledart_provisioning.state import Host, MachineOffer, OperatorType, ProvisioningState

DOWNLOAD_MB_S = 6.0
"""Megabytes of an image that a host downloads in a second."""

START_TRIES = 3
"""Attempts of a host to start an instance; then the instance is given up, and the policy may ask again."""


class Delays(Protocol):
    """Seconds that a cluster needs for its operations."""

    def lease_s(self) -> float:
        """Return the seconds until a new host runs; infinite: it never does."""
        ...

    def start_s(self) -> float:
        """Return the seconds until an instance runs whose image is there; infinite: it fails."""
        ...


class FixedDelays:
    """Means of the published ranges: 30 to 60 s for a lease, 5 to 10 s for an instance."""

    def lease_s(self) -> float:
        """Return the seconds until a new host runs."""
        return 45.0

    def start_s(self) -> float:
        """Return the seconds until an instance runs."""
        return 7.0


class RandomDelays:
    """Delays drawn from the published ranges, with failures.

    Args:
        lease_failures, start_failures: shares of leases and instance starts that fail.
    """

    def __init__(self, random: RandomStream, lease_failures: float = 0.0, start_failures: float = 0.0) -> None:
        self._random, self._lease_failures, self._start_failures = random, lease_failures, start_failures

    def lease_s(self) -> float:
        """Return the seconds until a new host runs; infinite: it never does."""
        if self._random.uniform() < self._lease_failures:
            return inf
        return self._random.between(30.0, 60.0)

    def start_s(self) -> float:
        """Return the seconds until an instance runs, with its failed attempts; infinite: each of them failed."""
        spent = 0.0
        for _ in range(START_TRIES):
            spent += self._random.between(5.0, 10.0)
            if self._random.uniform() >= self._start_failures:
                return spent
        return inf


@dataclass(slots=True, eq=False)
class ModelInstance:
    """An instance. It serves items from `ready_s` until `stops_s`."""

    type_name: str
    host: str
    ready_s: float
    stops_s: float = inf


@dataclass(slots=True)
class ModelHost:
    """A host; `ready_s` is infinite when its start fails. `leaves` says that its release has begun."""

    lease: Lease
    ready_s: float
    images: set[str] = field(default_factory=set)
    leaves: bool = False


START_TIMEOUT_S = 120.0
"""Seconds after which a host that does not run is given up; its unit is paid."""


class ModelCluster:
    """Hosts and instances of a replay. It carries out actions with their delays and keeps the ledger of all leases.

    Attributes:
        leases: every lease, also ended ones.
        upscalings, downscalings, migrations: actions that were carried out.
    """

    def __init__(
        self, types: tuple[OperatorType, ...], offer: MachineOffer, btu_s: float, delays: Delays, hosts: int = 1
    ) -> None:
        self._types = {entry.name: entry for entry in types}
        self._offer, self._btu_s, self._delays = offer, btu_s, delays
        self._hosts: dict[str, ModelHost] = {}
        self._instances: list[ModelInstance] = []
        self._number = 0
        self.leases: list[Lease] = []
        self.upscalings = self.downscalings = self.migrations = 0
        self._scalings: Counter[str] = Counter()
        names = [self._new_host(0.0, 0.0) for _ in range(hosts)]
        for number, name in enumerate(self._types):
            self._instances.append(ModelInstance(name, names[number % hosts], 0.0))
            self._hosts[names[number % hosts]].images.add(name)

    def _new_host(self, now: float, delay: float) -> str:
        self._number += 1
        name = f"vm{self._number}"
        lease = Lease(name, self._offer.cost, now, self._btu_s)
        self.leases.append(lease)
        self._hosts[name] = ModelHost(lease, now + delay)
        return name

    @property
    def hosts(self) -> int:
        """Return the number of leased hosts."""
        return len(self._hosts)

    def running(self, now: float) -> Counter[str]:
        """Return the number of serving instances of each type."""
        return Counter(instance.type_name for instance in self._instances if instance.ready_s <= now < instance.stops_s)

    def serving(self, now: float) -> list[ModelInstance]:
        """Return the serving instances."""
        return [instance for instance in self._instances if instance.ready_s <= now < instance.stops_s]

    def state(self, now: float, measured: tuple[OperatorType, ...], waiting: tuple[str, ...] = ()) -> ProvisioningState:
        """Return what a policy sees: hosts that stay, with their instances; those that stop are gone already."""
        hosts = []
        for name, host in self._hosts.items():
            if host.leaves:
                continue
            instances = Counter(
                instance.type_name for instance in self._instances if instance.host == name and instance.stops_s == inf
            )
            offer, lease = self._offer, host.lease
            hosts.append(
                Host(
                    name, offer.cpu, offer.memory, offer.cost, lease.paid_until_s, frozenset(host.images),
                    dict(instances), host.ready_s <= now,
                )
            )  # fmt: skip
        types = tuple(
            OperatorType(
                entry.name, entry.cpu, entry.memory, entry.image_mb, entry.slo_ms, entry.duration_ms,
                entry.durations_ms, entry.queue, self._scalings[entry.name],
            )
            for entry in measured
        )  # fmt: skip
        return ProvisioningState(now, self._btu_s, types, tuple(hosts), self._offer, waiting)

    def carry_out(self, now: float, actions: tuple[Action, ...]) -> None:
        """Begin the actions of a round. Names of new hosts are those of the policy; the cluster gives them its own."""
        names: dict[str, str] = {}
        for action in actions:
            host = names.get(action.host, action.host)
            match action.kind:
                case ActionKind.LEASE:
                    names[action.host] = self._new_host(now, self._delays.lease_s())
                case ActionKind.START:
                    self._start(now, host, action.type_name)
                    self.upscalings += 1
                    self._scalings[action.type_name] += 1
                case ActionKind.STOP:
                    self._stop(now, host, action.type_name)
                case ActionKind.MIGRATE:
                    old = self._leaving(action.source, action.type_name)
                    new = self._start(now, host, action.type_name)
                    old.stops_s = max(now, new.ready_s)
                    self.migrations += new.ready_s != inf
                case ActionKind.EXTEND:
                    self._hosts[host].lease.extend()
                case ActionKind.RELEASE:
                    self._hosts[host].leaves = all(
                        instance.stops_s != inf for instance in self._instances if instance.host == host
                    )

    def _stop(self, now: float, host: str, type_name: str) -> None:
        """Stop an instance, unless no other one of its type serves: the policy also counts instances whose start may fail."""
        leaving = self._leaving(host, type_name)
        if any(other.type_name == type_name and other is not leaving for other in self.serving(now)):
            leaving.stops_s = now
            self.downscalings += 1
            self._scalings[type_name] += 1

    def _start(self, now: float, host_name: str, type_name: str) -> ModelInstance:
        host = self._hosts[host_name]
        download = 0.0 if type_name in host.images else self._types[type_name].image_mb / DOWNLOAD_MB_S
        host.images.add(type_name)
        instance = ModelInstance(type_name, host_name, max(now, host.ready_s) + download + self._delays.start_s())
        self._instances.append(instance)
        return instance

    def _leaving(self, host: str, type_name: str) -> ModelInstance:
        """Return the instance that a stop or a migration takes: the one that became ready last."""
        candidates = [
            instance
            for instance in self._instances
            if instance.host == host and instance.type_name == type_name and instance.stops_s == inf
        ]
        return max(candidates, key=lambda instance: instance.ready_s)

    def advance(self, now: float) -> None:
        """Remove stopped instances, failed ones and hosts that are empty or never ran; pay for leases whose time has ended."""
        for name, host in list(self._hosts.items()):
            if host.ready_s == inf and now >= host.lease.began_s + START_TIMEOUT_S:
                host.lease.end(now)
                del self._hosts[name]
        self._instances = [
            instance
            for instance in self._instances
            if instance.stops_s > now
            and (host_of := self._hosts.get(instance.host)) is not None
            and (instance.ready_s != inf or host_of.ready_s == inf)
        ]
        occupied = {instance.host for instance in self._instances}
        for name, host in list(self._hosts.items()):
            if host.leaves and name not in occupied:
                host.lease.end(now + SHUTDOWN_GRACE_S)
                del self._hosts[name]
            elif host.lease.paid_until_s <= now:
                host.lease.extend()
