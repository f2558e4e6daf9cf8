"""Hybrid: the ant system explores, then hill climbing refines its best placement.

Source: spec of placement §5.5, Ecker et al.
"""

from agiledart_placement.evaluation.movable_assignment import MovableAssignment
from agiledart_placement.local_search.ant_system import AntSettings, search
from agiledart_placement.local_search.hill_climbing import climb, start_of, terms_of
from agiledart_placement.local_search.move_table import is_better
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

ANT_ITERATIONS = 30
"""Iterations of the ants, where a time limit does not end them first: fewer than those of the ant system alone."""


class Hybrid:
    """Placement strategy that climbs from the best placement of an ant system, and from the present one."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        terms = terms_of(problem)
        ants, evaluated = search(problem, terms, request.time_is_up, AntSettings(iterations=ANT_ITERATIONS))
        best, trials = climb(ants, request.time_is_up)
        if not request.start and not request.time_is_up():
            other, more = climb(MovableAssignment(problem, terms, start_of(problem)), request.time_is_up)
            trials += more
            if is_better((other.excess, other.value()), (best.excess, best.value())):
                best = other
        return problem.placement(best.where, SearchReport(evaluations=evaluated + trials))
