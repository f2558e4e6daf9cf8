"""What a coordinator's node does once per interval: asks the hosts, decides, asks for changes, and hears how they ended."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import Send
from agiledart_kernel.randomness import RandomStream
from agiledart_node.asking.scaling_advice import decided, scored, stage_states
from agiledart_node.desk.config import NodeConfig
from agiledart_node.desk.conversations import Conversations
from agiledart_node.desk.desk import CommandRefused
from agiledart_node.records.application import RUNNING
from agiledart_node.recovering.change_plans import NoRoom, stage_plan_of
from agiledart_node.steering.self_scaling import SelfScaling
from agiledart_node.wire.bodies import ScalingFigures, ScalingStageRow, StageRow
from agiledart_node.wire.change_messages import Wish
from agiledart_node.wire.formation_messages import Load, Reports
from agiledart_node.wire.recovery_messages import RecoveryIs
from agiledart_recovery.wire.names import Run
from agiledart_recovery.wire.value import Change, Fate, Value
from tests.unit.node import test_change_plans as plans
from tests.unit.node.test_scaling_advice import report

RUN = Run("taxi", 1)


def scaling_value(number: int = 1) -> Value:
    """A run whose stage `busy+areas` has limits 1..4."""
    value = plans.value(number)
    plan = stage_plan_of(value)
    stages = tuple(
        msgspec.structs.replace(stage, scales=True) if stage.name == "busy+areas" else stage for stage in plan.stages
    )
    body = msgspec.msgpack.encode(msgspec.structs.replace(plan, stages=stages))
    return msgspec.structs.replace(value, plan=msgspec.structs.replace(value.plan, body=body))


class World:
    """One coordinator's node, hosts that answer, and somebody who carries changes out, or does not."""

    def __init__(self, value: Value | None = None, held: tuple[str, ...] = ()) -> None:
        self.value, self.held, self.state = value or scaling_value(), held, RUNNING
        self.offered = 600.0
        self.asked: list[tuple[list[Wish], str]] = []
        self.answer: Callable[[list[Wish]], tuple[Change, ...]] = lambda wishes: (self.change(Fate.RUNNING),)
        self.fate, self.why = Fate.DONE, ""
        self.running: tuple[Change, ...] = ()
        self.timers = 0
        self.progress = SimpleNamespace(since=None)
        self.talks = Conversations(RandomStream(1, "talks"), Duration(400 * MILLISECOND), 64)
        self.talks.now = Instant(SECOND)
        self.leads = True
        coordinator = SimpleNamespace(
            is_over=False, progress=self.progress, proposer=SimpleNamespace(value=1), is_at_work=True
        )
        world = self

        class Led(SimpleNamespace):
            @property
            def value(self) -> Value:
                return world.value

            @property
            def is_at_work(self) -> bool:
                return world.leads

        del coordinator.is_at_work
        self.coordinators = {RUN: Led(**vars(coordinator))}
        desk = SimpleNamespace(
            config=NodeConfig(),
            talks=self.talks,
            emit=self._emit,
            known=lambda: tuple(plans.PI),
            now=self.talks.now,
        )
        self.one = SelfScaling(
            cast(Any, desk),
            cast(Any, SimpleNamespace(application=self._record)),
            cast(Any, SimpleNamespace(machine=SimpleNamespace(coordinators=self.coordinators))),
            self,
            self._loads,
        )

    def _emit(self, effect: object) -> None:
        self.timers += 1

    async def _record(self, name: str) -> tuple[int, Any]:
        return 1, SimpleNamespace(version=1, state=self.state, stopping=False, held=self.held)

    async def _loads(self, peers: list[Any], timeout: int) -> dict[Any, tuple[Any, Load]]:
        free = {
            peer.node: SimpleNamespace(is_draining=False, capacity=8, operators=8 - n) for n, peer in enumerate(peers)
        }
        return {peer.node: (peer, cast(Load, free[peer.node])) for peer in peers}

    def change(self, fate: Fate) -> Change:
        return Change("1", 2, 1, 3, "scale", "secant", fate, why=self.why)

    # ---- who carries changes out

    async def request(self, run: Run, wishes: Sequence[Wish], reason: str) -> tuple[Change, ...]:
        self.asked.append((list(wishes), reason))
        return self.answer(list(wishes))

    async def settled(self, run: Run, changes: Sequence[Change]) -> tuple[Change, ...]:
        return (self.change(self.fate),)

    def under_way(self, run: Run) -> tuple[Change, ...]:
        return self.running

    # ---- time

    def interval(self) -> None:
        """One goes by, and hosts answer."""
        self.one.on_timer()
        answers = self._reports()
        for effect in [one for one in self.talks.effects if isinstance(one, Send)]:
            number = cast(Any, effect.message).request
            self.talks.heard(effect.to, number, Reports(number, answers))
        self.talks.effects.clear()

    def _reports(self) -> dict[str, Any]:
        offered = round(self.offered * 5)
        number = len(self.value.plan.stage("1"))
        done = min(offered, 500 * number)
        found = {"0.0": report(offered, busy=0.1, offered=self.offered, edge=0, paced=True)}
        for index in range(number):
            waits = 3_000 if done < offered else 0
            found[f"1.{index}"] = report(done // number, busy=done / number / 500, waiting=waits, edge=1)
        found["2.0"] = report(done, busy=0.1, edge=2)
        found["3.0"] = report(done, busy=0.1)
        return found

    @property
    def told(self) -> dict[str, Any]:
        (row,) = self.one.standings(RUN)
        return row


def test_a_starving_stage_gets_instances_and_it_is_told_why() -> None:
    world = World()
    world.interval()

    ((wishes, reason),) = world.asked
    assert [(one.kind, one.stage, one.number) for one in wishes] == [("scale", "busy+areas", 4)]
    assert reason.startswith("secant: ")
    assert (world.told["stage"], world.told["wanted"]) == ("busy+areas", 4)
    assert world.told["f"] < 0.3
    assert world.one.scores() == (("taxi", "busy+areas", world.told["f"]),)
    assert world.one.instances() == (("taxi", "busy+areas", 1),)
    world.interval()
    assert len(world.asked) == 1, "the interval after a change does not count"
    assert world.timers == 2


def test_a_number_given_by_hand_holds() -> None:
    world = World(held=("busy+areas",))
    world.interval()
    assert world.asked == []
    assert world.told["why"].startswith("held at 1; ")


@pytest.mark.parametrize("what", ["recovery", "change"])
def test_nothing_is_asked_while_something_is_under_way_nor_in_the_interval_after(what: str) -> None:
    world = World()
    if what == "recovery":
        world.progress.since = Instant(1)
    else:
        world.running = (world.change(Fate.RUNNING),)
    world.interval()
    world.progress.since, world.running = None, ()
    world.interval()
    assert world.asked == []
    world.interval()
    assert len(world.asked) == 1


def test_no_room_is_asked_by_halves_and_then_said() -> None:
    world = World()

    def refuse(wishes: list[Wish]) -> tuple[Change, ...]:
        raise NoRoom("No node has room for one more instance of busy+areas: pi1 has room for 0.")

    world.answer = refuse
    world.interval()
    assert [wishes[0].number for wishes, _ in world.asked] == [4, 2]
    assert world.told["waits_for"].startswith("No node has room")
    row = ScalingStageRow("busy+areas", "operator", 1, [1, 4], True, ScalingFigures(), wanted=2, why="now")
    (shown,) = decided([row], world.one.standings(RUN), ())
    assert (shown.wanted, shown.waits_for, shown.is_held) == (4, world.told["waits_for"], False)


def test_what_was_rolled_back_is_said_and_not_repeated_at_once() -> None:
    world = World()
    world.fate, world.why = Fate.ROLLED_BACK, "pi2 was lost"
    for _ in range(3):
        world.interval()
    assert len(world.asked) == 1
    assert world.told["waits_for"] == "rolled-back: pi2 was lost"
    for _ in range(2):
        world.interval()
    assert len(world.asked) == 2


@pytest.mark.parametrize("why", ["stopped", "led elsewhere", "no limits", "refused"])
def test_what_does_not_run_here_is_left_alone(why: str) -> None:
    world = World(plans.value(1) if why == "no limits" else None)
    if why == "stopped":
        world.state = "stopped"
    elif why == "led elsewhere":
        world.leads = False
    elif why == "refused":

        def refuse(wishes: list[Wish]) -> tuple[Change, ...]:
            raise CommandRefused("taxi changes now")

        world.answer = refuse
    world.interval()
    world.interval()
    assert len(world.asked) == (why == "refused")


def test_who_stops_leading_forgets_what_it_remembered() -> None:
    world = World()
    world.interval()
    world.leads = False
    world.interval()
    assert world.one.standings(RUN) == ()


def test_a_slow_instance_goes_to_the_node_with_the_most_room() -> None:
    world = World(scaling_value(3))
    world.offered = 100.0
    normal = world._reports

    def uneven() -> dict[str, Any]:
        found = normal()
        return found | {
            "1.1": report(60, busy=1.0, waiting=50, edge=1),
            **{f"1.{index}": report(470, busy=0.2, edge=1) for index in (0, 2)},
        }

    world._reports = uneven  # type: ignore[method-assign]
    for _ in range(3):
        world.interval()
    wishes = [wish for asked, _ in world.asked for wish in asked if wish.kind == "move"]
    assert [(wish.stage, wish.node) for wish in wishes] == [("busy+areas.1", plans.PI[4].node)]


def test_states_say_what_is_missing() -> None:
    plan = stage_plan_of(scaling_value())
    (state,) = stage_states(plan, {}, ["busy+areas"])
    assert (state.measures, state.is_held) == (None, True)
    assert "less than 5 s" in state.void


def test_status_shows_the_score_and_nonsense_of_another_node_is_passed_over() -> None:
    rows = [StageRow("work", "operator", 2, []), StageRow("out", "sink", 1, [])]
    told = RecoveryIs(
        1, {}, {}, scaling=({"stage": "work", "wanted": 5, "f": 0.4}, {"stage": "out", "wanted": "x"}, {})
    )
    work, out = scored(rows, told, ["work"])
    assert (work.score, work.wanted, work.is_held) == (0.4, 5, True)
    assert (out.score, out.wanted, out.is_held) == (None, None, False)
    row = ScalingStageRow("work", "operator", 1, [1, 4], True, ScalingFigures(), wanted=2, why="now")
    assert decided([row], ({"stage": "work", "wanted": "many"}, {}), ()) == [row]
