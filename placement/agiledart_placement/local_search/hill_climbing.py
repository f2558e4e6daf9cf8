"""Hill climbing: move one operator, swap two, or empty a node, as long as that improves the placement.

Source: spec of placement §5.3, Ecker et al. Departs: placements are compared by the amount of their excess, not by the number of
overloaded nodes, which leaves the search on plateaus; each step takes the best of all moves.
"""

from collections.abc import Callable, Iterator

from agiledart_placement.evaluation.movable_assignment import MovableAssignment, over
from agiledart_placement.evaluation.terms import Terms, objective_terms
from agiledart_placement.local_search.move_table import Moves, MoveTable, common_candidates, is_better
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

Clock = Callable[[], bool]


def terms_of(problem: Problem) -> Terms:
    """Return the terms of the request's objective, the score by default; rates of 0 make response time the aim."""
    from agiledart_placement.evaluation.evaluator import given_range

    objective = problem.request.objective or Objective("score")
    if objective.name in ("traffic", "usage", "energy") and not any(edge.volume for edge in problem.edges):
        objective = Objective("response")
    return objective_terms(
        problem, objective, {name: given_range(name, span) for name, span in objective.ranges.items()}
    )


def greedy_start(problem: Problem) -> list[int]:
    """Return a first placement: in the order of operators, the first node with room, else the one with most memory free.

    Processors may be overloaded here; the first resource that is no processor counts as memory.
    """
    firm = [n for n, name in enumerate(problem.resources) if name != "cpu"]
    use = [list(used) for used in problem.used]
    where = [-1] * len(problem.instances)
    owner: dict[int, int] = {}
    exclusive = problem.request.is_exclusive
    groups = {unit[0]: unit for unit in problem.groups}
    first_of = {instance: unit[0] for unit in problem.groups for instance in unit}
    for instance in problem.order:
        unit = groups[first_of[instance]]
        if where[unit[0]] >= 0:
            continue
        demand = [sum(problem.demand[i][n] for i in unit) for n in range(len(problem.resources))]
        application = problem.stage_of[instance].application
        nodes = common_candidates(problem, unit)
        free = [node for node in nodes if not exclusive or owner.get(node, application) == application] or list(nodes)

        def room(node: int, demand: list[float] = demand) -> bool:
            return not any(over(use[node][n] + demand[n], problem.capacity[node][n], problem.limit_share) for n in firm)

        chosen = next((node for node in free if room(node)), None)
        if chosen is None:
            n = firm[0] if firm else 0
            chosen = max(
                free, key=lambda node: (problem.capacity[node][n] - use[node][n]) if problem.resources else 0.0
            )
        owner.setdefault(chosen, application)
        for member in unit:
            where[member] = chosen
        for n, amount in enumerate(demand):
            use[chosen][n] += amount
    return where


def start_of(problem: Problem) -> list[int]:
    """Return the present placement of the request, or a greedy one."""
    return problem.where_of(problem.request.start) if problem.request.start else greedy_start(problem)


def climb(state: MovableAssignment, time_is_up: Clock, *, takes_first: bool = False) -> tuple[MovableAssignment, int]:
    """Return the local optimum that steepest descent reaches from a placement, and the number of trials."""
    near = MoveTable(state)
    while not time_is_up():
        here = near.state.excess, near.state.value()
        best: Moves | None = None
        limit = here
        for moves in _moves(near):
            outcome = near.trial(moves, limit)
            if outcome is not None:
                best, limit = moves, outcome
                if takes_first:
                    break
            if near.evaluations % 64 == 0 and time_is_up():
                break
        if best is None or not is_better(limit, here):
            break
        near.accept(best)
    return near.state, near.evaluations


def _moves(near: MoveTable) -> Iterator[Moves]:
    units = range(len(near.units))
    at = [near.node(unit) for unit in units]
    allowed = [frozenset(nodes) for nodes in near.candidates]
    for unit in units:
        for node in near.candidates[unit]:
            if node != at[unit]:
                yield ((unit, node),)
    for a in units:
        for b in range(a):
            if at[a] != at[b] and at[b] in allowed[a] and at[a] in allowed[b]:
                yield ((a, at[b]), (b, at[a]))
    held: dict[int, list[int]] = {}
    for unit in units:
        held.setdefault(at[unit], []).append(unit)
    for old, there in sorted(held.items()):
        if len(there) < 2:
            continue
        free = [unit for unit in there if len(allowed[unit]) > 1]
        for node in range(len(near.state.problem.nodes)):
            movable = tuple((unit, node) for unit in free if node in allowed[unit])
            if node != old and len(movable) > 1:
                yield movable


class HillClimbing:
    """Placement strategy that improves a placement step by step.

    Args:
        takes_first: take the first improvement instead of the best.
    """

    keeps_balance = False

    def __init__(self, *, takes_first: bool = False) -> None:
        self._takes_first = takes_first

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        start = MovableAssignment(problem, terms_of(problem), start_of(problem))
        best, evaluations = climb(start, request.time_is_up, takes_first=self._takes_first)
        return problem.placement(best.where, SearchReport(evaluations=evaluations))
