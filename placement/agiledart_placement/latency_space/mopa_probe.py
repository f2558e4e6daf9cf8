"""MOPA that measures: each operator compares real delays from nodes near its virtual position, and takes the best.

Source: spec of placement §3, decision `mopa_probe`; beyond the papers.
"""

from agiledart_placement.evaluation.movable_assignment import MovableAssignment
from agiledart_placement.evaluation.terms import metric_terms
from agiledart_placement.latency_space.mapping import SpaceMapping
from agiledart_placement.latency_space.mopa import mopa_mapping
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

PROBED = 16
"""q: nodes nearest to the virtual position that an operator measures."""
PROBE_ROUNDS = 4


class MopaProbe:
    """Placement strategy that corrects MOPA's mapping by measured delays.

    Args:
        probed: nodes near the virtual position that an operator measures, beside the hosts of its neighbours and of the pinned.
    """

    keeps_balance = False

    def __init__(self, probed: int = PROBED) -> None:
        self._probed = probed

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        mapping, messages = mopa_mapping(problem)
        probes = improve(mapping, self._probed)
        where = mapping.where()
        if request.start is not None:
            where = _better_of(problem, where, self._from_start(mapping))
        report = SearchReport(
            evaluations=probes, messages=messages, migrations=mapping.migrations, virtual=mapping.graph.virtual()
        )
        return problem.placement(where, report)

    def _from_start(self, mapping: SpaceMapping) -> list[int]:
        """Return the present placement, improved by measuring from there."""
        graph = mapping.graph
        assert graph.problem.request.start is not None
        start = graph.problem.where_of(graph.problem.request.start)
        other = SpaceMapping(graph)
        for unit in graph.free:
            other.put(unit, start[graph.units[unit][0]])
        improve(other, self._probed)
        return _better_of(graph.problem, other.where(), start)


def _better_of(problem: Problem, a: list[int], b: list[int]) -> list[int]:
    terms = metric_terms(problem, "usage")
    states = [MovableAssignment(problem, terms, where) for where in (a, b)]
    return min(states, key=lambda state: (state.excess, state.value())).where


def improve(mapping: SpaceMapping, probed: int) -> int:
    """Move operators to nodes of less measured usage until none gains, at most four rounds; return the nodes compared."""
    graph, compared = mapping.graph, 0
    pinned = dict.fromkeys(nodes[0] for nodes in graph.candidates if len(nodes) == 1)
    for _ in range(PROBE_ROUNDS):
        has_moved = False
        for unit in graph.free:
            allowed = frozenset(graph.candidates[unit])
            near = mapping.nearest(unit, graph.at[unit])[:probed]
            hosts = [mapping.node[other] for other, _ in graph.links[unit]]
            nodes = [node for node in dict.fromkeys((*near, *hosts, *pinned)) if node in allowed]
            nodes = [node for node in nodes if mapping.has_room(unit, node)]
            compared += len(nodes)
            present = measured_usage(mapping, unit, mapping.node[unit])
            best = min(nodes, key=lambda node: (measured_usage(mapping, unit, node), node), default=mapping.node[unit])
            if measured_usage(mapping, unit, best) < present - 1e-12:
                mapping.put(unit, best)
                has_moved = True
        if not has_moved:
            break
    return compared


def measured_usage(mapping: SpaceMapping, unit: int, node: int) -> float:
    """Return the usage of an operator's links if it ran on a node, by the delays of the network."""
    graph, problem = mapping.graph, mapping.graph.problem
    members = graph.units[unit]
    where = {instance: mapping.node[u] for u, unit_members in enumerate(graph.units) for instance in unit_members}
    total = 0.0
    for instance in members:
        for number in problem.touching[instance]:
            edge = problem.edges[number]
            a = node if edge.above in members else where[edge.above]
            b = node if edge.below in members else where[edge.below]
            if a != b:
                total += edge.volume * problem.delay[a][b]
    return total
