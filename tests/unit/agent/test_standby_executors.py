"""Executors that wait for the next attempt: they are advanced, claimed by what they were made for, and ended otherwise."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_agent.executors.standby_executors import Slot, StandbyExecutors
from agiledart_dataflow.plan.deployment import DeploymentPart, PlacedInstance, SnapshotChain
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_executor.wire.agent_messages import InstanceName, PrepareStandby
from agiledart_kernel.codec import encode
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.effects import HoldLocalStandby

ME = Peer(NodeId(1), 1)
RUN = ("taxi", 1)
SLOT: Slot = ("taxi", 1, 0)
SUMS = InstanceName(1, 0)


def plan(generation: int = 1) -> bytes:
    """Return a plan of a source and a stage."""
    stages = (Stage(0, "rows", "source", (0,)), Stage(1, "sums", "operator", (1,), generation=generation))
    return encode(StagePlan("taxi", b"", stages, ()))


def effect(*instances: tuple[int, int], made: bytes = b"", digest: bytes = b"one") -> HoldLocalStandby:
    """Return a request to hold these instances ready, the stage with its state."""
    placed = tuple(PlacedInstance(*instance) for instance in instances)
    part = DeploymentPart("taxi", 1, 7, 2, b"", made or plan(), b"code", (ME,), placed, (), (), ME, ME)
    return HoldLocalStandby(0, part, ((1, 0),), (SnapshotChain(1, 0, digest),), SECOND)


@dataclass
class FakeExecutor:
    """A process that answers at once."""

    requests: int = 0
    ending: bool = False
    fails: bool = False
    asked: list[PrepareStandby] = field(default_factory=list)

    async def ask(self, message: Callable[[int], PrepareStandby], seconds: float) -> str:
        self.requests += 1
        if self.fails:
            raise LaunchError("it does not load")
        self.asked.append(message(self.requests))
        return ""


class Bed:
    """Waiting executors, and what was spawned and ended."""

    def __init__(self) -> None:
        self.spawned: list[FakeExecutor] = []
        self.ended: list[object] = []
        self.fails = False
        self.standbys = StandbyExecutors(self._spawn, self.ended.append)

    async def _spawn(self, key: Slot, number: int, part: bytes) -> ExecutorProcess:
        self.spawned.append(executor := FakeExecutor(fails=self.fails))
        return cast(ExecutorProcess, cast(Any, executor))

    def hold(self, *effects: HoldLocalStandby) -> None:
        """Carry out requests."""

        async def work() -> None:
            for wanted in effects:
                await self.standbys.hold(wanted.part, wanted)

        asyncio.run(work())

    def claim(self, *names: InstanceName, made: bytes = b"") -> list[object]:
        """Return the executors that start these instances."""
        return list(self.standbys.claim(RUN, made or plan(), {0: names}, ()).values())


def test_one_executor_takes_the_snapshots_of_all_epochs_and_is_claimed_once() -> None:
    bed = Bed()
    bed.hold(effect((0, 0), (1, 0)), effect((0, 0), (1, 0), digest=b"two"))
    (executor,) = bed.spawned
    assert [message.snapshots[0].digest for message in executor.asked] == [b"one", b"two"]
    assert [message.instances for message in executor.asked] == [(SUMS,), (SUMS,)]
    assert bed.claim(SUMS) == [executor]
    assert bed.claim(SUMS) == []
    assert bed.ended == []


def test_a_host_without_standby_instances_loads_the_code_once() -> None:
    bed = Bed()
    bed.hold(effect((0, 0)), effect((0, 0), digest=b"two"))
    (executor,) = bed.spawned
    assert [message.instances for message in executor.asked] == [()]


@pytest.mark.parametrize(
    ("names", "made"),
    [((InstanceName(0, 0), SUMS), b""), ((InstanceName(1, 0, 2),), plan(2))],
    ids=["an instance that it does not expect", "another plan"],
)
def test_an_executor_that_does_not_fit_is_ended(names: tuple[InstanceName, ...], made: bytes) -> None:
    bed = Bed()
    bed.hold(effect((1, 0)))
    assert bed.claim(*names, made=made) == []
    assert bed.ended == bed.spawned


def test_another_plan_replaces_the_executor() -> None:
    bed = Bed()
    bed.hold(effect((1, 0)), effect((1, 0), made=plan(2)))
    first, second = bed.spawned
    assert bed.ended == [first]
    assert bed.claim(InstanceName(1, 0, 2), made=plan(2)) == [second]


def test_an_executor_that_cannot_be_prepared_is_ended_and_begun_anew() -> None:
    bed = Bed()
    bed.fails = True
    with pytest.raises(LaunchError):
        bed.hold(effect((1, 0)))
    assert bed.ended == bed.spawned
    bed.fails = False
    bed.hold(effect((1, 0)))
    assert bed.claim(SUMS) == [bed.spawned[1]]


def test_a_released_run_has_no_executor_left() -> None:
    bed = Bed()
    bed.hold(effect((1, 0)))
    bed.standbys.release("another", 1)
    assert len(bed.standbys.processes) == 1
    bed.standbys.release(*RUN)
    assert bed.ended == bed.spawned
    assert not bed.standbys.processes
