"""A coordinator node's work per interval: asks the hosts, decides, asks for changes, and is notified of their ends."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.machine import Send
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.autoscaler import Autoscaler
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.records.application import RUNNING
from agiledart_node.recovery.change_plans import InsufficientNodeCapacity, NodeCapacity, stage_plan_of
from agiledart_node.recovery.change_requests import plan_for
from agiledart_node.user_commands.scaling_advice import stage_states, with_decisions, with_scores
from agiledart_node.wire.application_responses import StageRow
from agiledart_node.wire.change_messages import ChangeRequest
from agiledart_node.wire.formation_messages import NodeLoad, Reports
from agiledart_node.wire.recovery_messages import RecoveryStatus
from agiledart_node.wire.scaling_responses import ScalingMeasurements, ScalingStageRow
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, RegisterValue, StageChange
from tests.unit.node import test_change_plans as plans
from tests.unit.node.test_scaling_advice import report

RUN = RunId("taxi", 1)


def scaling_value(number: int = 1) -> RegisterValue:
    """A run whose stage `busy+areas` has limits 1..4."""
    value = plans.value(number)
    plan = stage_plan_of(value)
    stages = tuple(
        msgspec.structs.replace(stage, scales=True) if stage.name == "busy+areas" else stage for stage in plan.stages
    )
    body = msgspec.msgpack.encode(msgspec.structs.replace(plan, stages=stages))
    return msgspec.structs.replace(value, plan=msgspec.structs.replace(value.plan, body=body))


class World:
    """One coordinator's node, hosts that answer, and a stub that carries changes out, or does not."""

    def __init__(self, value: RegisterValue | None = None, held: tuple[str, ...] = ()) -> None:
        self.value, self.held, self.state = value or scaling_value(), held, RUNNING
        self.offered = 600.0
        self.asked: list[tuple[list[ChangeRequest], str]] = []
        self.answer: Callable[[list[ChangeRequest]], tuple[StageChange, ...]] = lambda wishes: (
            self.change(ChangeOutcome.RUNNING),
        )
        self.fate, self.why = ChangeOutcome.DONE, ""
        self.running: tuple[StageChange, ...] = ()
        self.timers = 0
        self.progress = SimpleNamespace(since=None)
        self.requests = PendingRequests(RandomStream(1, "talks"), Duration(400 * MILLISECOND), 64)
        self.requests.now = Instant(SECOND)
        self.leads = True
        coordinator = SimpleNamespace(
            is_over=False, progress=self.progress, proposer=SimpleNamespace(value=1), is_coordinating=True
        )
        world = self

        class Led(SimpleNamespace):
            @property
            def value(self) -> RegisterValue:
                return world.value

            @property
            def is_coordinating(self) -> bool:
                return world.leads

        del coordinator.is_coordinating
        self.coordinators = {RUN: Led(**vars(coordinator))}
        context = SimpleNamespace(
            config=NodeConfig(),
            requests=self.requests,
            emit=self._emit,
            known=lambda: tuple(plans.PI),
            now=self.requests.now,
        )
        self.one = Autoscaler(
            cast(Any, context),
            cast(Any, SimpleNamespace(application=self._record)),
            cast(Any, SimpleNamespace(machine=SimpleNamespace(coordinators=self.coordinators))),
            self,
            self._loads,
        )

    def _emit(self, effect: object) -> None:
        self.timers += 1

    async def _record(self, name: str) -> tuple[int, Any]:
        return 1, SimpleNamespace(version=1, state=self.state, stopping=False, held=self.held)

    async def _loads(self, peers: list[Any], timeout: int) -> dict[Any, tuple[Any, NodeLoad]]:
        free = {
            peer.node: SimpleNamespace(is_draining=False, capacity=8, operators=8 - n, labels=(), round_trips=())
            for n, peer in enumerate(peers)
        }
        return {peer.node: (peer, cast(NodeLoad, free[peer.node])) for peer in peers}

    def change(self, fate: ChangeOutcome) -> StageChange:
        return StageChange("1", 2, 1, 3, "scale", "secant", fate, why=self.why)

    # ---- execution of changes

    async def request(self, run: RunId, wishes: Sequence[ChangeRequest], reason: str) -> tuple[StageChange, ...]:
        self.asked.append((list(wishes), reason))
        return self.answer(list(wishes))

    async def finalised(self, run: RunId, changes: Sequence[StageChange]) -> tuple[StageChange, ...]:
        return (self.change(self.fate),)

    def running_changes(self, run: RunId) -> tuple[StageChange, ...]:
        return self.running

    # ---- time

    def interval(self) -> None:
        """One goes by, and hosts answer."""
        self.one.on_timer()
        answers = self._reports()
        for effect in [one for one in self.requests.effects if isinstance(one, Send)]:
            number = cast(Any, effect.message).request
            self.requests.reply_received(effect.to, number, Reports(number, answers))
        self.requests.effects.clear()

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
        (row,) = self.one.statuses(RUN)
        return row


def test_a_starved_stage_gets_instances_and_the_reason_is_reported() -> None:
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


class FullLinkWorld(World):
    """A world in which rows wait before a stage whose link is full and whose cores are not."""

    def __init__(self, rows: int, busy: float) -> None:
        super().__init__()
        self._rows, self._busy = rows, busy

    def _reports(self) -> dict[str, Any]:
        circuit = {"relay": "", "in_use": True, "cost_ms": 9.0, "round_trip_ms": 9.0, "success": 1.0, "answers": 9,
                   "bytes_per_second": 250_000, "late": False, "use": 0.93, "waiting_bytes": 400_000}  # fmt: skip
        route = {"edge": 1, "target": 0, "to": "pi1", "paths": "auto", "relay": "", "since_ms": 1, "state": "works",
                 "circuits": [circuit], "changes": [], "moves": {}, "frames": {}}  # fmt: skip
        stage = report(self._rows, busy=self._busy, waiting=3_000, edge=1) | {"routes": [route]}
        return super()._reports() | {"1.0": stage}


@pytest.mark.parametrize(("rows", "busy", "instances"), [(1_500, 0.2, 2), (50, 0.001, 4)])
def test_a_full_link_gets_instances_behind_another_one_in_the_third_interval(
    rows: int, busy: float, instances: int
) -> None:
    world = FullLinkWorld(rows, busy)
    for number in range(2):
        world.interval()
        assert (world.asked, world.told["why"][:43]) == ([], "the link of busy+areas.0 to pi1 is full (us"), number
    world.interval()
    ((wishes, reason),) = world.asked
    (wish,) = wishes
    host = world.value.plan.stage("1")[0].host.node
    assert (wish.kind, wish.stage, wish.number, wish.node) == ("scale", "busy+areas", instances, host)
    assert "the link of busy+areas.0 to pi1 is full (use 93%" in reason
    capacities = [NodeCapacity(peer, 9) for peer in plans.PI]
    plan = plan_for(world.value, wishes, capacities, reason)
    assert plan is not None
    added = [each.host.node for each in plan.stage("1")[1:]]
    assert added
    assert host not in added


def test_a_parallelism_set_by_hand_is_kept() -> None:
    world = World(held=("busy+areas",))
    world.interval()
    assert world.asked == []
    assert world.told["why"].startswith("held at 1; ")


@pytest.mark.parametrize("what", ["recovery", "change"])
def test_no_change_is_requested_during_a_change_or_the_interval_after_it(what: str) -> None:
    world = World()
    if what == "recovery":
        world.progress.since = Instant(1)
    else:
        world.running = (world.change(ChangeOutcome.RUNNING),)
    world.interval()
    world.progress.since, world.running = None, ()
    world.interval()
    assert world.asked == []
    world.interval()
    assert len(world.asked) == 1


def test_a_request_beyond_capacity_is_halved_then_reported() -> None:
    world = World()

    def refuse(wishes: list[ChangeRequest]) -> tuple[StageChange, ...]:
        raise InsufficientNodeCapacity("No node has room for one more instance of busy+areas: pi1 has room for 0.")

    world.answer = refuse
    world.interval()
    assert [wishes[0].number for wishes, _ in world.asked] == [4, 2]
    assert world.told["waits_for"].startswith("No node has room")
    row = ScalingStageRow("busy+areas", "operator", 1, [1, 4], True, ScalingMeasurements(), wanted=2, why="now")
    (shown,) = with_decisions([row], world.one.statuses(RUN), ())
    assert (shown.wanted, shown.waits_for, shown.keeps_number) == (4, world.told["waits_for"], False)


def test_a_rolled_back_change_is_reported_and_not_repeated_at_once() -> None:
    world = World()
    world.fate, world.why = ChangeOutcome.ROLLED_BACK, "pi2 was lost"
    for _ in range(3):
        world.interval()
    assert len(world.asked) == 1
    assert world.told["waits_for"] == "rolled-back: pi2 was lost"
    for _ in range(2):
        world.interval()
    assert len(world.asked) == 2


@pytest.mark.parametrize("why", ["stopped", "led elsewhere", "no limits", "refused"])
def test_stages_of_runs_coordinated_elsewhere_are_not_scaled(why: str) -> None:
    world = World(plans.value(1) if why == "no limits" else None)
    if why == "stopped":
        world.state = "stopped"
    elif why == "led elsewhere":
        world.leads = False
    elif why == "refused":

        def refuse(wishes: list[ChangeRequest]) -> tuple[StageChange, ...]:
            raise CommandRefused("taxi changes now")

        world.answer = refuse
    world.interval()
    world.interval()
    assert len(world.asked) == (why == "refused")


def test_a_former_coordinator_discards_its_autoscaling_memory() -> None:
    world = World()
    world.interval()
    world.leads = False
    world.interval()
    assert world.one.statuses(RUN) == ()


def test_a_slow_instance_moves_to_the_node_with_the_most_capacity() -> None:
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


def test_autoscaler_states_name_the_missing_measurement() -> None:
    plan = stage_plan_of(scaling_value())
    (state,) = stage_states(plan, {}, ["busy+areas"])
    assert (state.measures, state.keeps_number) == (None, True)
    assert "less than 5 s" in state.void


def test_status_shows_the_score_and_skips_malformed_reports_of_other_nodes() -> None:
    rows = [StageRow("work", "operator", 2, []), StageRow("out", "sink", 1, [])]
    told = RecoveryStatus(
        1, {}, {}, scaling=({"stage": "work", "wanted": 5, "f": 0.4}, {"stage": "out", "wanted": "x"}, {})
    )
    work, out = with_scores(rows, told, ["work"])
    assert (work.score, work.wanted, work.keeps_number) == (0.4, 5, True)
    assert (out.score, out.wanted, out.keeps_number) == (None, None, False)
    row = ScalingStageRow("work", "operator", 1, [1, 4], True, ScalingMeasurements(), wanted=2, why="now")
    assert with_decisions([row], ({"stage": "work", "wanted": "many"}, {}), ()) == [row]
