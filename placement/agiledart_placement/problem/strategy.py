"""Contract of a placement strategy."""

from typing import Protocol, runtime_checkable

from agiledart_placement.problem.request import Placement, PlacementRequest


@runtime_checkable
class PlacementStrategy(Protocol):
    """Rule that chooses a node for each instance. Total and deterministic: the same request gives the same placement.

    Every instance gets exactly one node, and pinned stages get theirs. No node gets more instances than its capacity, except
    pinned instances, which have no alternative. A node that drains or lacks a tag that the stage needs gets none.

    Attributes:
        keeps_balance: the strategy gives no node more than `max_ops_balanced`, unless it says so in `relaxed`. A node that holds
            more when the deployment arrives must then refuse it.
    """

    keeps_balance: bool

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance.

        Raises:
            OperationFailed: the nodes lack capacity; the message names the stage.
        """
        ...
