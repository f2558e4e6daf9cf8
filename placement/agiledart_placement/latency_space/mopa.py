"""MOPA: each operator moves to the Weber point of its neighbours; operators that meet move as one.

Source: spec of placement §3, Rizou et al. Departs: clusters of coinciding free operators, since single moves end at points that are
not optimal; a cluster is tested again each time.
"""

from math import inf

from agiledart_placement.latency_space.embedding import positions_of
from agiledart_placement.latency_space.mapping import SpaceMapping
from agiledart_placement.latency_space.points import NOTIFY_MS, Pull, distance, length, resultant
from agiledart_placement.latency_space.space_graph import SpaceGraph
from agiledart_placement.latency_space.weber import weber_point
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

CALM_MS = 1e-6
IDLE_ROUNDS, LEAST_SHARE_OF_GAIN = 3, 1e-9


class MopaRelaxation:
    """Virtual positions under MOPA.

    Args:
        graph: operators and links; its positions change.
        has_clusters: operators that coincide move as one.

    Attributes:
        messages: sent to free neighbours so far.
    """

    def __init__(self, graph: SpaceGraph, *, has_clusters: bool = True) -> None:
        self.graph, self._has_clusters = graph, has_clusters
        self._cluster: list[list[int]] = [[unit] for unit in range(len(graph.units))]
        """Members of the cluster of each operator; one list for all of them."""
        self.messages = 0

    def _external(self, members: list[int]) -> list[Pull]:
        graph = self.graph
        return [
            (graph.at[other], rate) for unit in members for other, rate in graph.links[unit] if other not in members
        ]

    def _leave_when_pulled(self, unit: int) -> None:
        """Take an operator out of its cluster when links from outside pull more than its links to the members."""
        members = self._cluster[unit]
        if len(members) < 2:
            return
        inner = sum(rate for other, rate in self.graph.links[unit] if other in members)
        outer = [(self.graph.at[other], rate) for other, rate in self.graph.links[unit] if other not in members]
        if length(resultant(self.graph.at[unit], outer)) > inner:
            members.remove(unit)
            self._cluster[unit] = [unit]

    def step(self, unit: int, calm_ms: float = CALM_MS) -> list[int]:
        """Move an operator, or its cluster; return the operators that moved by more than `calm_ms`."""
        graph = self.graph
        if self._has_clusters:
            self._leave_when_pulled(unit)
        members = self._cluster[unit]
        target, is_neighbour = weber_point(graph.at[unit], self._external(members))
        moved = distance(target, graph.at[unit])
        for member in members:
            graph.at[member] = target
            if moved >= NOTIFY_MS:
                self.messages += sum(other not in members for other in graph.free_neighbours(member))
        if self._has_clusters and is_neighbour:
            self._join(members, target)
        return list(members) if moved > calm_ms else []

    def _join(self, members: list[int], target: tuple[float, float, float]) -> None:
        graph = self.graph
        for member in list(members):
            for other, rate in graph.links[member]:
                if rate > 0 and graph.is_free[other] and other not in members and graph.at[other] == target:
                    for joined in self._cluster[other]:
                        members.append(joined)
                        self._cluster[joined] = members

    def relax_all(self) -> None:
        """Move operators round robin until their usage falls no more; for an initial placement.

        A cluster may form without any gain, and gain when it moves in a later round.
        """
        least, rounds_without_gain = inf, 0
        while rounds_without_gain < IDLE_ROUNDS:
            for unit in self.graph.free:
                self.step(unit)
            value = self.graph.usage()
            has_gain = value < least - LEAST_SHARE_OF_GAIN * abs(value)
            rounds_without_gain = 0 if has_gain else rounds_without_gain + 1
            least = min(least, value)


class Mopa:
    """Placement strategy of MOPA: relax with clusters, then map each operator to the nearest node with room."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        mapping, messages = mopa_mapping(problem)
        report = SearchReport(messages=messages, migrations=mapping.migrations, virtual=mapping.graph.virtual())
        return problem.placement(mapping.where(), report)


def mopa_mapping(problem: Problem) -> tuple[SpaceMapping, int]:
    """Return nodes by MOPA, and the messages of its relaxation."""
    graph = SpaceGraph(problem, positions_of(problem))
    relaxation = MopaRelaxation(graph)
    relaxation.relax_all()
    mapping = SpaceMapping(graph)
    mapping.map_all()
    return mapping, relaxation.messages
