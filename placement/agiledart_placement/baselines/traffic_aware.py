"""T-Storm: executors with most traffic first, each to the node that adds least traffic between nodes.

Source: spec of placement §6, Xu et al. 2014.
"""

from math import ceil

from agiledart_placement.baselines.resource_use import PROCESSOR, ResourceUse
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest

CONSOLIDATION = 1.5
"""γ: a node takes at most γ times its even share of the executors."""


class TrafficAware:
    """Placement strategy of T-Storm.

    Args:
        consolidation: γ, at least 1.
    """

    keeps_balance = False

    def __init__(self, consolidation: float = CONSOLIDATION) -> None:
        self._consolidation = consolidation

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        use = ResourceUse(problem)
        count = len(problem.instances)
        most = ceil(self._consolidation * count / max(1, len(problem.nodes)))
        total = [sum(problem.edges[e].volume for e in touching) for touching in problem.touching]
        load = problem.resources.index(PROCESSOR) if PROCESSOR in problem.resources else 0
        for instance in sorted(range(count), key=lambda i: (-total[i], i)):
            nodes = use.with_room(instance)
            nodes = [node for node in nodes if use.instances[node] < most] or nodes

            def rank(node: int, instance: int = instance) -> tuple[float, float, int]:
                held = use.use[node][load] if problem.resources else float(use.instances[node])
                return _added_traffic(problem, use, instance, node), held, node

            use.put(instance, min(nodes, key=rank))
        return problem.placement(use.where)


def _added_traffic(problem: Problem, use: ResourceUse, instance: int, node: int) -> float:
    added = 0.0
    for number in problem.touching[instance]:
        edge = problem.edges[number]
        other = use.where[edge.below if edge.above == instance else edge.above]
        if other not in (-1, node):
            added += edge.volume
    return added
