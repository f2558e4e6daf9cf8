"""Exact optimum of MOPA's continuous problem: least Σ rate × distance, by re-weighted least squares.

Source: spec of placement §3, decision on the exact solver.
"""

from agiledart_placement.latency_space.embedding import positions_of
from agiledart_placement.latency_space.mapping import SpaceMapping
from agiledart_placement.latency_space.points import Point, distance
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

LEAST_SHARE = 1e-10
"""Smallest ε, as a share of the diameter."""
MOST_SOLVES = 400


def solve_exactly(graph: SpaceGraph) -> None:
    """Move all free operators to the optimum of Σ rate × √(distance² + ε²), with ever smaller ε."""
    points = [position.point for position in graph.positions]
    diameter = max((distance(points[0], point) for point in points), default=0.0) * 2
    if not graph.free or diameter <= 0:
        return
    epsilon = diameter
    for _ in range(MOST_SOLVES):
        after = _balanced(graph, epsilon)
        largest = max(distance(graph.at[unit], point) for unit, point in after.items())
        for unit, point in after.items():
            graph.at[unit] = point
        if largest < 1e-3 * epsilon:
            epsilon /= 2
            if epsilon < LEAST_SHARE * diameter:
                break


def _balanced(graph: SpaceGraph, epsilon: float) -> dict[int, Point]:
    """Return the points at which weighted springs are in balance; weight = rate ÷ √(distance² + ε²)."""
    row = {unit: number for number, unit in enumerate(graph.free)}
    count = len(row)
    matrix = [[0.0] * (count + 3) for _ in range(count)]
    for unit, number in row.items():
        line = matrix[number]
        for other, rate in graph.links[unit]:
            apart = distance(graph.at[unit], graph.at[other])
            weight = rate / (apart * apart + epsilon * epsilon) ** 0.5
            line[number] += weight
            if other in row:
                line[row[other]] -= weight
            else:
                for axis in range(3):
                    line[count + axis] += weight * graph.at[other][axis]
        # An operator that nothing holds stays where it is.
        anchor = 1e-12 * (line[number] or 1.0)
        line[number] += anchor
        for axis in range(3):
            line[count + axis] += anchor * graph.at[unit][axis]
    _eliminate(matrix, count)
    return {unit: (matrix[n][count], matrix[n][count + 1], matrix[n][count + 2]) for unit, n in row.items()}


def _eliminate(matrix: list[list[float]], count: int) -> None:
    """Solve the linear system in place; its columns behind `count` become the solutions (Gauss and Jordan, with pivots)."""
    for column in range(count):
        pivot = max(range(column, count), key=lambda line: abs(matrix[line][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        head = matrix[column]
        scale = head[column]
        for k in range(column, len(head)):
            head[k] /= scale
        for line in range(count):
            factor = matrix[line][column]
            if line != column and factor:
                own = matrix[line]
                for k in range(column, len(own)):
                    own[k] -= factor * head[k]


class MopaExact:
    """Placement strategy that maps the exact optimum of the latency space to nodes."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        graph = SpaceGraph(problem, positions_of(problem))
        solve_exactly(graph)
        mapping = SpaceMapping(graph)
        mapping.map_all()
        return problem.placement(mapping.where(), SearchReport(virtual=graph.virtual()))
