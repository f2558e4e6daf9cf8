"""Operators and links in the latency space: pins, positions, and rates to neighbours.

An operator here is a unit: one instance, or all instances that must share a node.
"""

from agiledart_placement.latency_space.points import Point, Pull, usage
from agiledart_placement.problem.network_view import SpacePosition
from agiledart_placement.problem.problem import Problem


class SpaceGraph:
    """Virtual positions of the operators of a problem.

    Attributes:
        units: instances of each operator.
        candidates: nodes of each; an operator with one node is pinned.
        free: operators that may move, in topological order.
        at: position of each.
        links: by operator, (neighbour, rate in bytes/s); one entry a neighbour.
    """

    def __init__(self, problem: Problem, positions: list[SpacePosition]) -> None:
        self.problem, self.positions = problem, positions
        self.units = problem.groups
        unit_of = {instance: number for number, unit in enumerate(self.units) for instance in unit}
        self.candidates = [
            tuple(node for node in problem.candidates[unit[0]] if all(node in problem.candidates[i] for i in unit))
            or problem.candidates[unit[0]]
            for unit in self.units
        ]
        self.is_free = [len(nodes) > 1 for nodes in self.candidates]
        order = dict.fromkeys(unit_of[instance] for instance in problem.order)
        self.free = [unit for unit in order if self.is_free[unit]]
        rates: list[dict[int, float]] = [{} for _ in self.units]
        for edge in problem.edges:
            a, b = unit_of[edge.above], unit_of[edge.below]
            if a != b:
                rates[a][b] = rates[a].get(b, 0.0) + edge.volume
                rates[b][a] = rates[b].get(a, 0.0) + edge.volume
        self.links = [sorted(neighbours.items()) for neighbours in rates]
        self.at = self._first_positions()

    def _first_positions(self) -> list[Point]:
        """Return positions at the start: pinned operators at their nodes, others in the middle of these, or of all nodes."""
        pinned = [self.positions[nodes[0]].point for nodes in self.candidates if len(nodes) == 1]
        known = pinned or [position.point for position in self.positions]
        x, y, z = (sum(point[axis] for point in known) / len(known) for axis in range(3))
        return [self.positions[nodes[0]].point if len(nodes) == 1 else (x, y, z) for nodes in self.candidates]

    def pulls(self, unit: int) -> list[Pull]:
        """Return places and rates of the neighbours of an operator."""
        return [(self.at[other], rate) for other, rate in self.links[unit]]

    def usage(self) -> float:
        """Return Σ rate × distance over all links."""
        return sum(usage(self.at[unit], self.pulls(unit)) for unit in range(len(self.units))) / 2

    def free_neighbours(self, unit: int) -> list[int]:
        """Return the neighbours that may move."""
        return [other for other, _ in self.links[unit] if self.is_free[other]]

    def virtual(self) -> dict[tuple[int, int], Point]:
        """Return the positions of free operators by instance."""
        return {self.problem.instances[i]: self.at[unit] for unit in self.free for i in self.units[unit]}
