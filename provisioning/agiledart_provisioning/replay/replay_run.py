"""One replay: a policy decides every minute on a modelled cluster under a workload; figures of service, cost and operations."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.billing import Lease, started_units
from agiledart_provisioning.policies.hosts import Hosts
from agiledart_provisioning.provisioning_policy import ProvisioningPolicy
from agiledart_provisioning.provisioning_settings import DURATIONS_KEPT, REASONING_INTERVAL_S, ProvisioningSettings
from agiledart_provisioning.replay.fluid_model import FluidModel
from agiledart_provisioning.replay.model_cluster import Delays, FixedDelays, ModelCluster
from agiledart_provisioning.replay.rate_scaling import scale_by_rate
from agiledart_provisioning.replay.replay_workload import ReplayWorkload
from agiledart_provisioning.replay.service_levels import ServiceLevels
from agiledart_provisioning.state import MachineOffer

MONITORING_S = 15
"""Seconds between two measurements of durations."""


class Model(Protocol):
    """Behaviour of queues and items under given numbers of instances."""

    levels: ServiceLevels

    def step(self, second: int, running: dict[str, int]) -> None:
        """Advance by one second."""
        ...

    def queue(self, name: str) -> float:
        """Return the items of a type that wait."""
        ...

    def duration(self, name: str) -> float | None:
        """Return the milliseconds that an item of a type takes now; None: unknown."""
        ...

    def wait_ms(self, name: str) -> float:
        """Return the milliseconds that an item of a type waits now."""
        ...

    def rate(self, name: str) -> float:
        """Return the items of a type that arrived in the last second."""
        ...


@dataclass(frozen=True, slots=True)
class Minute:
    """State of a replay at one minute: machines that send, leased hosts, serving instances."""

    minute: int
    machines: int
    hosts: int
    instances: int


@dataclass(slots=True)
class ReplayResult:
    """Figures of one replay.

    Attributes:
        levels: items and service levels.
        leases: the ledger; every started unit of every lease is in it once.
        seconds: length of the replay.
        upscalings, downscalings, migrations: operations that were carried out.
        minutes: timeline.
        adapt_s: seconds until each delayed type was on time again.
    """

    levels: ServiceLevels
    leases: list[Lease]
    seconds: int
    upscalings: int = 0
    downscalings: int = 0
    migrations: int = 0
    minutes: list[Minute] = field(default_factory=list)
    adapt_s: list[float] = field(default_factory=list)

    @property
    def resource_cost(self) -> float:
        """Return the price of all units that were paid."""
        return sum(lease.cost for lease in self.leases)

    def billed_afterwards(self, btu_s: float, price: float, minimum_s: float = 0.0) -> float:
        """Return the price of the leases under another billing time unit, for a policy that does not know units."""
        ends = ((lease, lease.ended_s if lease.ended_s is not None else self.seconds) for lease in self.leases)
        return price * sum(started_units(lease.began_s, end, btu_s, minimum_s) for lease, end in ends)

    def total_cost(self, level: str, resource_cost: float, settings: ProvisioningSettings) -> float:
        """Return resource cost plus the penalties of the items that missed a level."""
        return resource_cost + settings.penalty * self.levels.violations(level)

    @property
    def time_to_adapt_s(self) -> float:
        """Return the mean seconds until a delayed type was on time again; 0 when none was delayed."""
        return sum(self.adapt_s) / len(self.adapt_s) if self.adapt_s else 0.0


class ReplayRun:
    """A workload, a cluster and a policy, driven second by second."""

    def __init__(
        self,
        workload: ReplayWorkload,
        policy: ProvisioningPolicy,
        offer: MachineOffer,
        btu_s: float,
        seed: int,
        *,
        model: Callable[[ReplayWorkload, RandomStream], Model] = FluidModel,
        delays: Delays | None = None,
        hosts: int = 1,
    ) -> None:
        self._workload, self._policy = workload, policy
        self._model = model(workload, RandomStream(seed, "replay", "items"))
        self._cluster = ModelCluster(workload.types, offer, btu_s, delays or FixedDelays(), hosts)
        self._random = RandomStream(seed, "replay", "policy")
        self._durations: dict[str, deque[float]] = {
            entry.name: deque(maxlen=DURATIONS_KEPT) for entry in workload.types
        }
        self._delayed_since: dict[str, int] = {}
        self._adapt_s: list[float] = []
        self.on_round: Callable[[ModelCluster, float], None] = lambda cluster, now: None

    def run(self) -> ReplayResult:
        """Return the figures of the whole replay."""
        minutes: list[Minute] = []
        running = dict(self._cluster.running(0))
        for second in range(self._workload.seconds):
            self._cluster.advance(second)
            if second and second % REASONING_INTERVAL_S == 0:
                self._decide(second)
            running = dict(self._cluster.running(second))
            self._model.step(second, running)
            if second % MONITORING_S == 0:
                self._measure(second)
            if second % 60 == 0:
                machines = self._workload.machines_at(second)
                minutes.append(Minute(second // 60, machines, self._cluster.hosts, sum(running.values())))
        cluster = self._cluster
        return ReplayResult(
            self._model.levels, cluster.leases, self._workload.seconds, cluster.upscalings, cluster.downscalings,
            cluster.migrations, minutes, self._adapt_s,
        )  # fmt: skip

    def _measure(self, second: int) -> None:
        for entry in self._workload.types:
            duration = self._model.duration(entry.name)
            if duration is not None:
                self._durations[entry.name].append(duration)
            if self._model.wait_ms(entry.name) > entry.slo_ms:
                self._delayed_since.setdefault(entry.name, second)
            elif (since := self._delayed_since.pop(entry.name, None)) is not None:
                self._adapt_s.append(float(second - since))

    def _decide(self, second: int) -> None:
        measured = tuple(
            replace(
                entry,
                queue=self._model.queue(entry.name),
                duration_ms=self._durations[entry.name][-1] if self._durations[entry.name] else None,
                durations_ms=tuple(self._durations[entry.name]),
            )
            for entry in self._workload.types
        )
        state = self._cluster.state(float(second), measured)
        if isinstance(self._policy, Hosts):
            rates = {entry.name: self._model.rate(entry.name) for entry in measured}
            actions, waiting = scale_by_rate(state, rates, ProvisioningSettings())
            self._cluster.carry_out(second, tuple(actions))
            state = self._cluster.state(float(second), measured, waiting)
        self._cluster.carry_out(second, self._policy.decide(state, self._random))
        self.on_round(self._cluster, second)
