"""Resource-aware scheduler of Storm since 1.1: fill the nodes that already run the topology, then the freest ones.

Source: spec of placement §6. Departs: a rack is a zone.
"""

from agiledart_placement.baselines.resource_use import ResourceUse, in_rounds
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest


class ResourceAware:
    """Placement strategy of Storm's resource-aware scheduler."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        use = ResourceUse(problem)
        near: dict[int, dict[int, bool]] = {stage: {} for stage in problem.stages}
        for a, b in request.edges:
            if a != b:
                near[a][b] = near[b][a] = True
        order = sorted(problem.stages, key=lambda stage: (-len(near[stage]), problem.stages[stage].name))
        totals = [sum(row[n] for row in problem.capacity) or 1.0 for n in range(len(problem.resources))]
        zones = [state.zone for state in request.hosts.values()]
        racks = {zone: [node for node, other in enumerate(zones) if other == zone] for zone in dict.fromkeys(zones)}

        def rank(nodes: list[int], first: int) -> tuple[float, float, float, int]:
            """Return instances there, effective and mean share of free resources, all to be maximised, and a number for ties."""
            shares = [sum(use.available(node, n) for node in nodes) / total for n, total in enumerate(totals)] or [0.0]
            return -sum(use.instances[node] for node in nodes), -min(shares), -sum(shares) / len(shares), first

        for instance in in_rounds(problem, order):
            allowed = frozenset(use.with_room(instance))
            chosen = next(
                node
                for _, rack in sorted(racks.items(), key=lambda item: rank(item[1], item[1][0]))
                for node in sorted(rack, key=lambda node: rank([node], node))
                if node in allowed
            )
            use.put(instance, chosen)
        return problem.placement(use.where)
