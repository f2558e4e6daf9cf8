"""R-Storm: tasks in breadth-first order, each to the node nearest to its demand and to a reference node.

Source: spec of placement §6, Peng et al. 2015. Departs: a rack is a zone; all resources but the processor are hard.
"""

from math import sqrt

from agiledart_placement.baselines.resource_use import PROCESSOR, ResourceUse, in_rounds
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest


class RStorm:
    """Placement strategy of R-Storm."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        use = ResourceUse(problem)
        if not problem.instances:
            return problem.placement(())
        largest = [max(row[n] for row in problem.capacity) or 1.0 for n in range(len(problem.resources))]
        reference = _reference(problem, use, largest)
        for instance in in_rounds(problem, breadth_first(problem)):
            nodes = use.with_room(instance, soft=(PROCESSOR,))

            def distance(node: int, instance: int = instance) -> float:
                total = problem.delay[reference][node] ** 2
                for number, unit in enumerate(largest):
                    total += ((problem.demand[instance][number] - use.available(node, number)) / unit) ** 2
                return sqrt(total)

            use.put(instance, min(nodes, key=lambda node: (distance(node), node)))
        return problem.placement(use.where)


def breadth_first(problem: Problem) -> list[int]:
    """Return the stages in breadth-first order from the sources; of a cycle without source, from its first stage."""
    below: dict[int, list[int]] = {stage: [] for stage in problem.stages}
    has_input = dict.fromkeys(b for a, b in problem.request.edges if a != b)
    for a, b in problem.request.edges:
        below[a].append(b)
    order: dict[int, bool] = {}
    starts = [stage for stage in problem.stages if stage not in has_input]
    for start in (starts, *([stage] for stage in problem.stages)):
        queue = [stage for stage in start if stage not in order]
        while queue:
            for stage in queue:
                order[stage] = True
            queue = list(dict.fromkeys(b for a in queue for b in below[a] if b not in order))
    return list(order)


def _reference(problem: Problem, use: ResourceUse, largest: list[float]) -> int:
    """Return the node with most resources in the rack with most resources."""

    def amount(node: int) -> float:
        return sum(use.available(node, number) / unit for number, unit in enumerate(largest))

    racks: dict[str, float] = {}
    zones = [state.zone for state in problem.request.hosts.values()]
    for node, zone in enumerate(zones):
        racks[zone] = racks.get(zone, 0.0) + amount(node)
    rack = max(racks, key=lambda zone: racks[zone])
    members = [node for node, zone in enumerate(zones) if zone == rack]
    return max(members, key=lambda node: (amount(node), -node))
