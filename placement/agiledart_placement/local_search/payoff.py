"""Ranges of metrics for weighted sums: the pay-off table of the single objectives.

Source: spec of placement §2, decision (c).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.local_search.hybrid import Hybrid
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest

Solver = Callable[[PlacementRequest], Placement]


def payoff_ranges(
    problem: Problem, metrics: Sequence[str], weighted: Sequence[str], solve: Solver | None = None
) -> dict[str, tuple[float, float]]:
    """Return least and greatest value of each metric, as users see it, over the placements that are best in one metric.

    Args:
        problem: the problem.
        metrics: those that need a range.
        weighted: all metrics of the weighted sum.
        solve: optimiser of one objective; None: the hybrid search.
    """
    values = []
    for name in weighted:
        request = replace(problem.request, objective=Objective(name))
        placement = solve(request) if solve is not None else Hybrid().place(request)
        if placement.nodes:
            values.append(evaluate(problem, placement.nodes, Objective(name)).metrics)
    ranges = {}
    for name in metrics:
        column = [metrics.value_of(name) for metrics in values]
        if column and min(column) < max(column):
            ranges[name] = (min(column), max(column))
    return ranges
