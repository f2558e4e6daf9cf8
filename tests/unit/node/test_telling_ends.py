"""The end of a run is told to who notes it; where that one is gone for good another host notes it."""

from types import SimpleNamespace
from typing import Any, cast

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.desk.config import NodeConfig
from agiledart_node.desk.conversations import Conversations
from agiledart_node.recovering.ending import LONGEST_NS, Ending
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.recovery_messages import RunClosed
from agiledart_recovery.wire.names import NOTHING_SAVED, Party, Run, Voter
from agiledart_recovery.wire.value import Assignment, Plan, Role, State, Value

RUN = Run("taxi", 1)
PI = [Peer(NodeId(100 + number), 1, f"pi{number}") for number in range(4)]
PLAN = Plan((
    Assignment(Party("0"), Role.SOURCE, PI[0]), Assignment(Party("1"), Role.STAGE, PI[1]), Assignment(Party("2"), Role.SINK, PI[2]),
))  # fmt: skip
VALUE = Value(RUN, 0, 1, PLAN, NOTHING_SAVED, (Voter(PI[3], 7),), state=State.FINISHED)


class World:
    """pi3, which coordinates; of the others some are there."""

    def __init__(self, *there: Peer, value: Value = VALUE) -> None:
        self.talks = Conversations(RandomStream(1, "talks"), Duration(400 * MILLISECOND), 64)
        self.talks.now = Instant(SECOND)
        self.there, self.said = there, list[tuple[str, RunClosed]]()
        self.timers: dict[object, int] = {}
        self.desk = cast(Any, SimpleNamespace(me=PI[3], talks=self.talks, config=NodeConfig(), now=self.talks.now))
        self.machine = SimpleNamespace(coordinators={RUN: None}, tell_end_again=lambda run, to: None)
        ending = Ending(
            self.desk, cast(Any, None), cast(Any, SimpleNamespace(machine=self.machine, flush=lambda: None))
        )
        ending.look(RUN, cast(Any, SimpleNamespace(leads=True, is_over=True, value=value)))

    def go(self, seconds: float) -> None:
        """Let time pass."""
        end = self.talks.now + int(seconds * SECOND)
        while True:
            effects, self.talks.effects = self.talks.effects, []
            for effect in effects:
                if isinstance(effect, SetTimer):
                    self.timers[effect.name] = effect.at
                elif isinstance(effect, CancelTimer):
                    self.timers.pop(effect.name, None)
                elif isinstance(effect, Send) and isinstance(effect.message, RunClosed):
                    self.said.append((effect.to.name, effect.message))
                    if effect.to in self.there:
                        self.talks.heard(effect.to, effect.message.request, Acknowledged(effect.message.request))
            if self.talks.effects:
                continue
            name = min(self.timers, key=lambda one: self.timers[one], default=None)
            if name is None or self.timers[name] > end:
                self.talks.now = Instant(end)
                return
            self.talks.now = Instant(max(self.talks.now, self.timers.pop(name)))
            self.desk.now = self.talks.now
            self.talks.timer(cast(Any, name))


def test_the_host_of_the_sink_notes_it() -> None:
    world = World(*PI)
    world.go(300)
    assert [(name, said.instead) for name, said in world.said] == [("pi2", False)]


def test_where_it_is_gone_for_good_another_host_does() -> None:
    world = World(PI[1])
    world.go(50)
    assert {name for name, _ in world.said} == {"pi2"}
    world.go(600)
    told = [(name, said.instead) for name, said in world.said]
    assert told[-1] == ("pi1", True)
    assert ("pi0", True) in told
    count = len(told)
    world.go(600)
    assert len(world.said) == count, "it is noted"


def test_nobody_is_told_for_ever() -> None:
    world = World()
    world.go(LONGEST_NS / SECOND + 3_600)
    count = len(world.said)
    world.go(24 * 3_600)
    assert len(world.said) == count
    assert {name for name, _ in world.said} == {"pi0", "pi1", "pi2"}


def test_a_run_that_is_forgotten_is_told_of_no_more() -> None:
    world = World()
    world.go(30)
    world.machine.coordinators.clear()
    world.go(60)
    count = len(world.said)
    world.go(600)
    assert len(world.said) == count
