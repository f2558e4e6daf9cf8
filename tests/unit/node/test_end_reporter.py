"""The end of a run is reported to the node that records it; where that one is gone for good another host notes it."""

from types import SimpleNamespace
from typing import Any, cast

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.recovery.end_reporter import REPORTING_NS, EndReporter
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import RunClosed
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, InstanceId, RunId, Voter
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, Plan, RegisterValue, RunState

RUN = RunId("taxi", 1)
PI = [Peer(NodeId(100 + number), 1, f"pi{number}") for number in range(4)]
PLAN = Plan(
    (
        Assignment(InstanceId("0"), InstanceRole.SOURCE, PI[0]),
        Assignment(InstanceId("1"), InstanceRole.STAGE, PI[1]),
        Assignment(InstanceId("2"), InstanceRole.SINK, PI[2]),
    )
)
VALUE = RegisterValue(RUN, 0, 1, PLAN, INITIAL_CHECKPOINT, (Voter(PI[3], 7),), state=RunState.FINISHED)


class World:
    """pi3, which coordinates; of the others some are there."""

    def __init__(self, *there: Peer, value: RegisterValue = VALUE) -> None:
        self.requests = PendingRequests(RandomStream(1, "talks"), Duration(400 * MILLISECOND), 64)
        self.requests.now = Instant(SECOND)
        self.there, self.said = there, list[tuple[str, RunClosed]]()
        self.timers: dict[object, int] = {}
        self.context = cast(
            Any, SimpleNamespace(me=PI[3], requests=self.requests, config=NodeConfig(), now=self.requests.now)
        )
        self.machine = SimpleNamespace(coordinators={RUN: None}, resend_end=lambda run, to: None)
        end_reporter = EndReporter(
            self.context, cast(Any, None), cast(Any, SimpleNamespace(machine=self.machine, flush=lambda: None))
        )
        end_reporter.look(RUN, cast(Any, SimpleNamespace(leads=True, is_over=True, value=value)))

    def go(self, seconds: float) -> None:
        """Let time pass."""
        end = self.requests.now + int(seconds * SECOND)
        while True:
            effects, self.requests.effects = self.requests.effects, []
            for effect in effects:
                if isinstance(effect, SetTimer):
                    self.timers[effect.name] = effect.at
                elif isinstance(effect, CancelTimer):
                    self.timers.pop(effect.name, None)
                elif isinstance(effect, Send) and isinstance(effect.message, RunClosed):
                    self.said.append((effect.to.name, effect.message))
                    if effect.to in self.there:
                        self.requests.reply_received(
                            effect.to, effect.message.request, Acknowledged(effect.message.request)
                        )
            if self.requests.effects:
                continue
            name = min(self.timers, key=lambda one: self.timers[one], default=None)
            if name is None or self.timers[name] > end:
                self.requests.now = Instant(end)
                return
            self.requests.now = Instant(max(self.requests.now, self.timers.pop(name)))
            self.context.now = self.requests.now
            self.requests.timer(cast(Any, name))


def test_the_sinks_host_records_the_end() -> None:
    world = World(*PI)
    world.go(300)
    assert [(name, said.is_substitute) for name, said in world.said] == [("pi2", False)]


def test_another_host_records_the_end_when_the_sinks_host_is_lost() -> None:
    world = World(PI[1])
    world.go(50)
    assert {name for name, _ in world.said} == {"pi2"}
    world.go(600)
    told = [(name, said.is_substitute) for name, said in world.said]
    assert told[-1] == ("pi1", True)
    assert ("pi0", True) in told
    count = len(told)
    world.go(600)
    assert len(world.said) == count, "it is noted"


def test_end_reports_stop_after_a_limit() -> None:
    world = World()
    world.go(REPORTING_NS / SECOND + 3_600)
    count = len(world.said)
    world.go(24 * 3_600)
    assert len(world.said) == count
    assert {name for name, _ in world.said} == {"pi0", "pi1", "pi2"}


def test_a_forgotten_run_is_not_reported_again() -> None:
    world = World()
    world.go(30)
    world.machine.coordinators.clear()
    world.go(60)
    count = len(world.said)
    world.go(600)
    assert len(world.said) == count
