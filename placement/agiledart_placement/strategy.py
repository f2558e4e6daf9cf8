"""Contract of a placement strategy, and the table of strategies by name."""

from typing import Protocol

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.along_path import AlongPath
from agiledart_placement.request import Placement, PlacementRequest
from agiledart_placement.round_robin import RoundRobin


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


_STRATEGIES: dict[str, type[AlongPath] | type[RoundRobin]] = {"along_path": AlongPath, "round_robin": RoundRobin}

STRATEGIES: tuple[str, ...] = tuple(_STRATEGIES)
"""Names of all strategies, the default first."""


def strategy_named(name: str) -> PlacementStrategy:
    """Return the strategy with this name. Raises ConfigurationError for an unknown name."""
    try:
        return _STRATEGIES[name]()
    except KeyError:
        raise ConfigurationError(
            f"placement = {name!r}: unknown strategy; use one of {', '.join(STRATEGIES)}"
        ) from None
