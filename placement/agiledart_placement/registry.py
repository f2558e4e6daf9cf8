"""Placement strategies by name."""

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.baselines.along_path import AlongPath
from agiledart_placement.baselines.round_robin import RoundRobin
from agiledart_placement.problem.strategy import PlacementStrategy

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
