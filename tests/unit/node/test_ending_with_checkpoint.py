"""`stop --checkpoint`: a gathered checkpoint is removed only when the register is seen to have continued without that end."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Received
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.recovery.checkpoint_exporter import CheckpointExporter, CoordinatedElsewhere
from agiledart_node.wire.checkpoint_messages import CheckpointInfo
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot
from agiledart_recovery.wire.register_value import RegisterValue, RunState
from tests.unit.recovery.bench import RUN, peer
from tests.unit.recovery.test_holding import Held, committed, running

KEPT = CheckpointInfo("pause", RUN, 1, 3, 0, b"", (), b"\1" * 32, 10)


class Stopping(CheckpointExporter):
    """At one node of a world; its files are only counted.

    Args:
        when: called at each look at the register.
    """

    def __init__(self, world: Held, when: Callable[[], None] = lambda: None) -> None:
        async def pause(duration: int) -> None:
            when()
            world.run(duration / SECOND)

        class Desk:
            me = peer(1)
            requests = SimpleNamespace(pause=pause)

            @property
            def now(self) -> Instant:
                return world.now

        def flush_request(why: str) -> str:
            world.carry_out(world.machine.take_effects())
            return why

        context: Any = Desk()
        recovery_service: Any = SimpleNamespace(machine=world.machine, flush_request=flush_request)
        nothing = cast("Any", None)
        super().__init__(context, nothing, recovery_service, nothing)
        self.given_up: list[Sequence[Peer]] = []
        self.fails = ""

    async def _gather(self, *_: object) -> CheckpointInfo:
        return KEPT

    async def _copy_to_others(self, *_: object) -> list[Peer]:
        if self.fails:
            raise OperationFailed(self.fails)
        return [peer(2)]

    async def _abort_checkpoint(self, kept: CheckpointInfo | None, nodes: Sequence[Peer]) -> None:
        self.given_up.append(nodes)

    def stop(self) -> tuple[CheckpointInfo, Sequence[Peer]] | None:
        """One try."""
        return asyncio.run(self._try_to_stop(RUN, cast("Any", None), "pause", "me"))


def overtaken(world: Held, changed: Callable[[RegisterValue], RegisterValue]) -> None:
    """Another voter coordinates, and has read this in the register."""
    ballot = Ballot(1_000, NodeId(4), 1)
    value = changed(world.coordinator.value)
    world.carry_out(world.machine.step(Received(peer(4), wire.LeaderAnnounced(RUN, ballot)), world.now))
    assert not world.coordinator.leads
    if value.attempt > world.coordinator.value.attempt:
        message: Any = wire.Reset(RUN, ballot, value)
    else:
        message = wire.Committed(RUN, value.attempt, value)
    world.carry_out(world.machine.step(Received(peer(4), message), world.now))


def test_the_checkpoint_of_a_proposed_end_is_kept() -> None:
    world = running()
    committed(world)
    world.voters = ()
    keeping = Stopping(world)
    for _ in range(2):  # a retry gets the same answer
        with pytest.raises(CommandRefused) as refusal:
            keeping.stop()
        assert not isinstance(refusal.value, CoordinatedElsewhere)
        assert f"Whether {RUN.app} was stopped is not known: too few voters of its register" in refusal.value.text
        assert "agiledart checkpoint list pause" in refusal.value.text
    assert keeping.given_up == []
    world.voters = (4, 5)
    world.run(5)
    assert world.coordinator.value.state is RunState.FINISHED


def test_the_next_coordinator_confirms_the_end() -> None:
    world = running()
    committed(world)
    world.voters = ()
    looks: list[None] = []

    def look() -> None:
        looks.append(None)
        if len(looks) == 3:
            overtaken(world, lambda value: msgspec.structs.replace(value, state=RunState.FINISHED))

    keeping = Stopping(world, look)
    assert keeping.stop() == (KEPT, [peer(1), peer(2)])
    assert len(looks) >= 3
    assert keeping.given_up == []


def test_the_next_coordinator_continues_when_it_has_not_seen_the_end() -> None:
    world = running()
    committed(world)
    world.voters = ()
    looks: list[None] = []

    def look() -> None:
        looks.append(None)
        if len(looks) == 3:
            overtaken(world, lambda value: msgspec.structs.replace(value, attempt=value.attempt + 1))

    keeping = Stopping(world, look)
    assert keeping.stop() is None
    assert keeping.given_up == [[peer(1), peer(2)]]


def test_a_checkpoint_that_was_not_retained_ends_no_run() -> None:
    world = running()
    committed(world)
    lives = len(world.attempts)
    keeping = Stopping(world)
    keeping.fails = "no room"
    with pytest.raises(CommandRefused, match=r"was not stopped, and goes on from epoch \d+: no room"):
        keeping.stop()
    assert len(keeping.given_up) == 1
    world.run(5)
    assert len(world.attempts) == lives + 1


def test_a_run_ends_when_all_hosts_answer() -> None:
    world = running()
    at = committed(world)
    keeping = Stopping(world)
    assert keeping.stop() == (KEPT, [peer(1), peer(2)])
    assert (world.coordinator.value.state, world.coordinator.value.committed) == (RunState.FINISHED, at)
