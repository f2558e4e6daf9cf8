"""Springs (SBON): links pull operators in proportion to rate and distance, so that Σ rate × distance² becomes least.

Source: spec of placement §4, Pietzuch et al. 2006.
"""

from agiledart_placement.latency_space.embedding import positions_of
from agiledart_placement.latency_space.mapping import SpaceMapping
from agiledart_placement.latency_space.points import Point, Pull, distance
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

SPRING_STEP = 0.1
"""δ: share of the way to the balance point that an operator moves at once."""
SPRING_TOLERANCE_MS = 0.1
MOST_ROUNDS = 10_000


def spring_step(at: Point, pulls: list[Pull], step: float = SPRING_STEP) -> Point:
    """Return the next point of an operator: a share of the way to the weighted mean of its neighbours."""
    total = sum(rate for _, rate in pulls)
    if total <= 0:
        return at
    x, y, z = (at[axis] + step * sum(r * (p[axis] - at[axis]) for p, r in pulls) / total for axis in range(3))
    return x, y, z


def relax(graph: SpaceGraph, step: float = SPRING_STEP, tolerance_ms: float = SPRING_TOLERANCE_MS) -> tuple[int, int]:
    """Let all operators move in turn until no step exceeds the tolerance; return messages to free neighbours, and rounds."""
    messages = 0
    for number in range(MOST_ROUNDS):
        is_calm = True
        for unit in graph.free:
            after = spring_step(graph.at[unit], graph.pulls(unit), step)
            if distance(after, graph.at[unit]) >= tolerance_ms:
                graph.at[unit] = after
                messages += len(graph.free_neighbours(unit))
                is_calm = False
        if is_calm:
            return messages, number
    return messages, MOST_ROUNDS


class Springs:
    """Placement strategy of SBON: relax springs, then map each operator to the nearest node with room."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        graph = SpaceGraph(problem, positions_of(problem))
        messages, _ = relax(graph)
        mapping = SpaceMapping(graph)
        mapping.map_all()
        report = SearchReport(messages=messages, migrations=mapping.migrations, virtual=graph.virtual())
        return problem.placement(mapping.where(), report)
