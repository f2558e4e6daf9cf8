"""Baseline placement: assign free instances to the nodes in turn, in the order of node ids; paths are ignored.

Source: spec of placement, the default scheduler of Storm that the papers compare with.
"""

from agiledart_placement.baselines.ledger import UNBALANCED, Ledger, no_capacity
from agiledart_placement.problem.request import Placement, PlacementRequest


class RoundRobin:
    """Placement strategy that assigns instances to all nodes in turn."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        ledger = Ledger(request)
        ledger.put_pinned()
        nodes = sorted(request.hosts)
        turn = 0
        for stage in request.stages:
            for index in range(stage.parallelism if stage.pinned is None else 0):
                # Full nodes are skipped; `turn` moves past the node that was chosen.
                for step in range(len(nodes)):
                    node = nodes[(turn + step) % len(nodes)]
                    if ledger.has_capacity(node, stage, UNBALANCED):
                        ledger.put(stage, index, node)
                        turn += step + 1
                        break
                else:
                    raise no_capacity(stage, index, request)
        return ledger.placement()
