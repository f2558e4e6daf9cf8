"""The contract of a placement strategy, and the strategies by name."""

from typing import Protocol

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.along_path import AlongPath
from agiledart_placement.request import Placement, PlacementRequest
from agiledart_placement.round_robin import RoundRobin


class PlacementStrategy(Protocol):
    """Decides where instances run. Total and deterministic: the same request gives the same placement.

    Every instance gets exactly one node; pinned stages get theirs; no node gets more than its capacity (pinned
    instances excepted, which have no other place), none that drains or lacks what a stage needs gets anything.

    Attributes:
        keeps_balance: it gives no node more than `max_ops_balanced`, unless it says so in `relaxed`; a node that holds more by
            the time it is asked is then to refuse.
    """

    keeps_balance: bool

    def place(self, request: PlacementRequest) -> Placement:
        """A place for every instance.

        Raises:
            OperationFailed: there is no room; the message names the stage.
        """
        ...


_STRATEGIES: dict[str, type[AlongPath] | type[RoundRobin]] = {"along_path": AlongPath, "round_robin": RoundRobin}

STRATEGIES: tuple[str, ...] = tuple(_STRATEGIES)
"""Names of all strategies, the default first."""


def strategy_named(name: str) -> PlacementStrategy:
    """The strategy of this name. Raises ConfigurationError for an unknown one."""
    try:
        return _STRATEGIES[name]()
    except KeyError:
        raise ConfigurationError(f"placement = {name!r}: no such strategy; there are {', '.join(STRATEGIES)}") from None
