"""A node that is emptied: its requests to coordinators, when it gives up, and its progress reports."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import CancelTimer, Send, SetTimer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.draining.drain_obstacles import obstacles, refusal, runs_losing_majority
from agiledart_node.draining.evacuation_requests import EvacuationRequests
from agiledart_node.draining.node_drain import NodeDrain
from agiledart_node.recovery.change_plans import InsufficientNodeCapacity
from agiledart_node.wire.commands import DrainNode
from agiledart_node.wire.drain_messages import (
    DrainStatus,
    EvacuationStatus,
    QueryDrain,
    RequestDrain,
    RequestEvacuation,
)
from agiledart_node.wire.effects import EndAgent
from agiledart_recovery.wire.names import RunId, Voter
from agiledart_recovery.wire.register_value import ChangeOutcome, RegisterValue, StageChange
from tests.unit.node import test_change_plans as plans

ME, ASKER = plans.PI[2], plans.PI[3]  # pi2 has `busy+areas.1` and nothing else
KEY = ("taxi", 1)


def hosted(*, by_epoch: bool = True, reserved: int = 1) -> Any:
    return SimpleNamespace(
        key=KEY,
        reserved=reserved,
        is_closing=False,
        is_flowing=True,
        has_register=True,
        part=SimpleNamespace(application="taxi", by_epoch=by_epoch),
    )


def loose(value: RegisterValue) -> RegisterValue:
    """The same run, whose sources and sinks may move."""
    free = tuple(msgspec.structs.replace(one, is_pinned=False) for one in value.plan.assignments)
    return msgspec.structs.replace(value, plan=msgspec.structs.replace(value.plan, assignments=free))


@pytest.mark.parametrize(
    ("value", "pi", "said"),
    [
        (plans.value(), 2, ""),
        (plans.value(), 0, "source trips there, which stays where its data are"),
        (plans.value(), 0, 'on_source_lost="move"'),
        (plans.value(), 3, "sink out there, which stays where its data are: stop it (agiledart stop taxi)"),
        (plans.value(at="pi2"), 2, "pinned to pi2 by its topology"),
        (loose(plans.value()), 0, ""),
    ],
)
def test_reasons_that_prevent_a_drain_are_listed(value: RegisterValue, pi: int, said: str) -> None:
    found = obstacles([hosted()], lambda key: value, plans.PI[pi].node)
    assert bool(found) == bool(said)
    assert said in refusal("pi", found)


def test_a_run_without_checkpoints_blocks_a_drain_a_pending_deployment_does_not() -> None:
    (line,) = obstacles([hosted(by_epoch=False)], lambda key: None, ME.node)
    assert 'submit it with delivery="survive"' in line
    assert obstacles([hosted(), hosted(by_epoch=False, reserved=0)], lambda key: None, ME.node) == []
    assert "and 2 more" in refusal("pi", [line] * 10)


class World:
    """pi2, its clock, and coordinators with preset answers."""

    def __init__(self) -> None:
        self.requests = PendingRequests(RandomStream(1, "talks"), Duration(400 * MILLISECOND), 64)
        self.requests.now = Instant(SECOND)
        self.value: RegisterValue | None = plans.value()
        self.table: dict[Any, Any] = {KEY: hosted()}
        self.answer: Callable[[], EvacuationStatus | None] = lambda: EvacuationStatus(0, is_begun=True)
        self.asked = 0
        self.heard: Callable[[RequestEvacuation], object] = lambda asked: None
        self.told: list[DrainStatus] = []
        self.ended = False
        self.timers: dict[object, int] = {}
        self.record: Any = SimpleNamespace(is_final=False, version=1)
        self.context = cast(Any, SimpleNamespace(
            me=ME, requests=self.requests, config=NodeConfig(), is_leaving=False, is_draining=False,
            send=lambda to, message: self.told.append(message), emit=self._emit, drop=lambda reason: None,
        ))  # fmt: skip
        self.led: dict[RunId, Any] = {}
        self.context.overlay = SimpleNamespace(is_alive=lambda node: True)
        participants = cast(Any, self)
        self.one = NodeDrain(
            self.context,
            cast(Any, SimpleNamespace(application=self._record)),
            cast(Any, SimpleNamespace(table=self.table, on_capacity_changed=lambda: None)),
            cast(Any, SimpleNamespace(machine=SimpleNamespace(participants=participants, coordinators=self.led))),
            cast(Any, SimpleNamespace(requires_signatures=False)),
        )
        self.number = 0

    def get(self, run: RunId) -> Any:
        return SimpleNamespace(value=self.value) if self.value is not None else None

    async def _record(self, name: str) -> tuple[int, Any]:
        return 1, self.record

    def _emit(self, effect: object) -> None:
        self.ended |= isinstance(effect, EndAgent)

    def order(self, *, stay: bool = False, undo: bool = False) -> DrainStatus:
        self.number += 1
        self.requests.begin(self.one.asked(ASKER, RequestDrain(self.number, DrainNode("pi2", stay, undo))))
        return self.told[-1]

    def look(self, after: int = 0) -> DrainStatus:
        self.one.look(ASKER, QueryDrain(9, after))
        return self.told[-1]

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
                elif isinstance(effect, Send) and isinstance(effect.message, RequestEvacuation):
                    self.asked += 1
                    self.heard(effect.message)
                    answer = self.answer()
                    if answer is not None:
                        message = msgspec.structs.replace(answer, request=effect.message.request)
                        self.requests.reply_received(effect.to, effect.message.request, message)
            if self.requests.effects:
                continue
            name = min(self.timers, key=lambda one: self.timers[one], default=None)
            if name is None or self.timers[name] > end:
                self.requests.now = Instant(end)
                return
            self.requests.now = Instant(max(self.requests.now, self.timers.pop(name)))
            self.context.now = self.requests.now
            self.requests.timer(cast(Any, name))

    def leave(self) -> None:
        """The run has nothing here any more."""
        self.table.clear()
        self.answer = lambda: EvacuationStatus(0, is_safe=True)


@pytest.fixture
def world() -> World:
    made = World()
    made.context.now = made.requests.now
    return made


def test_a_drained_node_stays_empty_or_accepts_work_again(world: World) -> None:
    assert world.order(stay=True).state == "emptying"
    assert world.context.is_draining
    world.go(0.1)
    world.answer = lambda: EvacuationStatus(0, refusal="taxi changes now", is_transient=True)
    world.go(5)
    assert world.look().state == "emptying"
    world.table.clear()
    world.answer = lambda: EvacuationStatus(0)  # nothing of it is here, and no epoch is committed yet
    world.go(5)
    assert world.look().state == "emptying"
    world.leave()
    world.go(1)
    told = world.look()
    assert (told.state, [(run.name, run.instances) for run in told.evacuated]) == ("drained", [("taxi", 1)])
    assert told.lines[0] == "taxi: 1 instance to leave"
    assert world.look(after=1).lines[0].startswith("taxi has left in 1")
    assert not world.ended
    again = world.order(stay=True)
    assert (again.state, again.is_unchanged) == ("drained", True)
    assert (world.order(undo=True).state, world.context.is_draining) == ("serving", False)
    assert world.order(undo=True).is_unchanged


def test_an_idle_node_stays_when_the_command_says_so(world: World) -> None:
    world.table.clear()
    assert world.order(stay=True).state == "drained"
    world.go(5)
    assert (world.look().state, world.ended) == ("drained", False)
    assert world.order().state == "leaving"


def test_a_node_leaves_when_empty_even_if_it_was_to_stay_before(world: World) -> None:
    world.order(stay=True)
    world.leave()
    world.go(1)
    assert world.order().state == "leaving"
    world.go(1)
    ended = [world.ended]
    world.go(2)
    assert [*ended, world.ended] == [False, True], "an observer is notified before"
    assert "pi2 is leaving the ring" in world.order().refusal


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            EvacuationStatus(0, refusal="No other node has room for areas of taxi: there is none."),
            "No other node has room",
        ),
        (EvacuationStatus(0, refusal="taxi changes now", is_transient=True), "has not left in 120 s: taxi changes now"),
        (EvacuationStatus(0, is_begun=True, last="it was let go: no"), "did not leave in 5 tries: it was let go: no"),
        (EvacuationStatus(0, is_not_coordinator=True), "has not left in 120 s: no node coordinates it"),
        (None, "has not left in 120 s: no node coordinates it"),
    ],
)
def test_a_node_accepts_work_again_when_its_drain_fails(
    world: World, answer: EvacuationStatus | None, said: str
) -> None:
    world.answer = lambda: answer
    world.order()
    world.go(140)
    told = world.look()
    assert said in told.refusal
    assert "takes work again" in told.refusal
    assert (told.state, world.context.is_draining, world.ended) == ("serving", False, False)


def test_undo_ends_a_drain_in_progress(world: World) -> None:
    world.answer = lambda: EvacuationStatus(0, refusal="taxi changes now", is_transient=True)
    world.order()
    world.go(1)
    assert world.order(undo=True).state == "serving"
    asked = world.asked
    world.go(10)
    assert world.asked == asked
    assert (world.look().state, world.look().refusal) == ("serving", "")


def test_a_run_that_ends_during_a_drain_counts_as_moved(world: World) -> None:
    world.order(stay=True)
    world.go(0.1)
    world.table.clear()
    world.answer = lambda: EvacuationStatus(0, is_not_coordinator=True)
    world.go(5)
    assert world.look().state == "emptying"
    world.record = SimpleNamespace(is_final=True, version=1)
    world.go(5)
    assert world.look().state == "drained"


def test_no_drain_begins_when_an_instance_is_pinned_to_the_node(world: World) -> None:
    world.value = plans.value(at="pi2")
    told = world.order()
    assert "pi2 can't be emptied, and nothing was begun" in told.refusal
    assert not world.context.is_draining


def test_a_node_needed_for_a_runs_majority_does_not_leave(world: World) -> None:
    voters = tuple(Voter(peer, 7) for peer in (ME, *plans.PI[:2]))
    three = msgspec.structs.replace(plans.value(), voters=voters)
    assert runs_losing_majority([three], ME.node, lambda node: True) == []
    assert runs_losing_majority([plans.value()], ME.node, lambda node: True) == [], "its only voter is elsewhere"
    (line,) = runs_losing_majority([three], ME.node, lambda node: node == plans.PI[0].node)
    assert "taxi would lose the majority of its voters" in line
    only = msgspec.structs.replace(three, voters=voters[:1])
    world.led[RunId("taxi", 1)] = SimpleNamespace(is_over=False, known=only)
    assert "would lose the majority" in world.order().refusal
    assert world.order(stay=True).state == "emptying"
    world.leave()
    world.go(1)
    assert "would lose the majority" in world.order().refusal
    assert world.look().state == "drained"


def test_a_node_transfers_its_votes_before_it_leaves(world: World) -> None:
    voters = tuple(Voter(peer, 7) for peer in (ME, *plans.PI[:2]))
    three = msgspec.structs.replace(plans.value(), voters=voters)
    led = world.led[RunId("taxi", 1)] = SimpleNamespace(is_over=False, known=three)
    asked: list[RequestEvacuation] = []
    world.heard = asked.append
    world.order()
    world.leave()
    world.answer = lambda: EvacuationStatus(0, is_safe=not asked[-1].voter_slot, is_begun=asked[-1].voter_slot)
    world.go(5)
    assert asked[-1].voter_slot
    assert world.look().state == "emptying", "a voter slot is not transferred yet"
    assert not world.ended
    led.known = msgspec.structs.replace(three, voters=voters[1:], old_voters=())
    world.go(5)
    assert world.ended


def test_a_node_whose_vote_has_no_successor_reports_it_and_leaves(world: World) -> None:
    voters = tuple(Voter(peer, 7) for peer in (ME, *plans.PI[:2]))
    three = msgspec.structs.replace(plans.value(), voters=voters)
    world.led[RunId("taxi", 1)] = SimpleNamespace(is_over=False, known=three)
    asked: list[RequestEvacuation] = []
    world.heard = asked.append
    world.order()
    world.leave()
    world.answer = lambda: (
        EvacuationStatus(0, refusal="no other node can take its seat in the register")
        if asked[-1].voter_slot
        else EvacuationStatus(0, is_safe=True)
    )
    world.go(8)
    assert "taxi: no other node can take its seat in the register" in world.look().lines
    assert world.ended


class Going(World):
    """pi2 was terminated, and votes with two others."""

    def __init__(self) -> None:
        super().__init__()
        self.context.now, self.is_over, self.voter_slots, self.stages = self.requests.now, False, 0, 0
        self.three = msgspec.structs.replace(
            plans.value(), voters=tuple(Voter(peer, 7) for peer in (ME, *plans.PI[:2]))
        )
        self.led[RunId("taxi", 1)] = self.register = SimpleNamespace(is_over=False, known=self.three)
        self.heard = self._count

    def _count(self, asked: RequestEvacuation) -> None:
        self.voter_slots, self.stages = self.voter_slots + asked.voter_slot, self.stages + (not asked.voter_slot)

    def begin(self) -> None:
        async def leave() -> None:
            await self.one.before_leaving()
            self.is_over = True

        self.requests.begin(leave())

    def replace_me(self) -> None:
        self.register.known = msgspec.structs.replace(self.three, voters=self.three.voters[1:], old_voters=())


def test_a_terminating_node_transfers_its_instances_then_its_vote() -> None:
    world = Going()
    world.answer = lambda: EvacuationStatus(0, refusal="taxi changes now", is_transient=True)
    world.begin()
    world.go(2)
    assert (world.stages > 0, world.voter_slots, world.is_over) == (True, 0, False)
    world.leave()
    world.answer = lambda: EvacuationStatus(0, is_safe=not world.voter_slots, is_begun=bool(world.voter_slots))
    world.go(1)
    assert (world.voter_slots > 0, world.is_over) == (True, False), "a voter slot is not transferred yet"
    world.replace_me()
    world.go(1)
    assert world.is_over


def test_a_terminating_node_does_not_wait_for_pinned_instances() -> None:
    world = Going()
    world.value = plans.value(at="pi2")
    world.begin()
    world.replace_me()
    world.go(1)
    assert (world.stages, world.is_over) == (0, True)
    of_none = Going()
    of_none.table[KEY] = hosted(by_epoch=False)
    of_none.table[KEY].has_register = False
    of_none.replace_me()
    of_none.begin()
    of_none.go(1)
    assert (of_none.stages, of_none.is_over) == (0, True)


@pytest.mark.parametrize(
    "answer",
    [EvacuationStatus(0), EvacuationStatus(0, is_begun=True), EvacuationStatus(0, is_not_coordinator=True), None],
)
def test_a_terminating_node_exits_within_ten_seconds_whatever_others_answer(answer: EvacuationStatus | None) -> None:
    world = Going()
    world.answer = lambda: answer
    world.begin()
    world.go(7)
    assert (world.stages > 0, world.voter_slots > 0, world.is_over) == (True, True, False)
    world.go(2)
    assert world.is_over


def test_a_terminating_node_transfers_no_vote_when_too_few_voters_remain() -> None:
    world = Going()
    world.table.clear()
    world.context.overlay.is_alive = lambda node: False
    world.begin()
    world.go(0.1)
    assert (world.voter_slots, world.is_over) == (0, True)


def relieved(value: RegisterValue, host: Peer, answer: object) -> tuple[EvacuationStatus, list[str]]:
    """A coordinator's message to a host about a run."""
    told: list[Any] = []
    done: list[str] = []

    async def request(run: RunId, wishes: Any, reason: str) -> object:
        done.append(f"{wishes[0].kind} {reason}")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def evacuate(run: RunId, host: Peer) -> str:
        done.append("relieve")
        return ""

    coordinator = SimpleNamespace(is_coordinating=True, proposer=SimpleNamespace(value=value), value=value)
    recovery_service = SimpleNamespace(
        machine=SimpleNamespace(coordinators={RunId("taxi", 1): coordinator}), evacuate=evacuate
    )
    one = EvacuationRequests(
        cast(Any, SimpleNamespace(send=lambda to, message: told.append(message))),
        cast(Any, recovery_service),
        cast(Any, SimpleNamespace(request=request)),
    )
    for _ in range(2):  # a question that comes again
        conversation = one.asked(host, RequestEvacuation(5, "taxi", 1))
        with pytest.raises(StopIteration):
            conversation.send(None)
    assert told[0] == told[1]
    return told[0], done


def test_the_coordinators_drain_answers_are_reported() -> None:
    change = StageChange("1", 2, 2, 2, "drain")
    assert relieved(plans.value(), ME, (change,)) == (EvacuationStatus(5, True), ["drain pi2 is drained"])
    assert relieved(loose(plans.value()), plans.PI[0], ()) == (
        EvacuationStatus(5, True, is_transient=True),
        ["drain pi0 is drained", "relieve"],
    )
    gone = plans.PI[4]  # it has nothing of it
    assert relieved(plans.value(), gone, ()) == (EvacuationStatus(5, is_safe=True), ["relieve"])
    begun = msgspec.structs.replace(plans.value(), attempt=2)
    assert not relieved(begun, gone, ())[0].is_safe, "nothing was committed since"
    assert not relieved(plans.value(), ME, InsufficientNodeCapacity("no room"))[0].is_transient
    failed = msgspec.structs.replace(
        plans.value(), changes=(msgspec.structs.replace(change, fate=ChangeOutcome.DROPPED, why="a3 was lost"),)
    )
    said = relieved(failed, ME, CommandRefused("later"))[0]
    assert (said.refusal, said.last, said.is_transient) == ("later", "it was let go: a3 was lost", True)


def test_an_agent_that_sends_a_negative_number_is_answered(world: World) -> None:
    world.number = -2
    assert world.order(stay=True).request == -1
