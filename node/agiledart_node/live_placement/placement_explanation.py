"""Explanation of a placement: its objective now, and the change that each other host would bring. Pure.

A change is that of one unit; everything else of the placement stays.

Source: spec of placement §10, `explain placement`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agiledart_kernel.node_id import NodeId
from agiledart_node.forming.network_of_loads import UNKNOWN_MS
from agiledart_placement.evaluation.evaluator import Violation, evaluate, violations
from agiledart_placement.evaluation.movable_assignment import MovableAssignment
from agiledart_placement.evaluation.terms import metric_terms, minimised
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

ALTERNATIVES: Final = 3
"""Other hosts that are shown for each unit."""

_EPSILON: Final = 1e-9

RuleOf = Callable[[tuple[int, int], NodeId], str]
"""(stage, index), node → the rule that forbids this instance there, in words."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another host of a unit.

    Attributes:
        node: its id.
        value: of the objective with the unit there; `change`: against now; below 0: better.
        forbidden: constraints that would be broken there and are not now, in words; empty: it may move.
        gain: by how much the objective falls, in minimised form; excess_change: of the excess over all constraints.
    """

    node: NodeId
    value: float
    change: float
    forbidden: tuple[str, ...] = ()
    gain: float = 0.0
    excess_change: float = 0.0


@dataclass(frozen=True, slots=True)
class MovableUnit:
    """Instances that can only move together, most often one.

    Attributes:
        instances: (stage, index) of each.
        node: where they run now.
        alternatives: best ones first.
    """

    instances: tuple[tuple[int, int], ...]
    node: NodeId
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class PlacementExplanation:
    """Judgement of the placement now.

    Attributes:
        value: of the objective, as users see it.
        metrics: metric → value; only metrics whose figures are known.
        violations: broken constraints, in words.
        units: instances that may move.
    """

    value: float
    metrics: Mapping[str, float]
    violations: tuple[str, ...]
    units: tuple[MovableUnit, ...]


def explained(
    request: PlacementRequest,
    now: Mapping[tuple[int, int], NodeId],
    movable: Sequence[int],
    objective: Objective,
    rule_of: RuleOf,
) -> PlacementExplanation:
    """Return the judgement of a placement, and what other hosts would change.

    Args:
        now: (stage, index) → node.
        movable: numbers of stages that may move.

    Raises:
        ConfigurationError: an instance runs on a node that the request lacks, or a pair of nodes has no delay.
    """
    problem = Problem(request)
    evaluation = evaluate(problem, now, objective)
    metrics = evaluation.metrics
    shown = {
        "response": metrics.response_ms,
        "traffic": metrics.traffic,
        "usage": metrics.usage,
        "energy": metrics.energy,
        "nodes": float(metrics.nodes_used),
        "score": metrics.score,
    }
    state = MovableAssignment(problem, metric_terms(problem, objective.name), problem.where_of(now))
    free = frozenset(movable)
    units = [unit for unit in problem.groups if all(problem.instances[instance][0] in free for instance in unit)]
    return PlacementExplanation(
        evaluation.value,
        shown,
        tuple(_texts(problem, evaluation.violations, rule_of)),
        tuple(_unit(problem, state, unit, objective.name, rule_of) for unit in units),
    )


def _texts(problem: Problem, broken: Sequence[Violation], rule_of: RuleOf) -> list[str]:
    """Return broken constraints in words; a node that an instance may not use has the rule that says so."""
    ids = dict(zip(problem.names, problem.nodes, strict=True))
    instances = dict(zip(problem.labels, problem.instances, strict=True))
    texts = []
    for violation in broken:
        if violation["kind"] == "candidate":
            operator, node = str(violation["operator"]), str(violation["node"])
            texts.append(f"{operator}: {rule_of(instances[operator], ids[node])}")
        else:
            texts.append(violation_text(violation))
    return texts


def _unit(problem: Problem, state: MovableAssignment, unit: Sequence[int], metric: str, rule_of: RuleOf) -> MovableUnit:
    """Return a unit with its best other hosts; at least one of them is allowed, if any is."""
    before, excess = state.value(), state.excess
    # A rule about the unit itself that is broken here and there is broken there: it never counts as known.
    own = frozenset(problem.labels[instance] for instance in unit)
    others = [v for v in violations(problem, state.where, state) if not own & {v.get("operator"), v.get("other")}]
    known = _texts(problem, others, rule_of)
    old = [state.where[instance] for instance in unit]
    trials: list[tuple[float, float, int]] = []
    for node in range(len(problem.nodes)):
        if node != old[0] and not _is_unknown(problem, state, unit, node):
            _move(state, unit, [node] * len(unit))
            trials.append((state.value(), state.excess - excess, node))
    _move(state, unit, old)
    ranked = sorted(trials, key=lambda trial: (trial[0], problem.names[trial[2]]))

    def new_violations(node: int) -> tuple[str, ...]:
        """Return the constraints that would be broken there and are not now; others may end at the same time."""
        _move(state, unit, [node] * len(unit))
        texts = _texts(problem, violations(problem, state.where, state), rule_of)
        _move(state, unit, old)
        return tuple(text for text in texts if text not in known)

    # The best allowed host is always shown: first one that ends a broken constraint, then by the objective.
    hopeful = sorted((t for t in ranked if t[1] <= _EPSILON), key=lambda trial: (min(0.0, trial[1]), trial[0]))
    allowed = next((trial for trial in hopeful if not new_violations(trial[2])), None)
    best = ranked[:ALTERNATIVES]
    if allowed is not None and allowed not in best:
        best = [*best[: ALTERNATIVES - 1], allowed]
    alternatives = [
        Alternative(
            problem.nodes[node],
            minimised(metric, value),
            minimised(metric, value - before),
            new_violations(node),
            before - value,
            more,
        )
        for value, more, node in best
    ]
    return MovableUnit(
        tuple(problem.instances[instance] for instance in unit), problem.nodes[old[0]], tuple(alternatives)
    )


def _is_unknown(problem: Problem, state: MovableAssignment, unit: Sequence[int], node: int) -> bool:
    """Return whether rows would cross a link of unknown delay with a unit on a node."""
    inside = frozenset(unit)
    for instance in unit:
        for number in problem.touching[instance]:
            edge = problem.edges[number]
            other = edge.below if edge.above == instance else edge.above
            if other not in inside and problem.delay[node][state.where[other]] >= UNKNOWN_MS:
                return True
    return False


def _move(state: MovableAssignment, unit: Sequence[int], nodes: Sequence[int]) -> None:
    for instance, node in zip(unit, nodes, strict=True):
        state.move(instance, node)


def violation_text(violation: Violation) -> str:
    """Return a broken constraint in words."""
    kind = violation["kind"]
    if kind == "capacity":
        where = f"{violation['node']} has" if violation.get("node") else "no node has"
        used, limit = violation["used"], violation["limit"]
        return f"{where} {limit:g} {violation['resource']}, and {used:g} are needed"
    if kind == "bandwidth":
        used, limit = violation["used"], violation["limit"]
        return f"the link {violation['from']} → {violation['to']} carries {limit:g} bytes/s, and {used:g} are needed"
    if kind == "apart":
        return f"{violation['operator']} shares no {violation['shared']} with {violation['other']}"
    if kind == "together":
        return f"{violation['operator']} runs together with {violation['other']}"
    return f"{violation.get('node')} runs several applications"
