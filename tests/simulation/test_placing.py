"""Re-placement in the simulator: invariants over seeds, every kind of event reached, and planted bugs that its checks must find."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_node.autoscaling.replacement_service import ReplacementService
from agiledart_node.forming import network_of_loads
from agiledart_node.live_placement import (
    measured_topology,
    move_controller,
    placement_explanation,
    run_problem,
    wish_proposals,
)
from agiledart_node.live_placement.move_controller import MOPA, ON, MoveController
from agiledart_node.live_placement.move_evaluator import MoveEvaluator
from agiledart_node.recovery import change_plans
from agiledart_node.recovery.change_plans import stage_plan_of
from agiledart_node.recovery.change_requests import ChangeRequests
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import ChangeOutcome, Plan
from agiledart_simulation.runs.campaign import play
from agiledart_simulation.runs.placed_run import PlacedRun
from agiledart_simulation.runs.placing_run import PlacingRun
from agiledart_simulation.runs.scenario import OF_PLACING, draw

SEEDS = range(1, 51)
FATES = (
    "move",
    "done",
    "let-go",
    "rolled-back",
    "target-dead",
    "user-refused",
    "scale-refused",
    "scale-waits",
    "planned",
)
MOPA_FATES = ("wish",)
PLANNER_FATES = ("planner-dead", "planner-late", "planner-lies")


def test_moves_keep_all_invariants_and_reach_every_kind_of_event() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        report = play(draw(seed, 25, "placing"))
        assert report.violations == (), f"agiledart simulate placing --seed {seed}"
        reached.update(dict(report.reached))
    assert [kind for kind in (*OF_PLACING, *FATES, *MOPA_FATES, *PLANNER_FATES) if not reached[kind]] == []


def test_the_same_seed_gives_the_same_run() -> None:
    scenario = draw(7, 25, "placing")
    assert play(scenario).digest == play(scenario).digest


@pytest.mark.parametrize("seed", [12, 32, 40])
def test_hosts_wish_their_instances_to_the_nodes_of_least_usage(seed: int) -> None:
    """No node sees the whole; the usage afterwards is that of the best of all placements that rules allow."""
    world = PlacingRun(replace(draw(seed, 25, "placing"), steps=0))
    assert world.moves == MOPA
    world.ends = 1_200 * SECOND
    assert world.run().violations == ()
    assert world.reached["move"] > 0
    for run in world.runs.values():
        plan = stage_plan_of(run.value)
        hosts = [run.value.plan.stage(str(stage.index))[0].host.node for stage in plan.stages]

        def usage(nodes: Sequence[NodeId], run: PlacedRun = run, plan: StagePlan = plan) -> float:
            links = ((run.rates[edge.source], nodes[edge.source], nodes[edge.target]) for edge in plan.edges)
            return sum(rate * world.mopa_hosts.delay_ms(a, b) for rate, a, b in links)

        allowed = [
            [
                node.peer.node
                for node in world.nodes
                if not stage.rules.broken_by(node.peer.name, node.peer.zone, node.labels)
            ]
            for stage in plan.stages[1:-1]
        ]
        best = min(usage([hosts[0], *middle, hosts[-1]]) for middle in product(*allowed))
        assert usage(hosts) <= best * 1.01, run.id.app


class WatchedPlacing(PlacingRun):
    """A run without faults whose moves all take place; it keeps who moved when."""

    def __init__(self, seed: int) -> None:
        self.moved: list[tuple[int, RunId, str]] = []
        super().__init__(replace(draw(seed, 25, "placing"), steps=0, kinds=("slow",)))

    def _change_ends(self, placed: PlacedRun, plan: Plan, fate: ChangeOutcome) -> None:
        if placed.changing is not None and placed.changing[0] is plan:
            self.moved += [(self.now, placed.id, change.stage) for change in plan.changes]
        super()._change_ends(placed, plan, ChangeOutcome.DONE)

    def most_moves(self, since: int) -> int:
        """Return the most moves that one stage made within ten minutes."""
        moves = [move for move in self.moved if move[0] >= since]
        within = [
            sum(stage == other and 0 <= at - first < 600 * SECOND for at, *other in moves) for first, *stage in moves
        ]
        return max(within, default=0)


@pytest.mark.parametrize("seed", [1, 3, 6, 11, 14])
def test_a_link_that_flaps_every_20_seconds_moves_a_step_at_most_twice_in_ten_minutes(seed: int) -> None:
    world = WatchedPlacing(seed)
    assert world.moves == ON
    world.run_until(900 * SECOND)
    numbers = {node.peer.node: number for number, node in enumerate(world.nodes)}
    hosts = [numbers[run.value.plan.stage(str(n))[0].host.node] for run in world.runs.values() for n in (0, 1)]
    pair = max(hosts[:2]), min(hosts[:2])
    assert pair[0] != pair[1], "a link can flap between source and step"
    fast = world.delays[pair]

    def flap() -> None:
        is_fast = world.delays[pair] == fast
        world.delays[pair] = world._measured[pair] = 10 * fast if is_fast else fast
        world.at(world.now + 20 * SECOND, flap)

    flap()
    world.run_until(2_400 * SECOND)
    assert not world.violations
    assert world.most_moves(900 * SECOND) <= 2


@pytest.mark.parametrize("seed", range(1, 9))
def test_runs_that_want_one_good_node_settle_within_ten_minutes_and_no_node_holds_more_than_it_can(seed: int) -> None:
    """All links are slow but those of one node, which has room for some of the runs' steps."""
    world = WatchedPlacing(seed)
    for pair in world.delays:
        world.delays[pair] = world._measured[pair] = 2.0 if 0 in pair else 40.0
    world.run_until(1_500 * SECOND)
    assert not world.violations
    assert all(world._held(node) <= node.capacity for node in world.nodes)
    assert world.moved
    assert world.most_moves(0) <= 2
    assert world.most_moves(600 * SECOND) == 0


def acts_on_stale_capacities(patch: pytest.MonkeyPatch) -> None:
    """Nodes are asked once, and never again before a change."""
    ask, known = ChangeRequests._capacities, dict[Any, Any]()

    async def once(self: ChangeRequests, value: Any, wishes: Any) -> Any:
        if (self, value.run) not in known:
            known[self, value.run] = await ask(self, value, [])
        return known[self, value.run]

    patch.setattr(ChangeRequests, "_capacities", once)


def ignores_pins(patch: pytest.MonkeyPatch) -> None:
    """Sources and sinks count as movable."""
    patch.setattr(run_problem, "stays", lambda stage: "")
    patch.setattr(change_plans, "_refuse_pinned", lambda stage: None)


def moves_during_recovery(patch: pytest.MonkeyPatch) -> None:
    """A run that is brought back may move."""
    patch.setattr(ReplacementService, "_obstacle", lambda self, run, coordinator: "")


def counts_a_void_measure_as_zero(patch: pytest.MonkeyPatch) -> None:
    """A pair that no node measured has no delay."""

    patch.setattr(network_of_loads, "UNKNOWN_MS", 0.0)
    patch.setattr(placement_explanation, "UNKNOWN_MS", float("inf"))
    patch.setattr(run_problem.RunProblem, "unknown_links", ())


def forgets_to_wait(patch: pytest.MonkeyPatch) -> None:
    """A move that failed delays nothing."""

    def finished(self: MoveController, *, is_done: bool) -> None:
        self._moving, self._seen = None, {}

    patch.setattr(MoveController, "finished", finished)


def forgets_earlier_moves_with_its_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator begins as if the run had never moved."""
    patch.setattr(MoveController, "resume", lambda self, now, earlier: None)


def moves_without_rest(patch: pytest.MonkeyPatch) -> None:
    """Moves follow each other at once."""
    patch.setattr(move_controller, "REST_NS", 0)


def ignores_users(patch: pytest.MonkeyPatch) -> None:
    """A stage that a user has moved moves again."""
    decide = MoveController.decide

    def unbound(self: MoveController, now: int, figures: Any, proposals: Any, obstacle: str, held: Any) -> Any:
        return decide(self, now, figures, proposals, obstacle)

    patch.setattr(MoveController, "decide", unbound)


def ignores_rules(patch: pytest.MonkeyPatch) -> None:
    """Rules bind the submission alone."""
    patch.setattr(measured_topology, "ruled_demand", lambda demand, plan, nodes: demand)
    patch.setattr(change_plans, "broken_rule", lambda *_: "")


def trades_one_broken_constraint_for_another(patch: pytest.MonkeyPatch) -> None:
    """A proposal counts as allowed where the sum of broken constraints falls; the change's own checks are off."""
    best = MoveEvaluator.best_of

    def any_host(self: MoveEvaluator, unit: Any, left: Any = ()) -> Any:
        cleared = tuple(replace(other, forbidden=()) for other in unit.alternatives)
        return best(self, replace(unit, alternatives=cleared), left)

    patch.setattr(MoveEvaluator, "best_of", any_host)
    patch.setattr(change_plans, "broken_rule", lambda *_: "")


def takes_wishes_unweighed(patch: pytest.MonkeyPatch) -> None:
    """The coordinator trusts that hosts wish only for what rules allow; the change's own checks are off."""

    def unbroken(*args: Any) -> Any:
        return replace(evaluate(*args), violations=())

    patch.setattr(wish_proposals, "evaluate", unbroken)
    patch.setattr(change_plans, "broken_rule", lambda *_: "")


@pytest.mark.parametrize(
    ("plant", "complaint", "known"),
    [
        (acts_on_stale_capacities, "M7 or M9", 8),
        (ignores_pins, "M5", 1),
        (moves_during_recovery, "M4", 1),
        (counts_a_void_measure_as_zero, "M8", 2),
        (forgets_to_wait, "M6", 4),
        (moves_without_rest, "M3", 1),
        (forgets_earlier_moves_with_its_coordinator, "M3 or M6", 3),
        (ignores_users, "M5", 1),
        (ignores_rules, "M1", 1),
        (trades_one_broken_constraint_for_another, "M1", 1),
        (takes_wishes_unweighed, "M1", 4),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], complaint: str, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seed that found it before is looked at first."""
    plant(monkeypatch)
    for seed in dict.fromkeys((known, *range(1, 101))):
        violations = play(draw(seed, 25, "placing")).violations
        if violations:
            assert violations[0][:2] in complaint, violations
            return
    pytest.fail(f"{plant.__doc__} No seed of 100 found it.")
