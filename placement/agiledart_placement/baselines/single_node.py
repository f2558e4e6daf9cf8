"""Baseline placement: everything on one node, as far as candidates allow."""

from agiledart_placement.evaluation.movable_assignment import MovableAssignment
from agiledart_placement.evaluation.terms import metric_terms
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport


class SingleNode:
    """Placement strategy that puts all instances on the node that they overload least, then the one with the least response."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        terms = metric_terms(problem, "response")
        allowed = [frozenset(nodes) for nodes in problem.candidates]
        best: MovableAssignment | None = None
        for node in range(len(problem.nodes)):
            where = [node if node in own else nodes[0] for own, nodes in zip(allowed, problem.candidates, strict=True)]
            state = MovableAssignment(problem, terms, where)
            if best is None or (state.excess, state.value()) < (best.excess, best.value()):
                best = state
        assert best is not None
        return problem.placement(best.where, SearchReport(evaluations=len(problem.nodes)))
