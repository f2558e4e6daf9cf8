"""A flow over all runs of a node handles some in each step, so that no other event waits for all of them."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.machine import SetTimer, TimerFired
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.path_renewal import PathRenewal
from agiledart_node.autoscaling.replacement_service import ReplacementService
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.pending_requests import ITEMS_A_TURN, PendingRequests
from agiledart_node.records.application import RUNNING
from agiledart_node.wire.formation_messages import Deploy
from agiledart_recovery.wire.names import RunId
from tests.unit.node.test_change_plans import value
from tests.unit.node.test_node import SCHEDULER, Bench, part

RUNS = [RunId(f"app{number}", 1) for number in range(3 * ITEMS_A_TURN + 1)]


class World:
    """A node that coordinates all these runs. It notes in which step it handled each of them."""

    def __init__(self) -> None:
        self.step = 0
        self.handled: list[tuple[int, str]] = []
        self.requests = PendingRequests(RandomStream(1, "requests"), Duration(SECOND), 64)
        coordinator = SimpleNamespace(
            is_coordinating=True,
            is_over=False,
            proposer=SimpleNamespace(value=1),
            progress=SimpleNamespace(since=None),
            value=value(),
        )
        self.coordinators = dict.fromkeys(RUNS, coordinator)
        self.recovery = cast(Any, SimpleNamespace(machine=SimpleNamespace(coordinators=self.coordinators)))
        self.records = cast(Any, SimpleNamespace(application=self._record))
        self.context = cast(
            Any,
            SimpleNamespace(
                config=NodeConfig(),
                requests=self.requests,
                emit=self.requests.effects.append,
                known=lambda: (),
                nearest_of=lambda peers: peers,
                now=Instant(0),
            ),
        )

    async def _record(self, name: str) -> tuple[int, Any]:
        self.handled.append((self.step, name))
        return 1, SimpleNamespace(version=1, number=7, state=RUNNING, stopping=False, paths=(), signed_command=b"")

    async def loads(self, peers: list[Peer], timeout: int, *, wants_round_trips: bool = False) -> dict[Any, Any]:
        return {}

    async def form(self, number: int, wanted: Any, *, are_new: bool) -> tuple[()]:
        return ()

    def until_calm(self) -> None:
        """Let all pauses pass, one after the other."""
        while timers := [effect for effect in self.requests.effects if isinstance(effect, SetTimer)]:
            self.requests.effects.clear()
            self.step += 1
            for timer in timers:
                self.requests.now = max(self.requests.now, timer.at)
                self.requests.timer(cast(Any, timer.name))


def steps_of(handled: list[tuple[int, str]]) -> list[int]:
    """The runs of each step; raises when a run was handled twice."""
    assert sorted(name for _, name in handled) == sorted(run.app for run in RUNS)
    return list(Counter(step for step, _ in handled).values())


def test_a_look_at_all_placements_has_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    service = ReplacementService(
        world.context, world.records, world.recovery, cast(Any, None), cast(Any, world), cast(Any, None)
    )
    looked: list[tuple[int, str]] = []

    async def look_at(run: RunId, *_: object) -> None:
        looked.append((world.step, run.app))

    monkeypatch.setattr(service, "_look_at", look_at)
    service.on_timer()
    world.until_calm()
    assert steps_of(world.handled) == steps_of(looked) == [ITEMS_A_TURN] * 3 + [1]


def test_renewals_of_all_paths_have_pauses() -> None:
    world = World()
    renewal = PathRenewal(world.context, world.records, world.recovery, cast(Any, world))
    renewal.look()
    world.context.now = Instant(world.context.config.soft_state_ns)
    renewal.look()
    world.until_calm()
    assert steps_of(world.handled) == [ITEMS_A_TURN] * 3 + [1]


def test_a_patrol_has_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for number, run in enumerate(RUNS):
        bench.hear(SCHEDULER, Deploy(number, msgspec.structs.replace(part(), application=run.app)))
    assert len(bench.node.hosted) == len(RUNS)
    bench.take()
    read: list[str] = []

    async def application(name: str, part: object = None) -> tuple[int, None]:
        read.append(name)
        return 0, None

    monkeypatch.setattr(bench.node.parts.records, "application", application)
    bench.feed(TimerFired(("node", "patrol")))
    counts = [len(read)]
    while (pauses := [timer for timer in bench.of(SetTimer) if cast(Any, timer.name)[:2] == ("node", "wait")]) and len(
        read
    ) < len(RUNS):
        bench.take()
        bench.now = max(timer.at for timer in pauses)
        for timer in pauses:
            bench.feed(TimerFired(timer.name))
        counts.append(len(read))
    assert sorted(read) == sorted(run.app for run in RUNS)
    assert [after - before for before, after in zip([0, *counts], counts, strict=False)] == [ITEMS_A_TURN] * 3 + [1]
