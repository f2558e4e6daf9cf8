"""The baseline: free instances go round the nodes in the order of their ids, whatever the paths.

Source: spec of placement, the default scheduler of Storm that the papers compare with.
"""

from agiledart_placement.ledger import UNBALANCED, Ledger, no_capacity
from agiledart_placement.request import Placement, PlacementRequest


class RoundRobin:
    """Places instances on all nodes in turn."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """A place for every instance; see `PlacementStrategy.place`."""
        ledger = Ledger(request)
        ledger.put_pinned()
        nodes = sorted(request.hosts)
        turn = 0
        for stage in request.stages:
            for index in range(stage.parallelism if stage.pinned is None else 0):
                for step in range(len(nodes)):
                    node = nodes[(turn + step) % len(nodes)]
                    if ledger.has_capacity(node, stage, UNBALANCED):
                        ledger.put(stage, index, node)
                        turn += step + 1
                        break
                else:
                    raise no_capacity(stage, index, request)
        return ledger.placement()
