"""Evaluation of the moves of one run: gain of the objective, gain within the horizon, and cost of moving.

Source: spec of placement §10, "Moves".
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_node.live_placement.measured_topology import rates_of
from agiledart_node.live_placement.move_controller import HORIZON_S, MoveProposal
from agiledart_node.live_placement.placement_explanation import MovableUnit
from agiledart_node.live_placement.run_problem import Instances, RunProblem
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.evaluation.terms import minimised
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import SLOTS
from agiledart_recovery.wire.register_value import RegisterValue

FIRST_PAUSE_NS: Final = SECOND // 2
"""Pause of a change of which no run has measured one."""

_EPSILON: Final = 1e-9


@dataclass(frozen=True, slots=True)
class MoveEvaluator:
    """Evaluator of the moves of one run at one look.

    Attributes:
        problem: with averages of its figures.
        value: of the register, for earlier changes and saved states.
        objective: that a move improves.
    """

    problem: RunProblem
    value: RegisterValue
    objective: Objective

    def name_of(self, copy: tuple[int, int]) -> str:
        """Return the name of an instance as orders have it: `STAGE`, or `STAGE.N` where the stage has several."""
        stage = self.problem.plan.stages[copy[0]]
        return stage.name if stage.parallelism == 1 else f"{stage.name}.{copy[1]}"

    def best_of(self, unit: MovableUnit, left: Collection[NodeId] = ()) -> MoveProposal | None:
        """Return the best allowed move of a unit; None: there is none.

        Args:
            left: nodes that the unit left lately; others go before them, unless only one of these ends a broken constraint.
        """
        allowed = [other for other in unit.alternatives if not other.forbidden]
        if not allowed:
            return None
        best = min(allowed, key=lambda other: (min(0.0, other.excess_change), other.node in left, -other.gain))
        gained, cost = self._balance(best.gain, best.node, unit.instances)
        return MoveProposal(
            self.name_of(unit.instances[0]),
            tuple(self.problem.plan.stages[stage].name for stage, _ in unit.instances),
            best.node,
            self.problem.network.hosts[best.node].name,
            minimised(self.objective.name, best.value) + best.gain,
            best.gain,
            best.excess_change < -_EPSILON,
            gained,
            cost,
            origins=(unit.node,),
        )

    def plan(self, nodes: Instances, before: float, after: float) -> MoveProposal | None:
        """Return a whole plan as one proposal; None: it moves nothing, or something that stays, or does not fit.

        Args:
            nodes: of all instances.
            before, after: values of the objective now and with the plan, as users see them.
        """
        problem = self.problem
        movable = [stage.index for stage in problem.plan.stages if not problem.why_it_stays(stage.index)]
        moving = [copy for copy, node in sorted(nodes.items()) if node != problem.now[copy]]
        if not moving or any(stage not in movable for stage, _ in moving) or not self._fits(nodes, moving):
            return None
        name = self.objective.name
        gain = minimised(name, before) - minimised(name, after)
        gained, cost = self._balance(gain, nodes[moving[0]], moving)
        hosts = problem.network.hosts
        first, *others = ((self.name_of(copy), nodes[copy], hosts[nodes[copy]].name) for copy in moving)
        return MoveProposal(
            first[0],
            tuple(dict.fromkeys(problem.plan.stages[stage].name for stage, _ in moving)),
            first[1],
            first[2],
            minimised(name, before),
            gain,
            self._excess(nodes) < self._excess(problem.now) - _EPSILON,
            gained,
            cost,
            tuple(others),
            tuple(problem.now[copy] for copy in moving),
        )

    def _fits(self, nodes: Instances, moving: Collection[tuple[int, int]]) -> bool:
        """Return whether nodes have room for instances that come while those that leave are still there."""
        need = Counter(self.problem.now.values()) + Counter(nodes[copy] for copy in moving)
        hosts = {nodes[copy]: self.problem.network.hosts[nodes[copy]] for copy in moving}
        return all(
            state.used.get(SLOTS, 0.0) + need[node] <= state.resources.get(SLOTS, 0.0) for node, state in hosts.items()
        )

    def _excess(self, nodes: Instances) -> float:
        return evaluate(self.problem.request, nodes, self.objective).excess

    def _balance(
        self, gain: float, target: NodeId, instances: Collection[tuple[int, int]]
    ) -> tuple[float | None, float | None]:
        """Return what a move gains within the horizon, and what it costs, in one unit; None: only the share counts."""
        description = self.problem.measured.description
        if self.objective.name == "response":  # row-seconds
            rate = max(rates_of(description.loads, description.edges, stage) for stage, _ in instances)
            pauses = [change.changeover_pause_ns for change in self.value.changes if change.changeover_pause_ns]
            pause_s = (pauses[-1] if pauses else FIRST_PAUSE_NS) / SECOND
            return gain / 1_000 * rate * HORIZON_S, rate * pause_s**2 / 2
        if self.objective.name == "traffic":  # bytes
            return gain * HORIZON_S, float(self._state_bytes(instances))
        if self.objective.name == "usage":  # byte-seconds: the state crosses the link from the first instance's node
            now = self.problem.now[next(iter(instances))]
            delay_s = self.problem.network.view.link(now, target).delay_ms / 1_000 if now != target else 0.0
            return gain * HORIZON_S, self._state_bytes(instances) * delay_s
        return None, None

    def _state_bytes(self, instances: Collection[tuple[int, int]]) -> int:
        """Return the bytes of the saved states of some instances."""
        wanted = {(str(stage), index) for stage, index in instances}
        return sum(
            snapshot.length
            for saved in self.value.saved
            if (saved.instance.stage, saved.instance.index) in wanted
            for snapshot in saved.chain
        )
