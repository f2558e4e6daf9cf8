"""Placement strategies by name: the shipped ones, and those of users' packages."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.baselines.along_path import AlongPath
from agiledart_placement.baselines.r_storm import RStorm
from agiledart_placement.baselines.random_placement import RandomPlacement
from agiledart_placement.baselines.resource_aware import ResourceAware
from agiledart_placement.baselines.round_robin import RoundRobin
from agiledart_placement.baselines.single_node import SingleNode
from agiledart_placement.baselines.traffic_aware import TrafficAware
from agiledart_placement.integer_programme.odp import Odp
from agiledart_placement.latency_space.mopa import Mopa
from agiledart_placement.latency_space.mopa_exact import MopaExact
from agiledart_placement.latency_space.mopa_probe import MopaProbe
from agiledart_placement.latency_space.springs import Springs
from agiledart_placement.local_search.ant_system import AntSystem
from agiledart_placement.local_search.hill_climbing import HillClimbing
from agiledart_placement.local_search.hybrid import Hybrid
from agiledart_placement.problem.objective import unknown_name
from agiledart_placement.problem.strategy import PlacementStrategy

GROUP = "agiledart.placement"
"""Group of entry points; each is a callable without arguments that returns a strategy."""


@dataclass(frozen=True, slots=True)
class StrategyEntry:
    """A shipped strategy.

    Attributes:
        make: returns a new one.
        objective: its objective when the user names none.
        objectives: the only objectives that it follows; empty: all.
        is_live: agents may use it by the setting `placement`.
    """

    make: Callable[[], PlacementStrategy]
    objective: str = "score"
    objectives: tuple[str, ...] = ()
    is_live: bool = False


ENTRIES: dict[str, StrategyEntry] = {
    "along_path": StrategyEntry(AlongPath, is_live=True),
    "round_robin": StrategyEntry(RoundRobin, is_live=True),
    "random": StrategyEntry(RandomPlacement),
    "single_node": StrategyEntry(SingleNode),
    "r_storm": StrategyEntry(RStorm),
    "resource_aware": StrategyEntry(ResourceAware),
    "traffic_aware": StrategyEntry(TrafficAware),
    "hill_climbing": StrategyEntry(HillClimbing),
    "ant_system": StrategyEntry(AntSystem),
    "hybrid": StrategyEntry(Hybrid),
    "springs": StrategyEntry(Springs, "usage", ("usage",)),
    "mopa": StrategyEntry(Mopa, "usage", ("usage",)),
    "mopa_exact": StrategyEntry(MopaExact, "usage", ("usage",)),
    "mopa_probe": StrategyEntry(MopaProbe, "usage", ("usage",)),
    "odp": StrategyEntry(Odp, "response"),
}

STRATEGIES: tuple[str, ...] = tuple(name for name, entry in ENTRIES.items() if entry.is_live)
"""Names of the strategies of agents, the default first."""

ALL_STRATEGIES: tuple[str, ...] = tuple(ENTRIES)
"""Names of all shipped strategies."""


def strategy_named(name: str) -> PlacementStrategy:
    """Return the strategy of agents with this name. Raises ConfigurationError for an unknown name."""
    if name not in STRATEGIES:
        raise ConfigurationError(f"placement = {name!r}: unknown strategy; use one of {', '.join(STRATEGIES)}")
    return ENTRIES[name].make()


def offline_strategy(name: str) -> PlacementStrategy:
    """Return a new strategy with this name, also of a package. Slow for the latter: it searches installed packages.

    Raises:
        ConfigurationError: no strategy has this name, or it cannot be loaded.
    """
    if name in ENTRIES:
        return ENTRIES[name].make()
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        known = (*ENTRIES, *sorted(points))
        raise ConfigurationError(f"strategy {name!r}: {unknown_name(name, known)}")
    try:
        made: object = points[name].load()()
    except Exception as error:
        raise ConfigurationError(
            f"strategy {name!r} of {points[name].value}: it could not be loaded: {type(error).__name__}: {error}"
        ) from error
    return checked_strategy(made, name)


def checked_strategy(made: object, name: str) -> PlacementStrategy:
    """Return a user's object as a strategy. Raises ConfigurationError when it has no method `place`."""
    if not isinstance(made, PlacementStrategy):
        raise ConfigurationError(f"strategy {name!r}: it has no method place(request) or no attribute keeps_balance.")
    return made
