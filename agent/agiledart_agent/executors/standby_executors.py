"""Executors that wait for the next attempt of a run: their code is loaded, and they hold the state of standby instances.

hold      spawned, or advanced to the snapshots of the latest epoch
claim     the next attempt starts the same plan in this slot, with instances that the executor was made for → it runs them
another   a plan or an instance that it was not made for: it ends, because its files are closed to what it did not expect
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_dataflow.plan.deployment import DeploymentPart, SnapshotChain
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_executor.wire.agent_messages import InstanceName, PrepareStandby
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.instants import SECOND
from agiledart_node.wire.effects import HoldLocalStandby

_PLAN: Codec[StagePlan] = Codec(StagePlan)

Slot = tuple[str, int, int]
"""(application, version, number of the executor)"""


@dataclass(frozen=True)
class ExpectedAttempt:
    """Attempt for which the executors of a run are held ready.

    Attributes:
        part: deployment part of the expected attempt, in wire form.
        slots: slot → instances that are expected there.
        standbys: those among them whose state the executor builds now.
        snapshots: their committed snapshots.
        seconds: time limit for each executor.
    """

    part: bytes
    slots: Mapping[int, Sequence[InstanceName]]
    standbys: tuple[InstanceName, ...]
    snapshots: tuple[SnapshotChain, ...]
    seconds: float

    @classmethod
    def of(cls, part: DeploymentPart, effect: HoldLocalStandby) -> "ExpectedAttempt":
        """Return what an effect asks for. `part`: its part, completed by this agent."""
        slots = instances_by_slot(part)
        names = (name for names in slots.values() for name in names)
        standbys = tuple(name for name in names if (name.stage, name.index) in effect.standbys)
        return cls(encode(part), slots, standbys, effect.snapshots, effect.timeout_ns / SECOND)


def instances_by_slot(part: DeploymentPart) -> dict[int, list[InstanceName]]:
    """Return the instances of a part by the number of their executor."""
    stages = _PLAN.decode(part.plan).stages
    slots: dict[int, list[InstanceName]] = {}
    for placed in part.instances:
        name = InstanceName(placed.stage, placed.index, stages[placed.stage].generation)
        slots.setdefault(placed.executor, []).append(name)
    return slots


@dataclass(frozen=True)
class _Standby:
    executor: ExecutorProcess
    plan: bytes
    names: Sequence[InstanceName]

    def fits(self, plan: bytes, names: Collection[InstanceName]) -> bool:
        return not self.executor.ending and self.plan == plan and set(names) <= set(self.names)


class StandbyExecutors:
    """Waiting executors of one agent.

    Args:
        spawn: starts a process of (slot, number of the run, its part in wire form).
        end: ends an executor.
    """

    def __init__(
        self, spawn: Callable[[Slot, int, bytes], Awaitable[ExecutorProcess]], end: Callable[[ExecutorProcess], None]
    ) -> None:
        self._spawn, self._end = spawn, end
        self._waiting: dict[Slot, _Standby] = {}

    @property
    def processes(self) -> tuple[ExecutorProcess, ...]:
        """Waiting executors."""
        return tuple(standby.executor for standby in self._waiting.values())

    async def hold(self, part: DeploymentPart, effect: HoldLocalStandby) -> None:
        """Hold the executors of a part ready, as an effect asks for. Raises `LaunchError`."""
        run, expected = (part.application, part.version), ExpectedAttempt.of(part, effect)
        for key in [key for key in self._waiting if key[:2] == run]:
            if not self._waiting[key].fits(part.plan, expected.slots.get(key[2], ())) or key[2] not in expected.slots:
                self._end(self._waiting.pop(key).executor)
        for slot, names in sorted(expected.slots.items()):
            standby = self._waiting.get((*run, slot))
            if standby is None:
                executor = await self._spawn((*run, slot), part.number, expected.part)
                standby = self._waiting[*run, slot] = _Standby(executor, part.plan, names)
            mine = tuple(name for name in names if name in expected.standbys)
            if mine or not standby.executor.requests:
                await self._prepare(standby.executor, mine, expected)

    async def _prepare(
        self, executor: ExecutorProcess, mine: tuple[InstanceName, ...], expected: ExpectedAttempt
    ) -> None:
        try:
            await executor.ask(
                lambda request: PrepareStandby(request, expected.part, mine, expected.snapshots), expected.seconds
            )
        except LaunchError:
            if self.forget(executor):  # it may be half built
                self._end(executor)
            raise

    def claim(
        self,
        run: tuple[str, int],
        plan: bytes,
        slots: Mapping[int, Sequence[InstanceName]],
        running: Collection[Slot],
    ) -> dict[Slot, ExecutorProcess]:
        """Return the executors that wait for these instances, and hold them no more; end those that do not fit.

        Args:
            running: slots that have an executor already.
        """
        claimed: dict[Slot, ExecutorProcess] = {}
        for slot, names in slots.items():
            key = (*run, slot)
            standby = self._waiting.pop(key, None) if key not in running else None
            if standby is not None and standby.fits(plan, names):
                claimed[key] = standby.executor
            elif standby is not None:
                self._end(standby.executor)
        return claimed

    def forget(self, executor: ExecutorProcess) -> bool:
        """Hold an executor no more that is gone. Return whether it was held."""
        keys = [key for key, standby in self._waiting.items() if standby.executor is executor]
        for key in keys:
            del self._waiting[key]
        return bool(keys)

    def release(self, application: str, version: int) -> None:
        """End the waiting executors of a run."""
        for key in [key for key in self._waiting if key[:2] == (application, version)]:
            self._end(self._waiting.pop(key).executor)
