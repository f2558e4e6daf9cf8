"""Baseline placement: assign free instances, by their names, to the nodes in turn; paths are ignored.

Nodes follow each other by name where a file names them, else by id.

Source: spec of placement, the default scheduler of Storm that the papers compare with.
"""

from agiledart_placement.baselines.ledger import UNBALANCED, Ledger, no_capacity
from agiledart_placement.problem.natural_order import natural_order
from agiledart_placement.problem.request import Placement, PlacementRequest


class RoundRobin:
    """Placement strategy that assigns instances to all nodes in turn."""

    keeps_balance = False

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        ledger = Ledger(request)
        ledger.put_pinned()
        nodes = sorted(request.hosts, key=lambda node: (natural_order(request.hosts[node].name), node))
        turn = 0
        for stage in sorted(request.stages, key=lambda stage: natural_order(stage.name)):
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
