"""Mapping of virtual positions to nodes: to the nearest one with room for the operator.

Source: spec of placement §3, algorithm 1 of Rizou et al.; the present node counts as having room. Departs: an operator that shares
the point of a pinned one has the other nodes ranked by the delays that the pinned one's node measured. The paper ranks them by
coordinates, whose errors decide the result when that node is full.
"""

from agiledart_placement.evaluation.movable_assignment import over, shares
from agiledart_placement.latency_space.points import Point, distance
from agiledart_placement.latency_space.space_graph import SpaceGraph

SAME_POINT_MS = 1e-6
"""Points that are nearer to each other than this are one."""

Alarm = list[int]
"""Operators for which no node had room."""


class SpaceMapping:
    """Nodes of the operators of a graph, with what they use.

    Attributes:
        node: by operator; -1: not yet mapped.
        alarms: operators that stayed, or went to the nearest node, because none had room.
        migrations: changes of an operator's node.
    """

    def __init__(self, graph: SpaceGraph) -> None:
        self.graph, problem = graph, graph.problem
        self.use = [list(used) for used in problem.used]
        self.node = [-1] * len(graph.units)
        self._owners: list[dict[int, int]] = [{} for _ in problem.nodes]
        self.alarms: Alarm = []
        self.migrations = 0
        self._pinned: dict[Point, int] = {}
        """Node of the pinned operators at a point."""
        for unit, nodes in enumerate(graph.candidates):
            if len(nodes) == 1:
                self.put(unit, nodes[0])
                self._pinned[graph.at[unit]] = nodes[0]

    def put(self, unit: int, node: int) -> None:
        """Move an operator to a node."""
        problem, old = self.graph.problem, self.node[unit]
        for place, sign in ((old, -1), (node, 1)):
            if place < 0:
                continue
            for instance in self.graph.units[unit]:
                for number, amount in enumerate(problem.demand[instance]):
                    self.use[place][number] += sign * amount
            application = problem.stage_of[self.graph.units[unit][0]].application
            owners = self._owners[place]
            owners[application] = owners.get(application, 0) + sign
            if not owners[application]:
                del owners[application]
        self.migrations += old not in (-1, node)
        self.node[unit] = node

    def has_room(self, unit: int, node: int) -> bool:
        """Return whether an operator may run on a node; the node where it is has room for it."""
        if self.node[unit] == node:
            return True
        problem, members = self.graph.problem, self.graph.units[unit]
        if problem.request.is_exclusive and set(self._owners[node]) - {problem.stage_of[members[0]].application}:
            return False
        for number, taken in enumerate(self.use[node]):
            amount = sum(problem.demand[instance][number] for instance in members)
            if amount and over(taken + amount, problem.capacity[node][number], problem.limit_share):
                return False
        return not any(
            shares(problem, kind, place, node)
            for instance in members
            for kind, other in problem.apart[instance]
            for place in (self._node_of_instance(other),)
            if place >= 0
        )

    def _node_of_instance(self, instance: int) -> int:
        return next(self.node[u] for u, unit in enumerate(self.graph.units) if instance in unit)

    def nearest(self, unit: int, point: Point) -> list[int]:
        """Return the candidates of an operator, nearest to a point first; a node's height adds to its distance.

        From the point of a pinned operator, distances are the delays of its node.
        """
        positions = self.graph.positions
        here = next((node for other, node in self._pinned.items() if distance(other, point) < SAME_POINT_MS), None)
        if here is not None:
            delay = self.graph.problem.delay
            return sorted(self.graph.candidates[unit], key=lambda node: (delay[here][node] + delay[node][here], node))
        return sorted(
            self.graph.candidates[unit],
            key=lambda node: (distance(positions[node].point, point) + positions[node].height_ms, node),
        )

    def map(self, unit: int) -> None:
        """Put an operator on the nearest node with room; without any it stays, and an alarm says so."""
        candidates = self.nearest(unit, self.graph.at[unit])
        chosen = next((node for node in candidates if self.has_room(unit, node)), None)
        if chosen is None:
            self.alarms.append(unit)
            chosen = self.node[unit] if self.node[unit] >= 0 else candidates[0]
        if chosen != self.node[unit]:
            self.put(unit, chosen)

    def map_all(self) -> None:
        """Map all free operators, those that need most first, since others fit into smaller rooms."""
        problem = self.graph.problem
        totals = [max(row[n] for row in problem.capacity) or 1.0 for n in range(len(problem.resources))]

        def need(unit: int) -> float:
            return sum(problem.demand[i][n] / total for i in self.graph.units[unit] for n, total in enumerate(totals))

        for unit in sorted(self.graph.free, key=lambda unit: -need(unit)):
            self.map(unit)

    def where(self) -> list[int]:
        """Return the node of each instance."""
        where = [0] * len(self.graph.problem.instances)
        for unit, members in enumerate(self.graph.units):
            for instance in members:
                where[instance] = self.node[unit]
        return where
