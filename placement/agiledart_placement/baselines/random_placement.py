"""Baseline placement: each instance goes to a random candidate that has room."""

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.baselines.resource_use import ResourceUse
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest


class RandomPlacement:
    """Placement strategy that chooses at random."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        use, random = ResourceUse(problem), RandomStream(request.seed, "random_placement")
        # Those with the fewest candidates go first, so that others do not take their nodes.
        for instance in sorted(range(len(problem.instances)), key=lambda i: (len(problem.candidates[i]), i)):
            use.put(instance, random.choice(use.with_room(instance)))
        return problem.placement(use.where)
