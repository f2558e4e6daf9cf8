"""When paths of a run are joined anew, and what becomes of the record."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.path_renewal import PathRenewal, wanted_paths
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.forming.join_protocol import Paths
from agiledart_node.records.application import RUNNING
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.node.test_change_plans import PI, value

RUN = RunId("taxi", 1)
OLD: Paths = ((PI[0], PI[3]),)
NEW: Paths = ((PI[0], PI[4], PI[3]),)


class World:
    """One coordinated run, and JOINs that arrive by the path of now."""

    def __init__(self) -> None:
        self.value: RegisterValue = value()
        self.path, self.record_paths, self.state = OLD, OLD, RUNNING
        self.joined: list[tuple[int, dict[NodeId, Any], bool]] = []
        self.fails = False
        self.requests = PendingRequests(RandomStream(1, "talks"), Duration(SECOND), 64)
        self.progress = SimpleNamespace(since=None)
        self.context = SimpleNamespace(config=NodeConfig(), requests=self.requests, now=Instant(0))
        coordinator = SimpleNamespace(
            is_coordinating=True, is_over=False, proposer=SimpleNamespace(value=1), progress=self.progress
        )
        self.coordinator = coordinator
        self.coordinators = {RUN: coordinator}
        coordinator.value = self.value
        self.renewal = PathRenewal(
            cast(Any, self.context),
            cast(Any, SimpleNamespace(application=self._application, change=self._change)),
            cast(Any, SimpleNamespace(machine=SimpleNamespace(coordinators=self.coordinators))),
            cast(Any, SimpleNamespace(form=self._form)),
        )

    @property
    def record(self) -> Any:
        return SimpleNamespace(version=1, number=7, state=self.state, stopping=False, paths=self.record_paths)

    async def _application(self, name: str) -> tuple[int, Any]:
        return 1, self.record

    async def _change(self, name: str, version: int, change: Any, number: int) -> None:
        assert (name, version, number) == ("taxi", 1, 7)
        self.record_paths = self.path

    async def _form(self, number: int, wanted: Any, *, are_new: bool) -> Any:
        self.joined.append((number, wanted, are_new))
        if self.fails:
            raise CommandRefused("pi1 is gone")
        return self.path

    def look(self, seconds: float) -> int:
        self.context.now = Instant(int(seconds * SECOND))
        self.renewal.look()
        return len(self.joined)


def test_paths_are_renewed_twice_in_the_lifetime_of_soft_state_and_the_record_follows() -> None:
    world = World()
    assert world.look(0) == world.look(29) == 0, "they were joined when the application was formed"
    world.path = NEW
    assert world.look(30) == 1
    assert world.joined == [(7, {PI[3].node: (PI[3], (PI[0],))}, True)]
    assert world.record_paths == NEW
    assert world.look(31) == 1
    assert world.look(60) == 2


def test_another_host_is_a_reason_at_once_and_a_restart_is_none() -> None:
    world = World()
    world.look(0)
    world.coordinator.value = value(3)
    world.progress.since = Instant(1)
    world.coordinator.value = value(1)
    assert world.look(1) == 0, "while the run is being restarted"
    world.progress.since = None
    assert world.look(2) == 1
    assert world.look(3) == 1


@pytest.mark.parametrize("what", ["ended", "silent"])
def test_an_ended_run_is_left_alone_and_a_silent_node_is_asked_again_later(what: str) -> None:
    world = World()
    world.look(0)
    if what == "ended":
        world.state = "finished"
    world.fails = what == "silent"
    world.path = NEW
    assert world.look(30) == (0 if what == "ended" else 1)
    assert world.record_paths == OLD
    world.fails = False
    if what == "silent":
        assert world.look(60) == 2
        assert world.record_paths == NEW
    world.coordinators.clear()
    assert world.look(90) == world.look(120)


def test_sources_are_asked_for_the_sinks_that_their_rows_reach() -> None:
    assert wanted_paths(value(3)) == {PI[3].node: (PI[3], (PI[0],))}
