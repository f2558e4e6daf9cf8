"""Placement strategies by name: the shipped ones, and those of users' packages."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.problem.objective import SINGLE, unknown_name
from agiledart_placement.problem.strategy import PlacementStrategy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "agiledart.placement"
"""Group of entry points; each is a callable without arguments that returns a strategy."""


@dataclass(frozen=True, slots=True)
class StrategyEntry:
    """A shipped strategy.

    Attributes:
        place: its module in this package, and its class.
        objective: its objective when the user names none.
        objectives: the only objectives that it follows; empty: all.
        is_live: agents may use it by the setting `placement`.
    """

    place: str
    objective: str = "score"
    objectives: tuple[str, ...] = ()
    is_live: bool = False

    def make(self) -> PlacementStrategy:
        """Return a new one. The first use imports its module: agents need few of them, and late."""
        module, _, name = self.place.partition(":")
        made = vars(import_module(f"{__package__}.{module}"))[name]()
        assert isinstance(made, PlacementStrategy)
        return made


ENTRIES: dict[str, StrategyEntry] = {
    "along_path": StrategyEntry("baselines.along_path:AlongPath", is_live=True),
    "round_robin": StrategyEntry("baselines.round_robin:RoundRobin", is_live=True),
    "random": StrategyEntry("baselines.random_placement:RandomPlacement"),
    "single_node": StrategyEntry("baselines.single_node:SingleNode"),
    "r_storm": StrategyEntry("baselines.r_storm:RStorm"),
    "resource_aware": StrategyEntry("baselines.resource_aware:ResourceAware"),
    "traffic_aware": StrategyEntry("baselines.traffic_aware:TrafficAware"),
    "hill_climbing": StrategyEntry("local_search.hill_climbing:HillClimbing"),
    "ant_system": StrategyEntry("local_search.ant_system:AntSystem"),
    "hybrid": StrategyEntry("local_search.hybrid:Hybrid"),
    "springs": StrategyEntry("latency_space.springs:Springs", "usage", ("usage",)),
    "mopa": StrategyEntry("latency_space.mopa:Mopa", "usage", ("usage",)),
    "mopa_exact": StrategyEntry("latency_space.mopa_exact:MopaExact", "usage", ("usage",)),
    "mopa_probe": StrategyEntry("latency_space.mopa_probe:MopaProbe", "usage", ("usage",)),
    "odp": StrategyEntry("integer_programme.odp:Odp", "response"),
}

STRATEGIES: tuple[str, ...] = tuple(name for name, entry in ENTRIES.items() if entry.is_live)
"""Names of the strategies of agents, the default first."""

ALL_STRATEGIES: tuple[str, ...] = tuple(ENTRIES)
"""Names of all shipped strategies."""


class PlacementChoice(NamedTuple):
    """Strategy and objective that a user chose; empty: the default of the strategy, or of the agent."""

    strategy: str = ""
    objective: str = ""

    @property
    def is_inline(self) -> bool:
        """Return whether agents run the strategy themselves, because it takes less than 5 ms."""
        return not self.strategy or (self.strategy in ENTRIES and ENTRIES[self.strategy].is_live)

    @property
    def text(self) -> str:
        """The choice as users write it; an objective counts for a planner's strategies only."""
        return self.strategy if self.is_inline or not self.objective else f"{self.strategy}:{self.objective}"

    def or_else(self, strategy: str, objective: str) -> "PlacementChoice":
        """Return the choice with these defaults; a strategy that follows one objective only keeps that one."""
        chosen = self.strategy or strategy
        only = ENTRIES[chosen].objectives if chosen in ENTRIES else ()
        return PlacementChoice(chosen, self.objective or (only[0] if only else objective))


def parse_choice(
    text: str, objectives: tuple[str, ...] = SINGLE, *, allows_any_package: bool = False
) -> PlacementChoice:
    """Return `STRATEGY` or `STRATEGY:OBJECTIVE` as a choice. Slow for a name that is not shipped: it searches installed packages.

    Args:
        objectives: those that may be named.
        allows_any_package: take names that are not shipped without a search: their package may be on another machine.

    Raises:
        ConfigurationError: there is no such strategy or objective, or the strategy does not follow it. The text names those there
            are.
    """
    strategy, _, objective = text.partition(":")
    is_known = not strategy or strategy in ENTRIES or allows_any_package
    if not is_known and strategy not in (others := package_strategies()):
        raise ConfigurationError(f"placement {strategy!r}: {unknown_name(strategy, (*ALL_STRATEGIES, *others))}")
    if objective and objective not in objectives:
        raise ConfigurationError(f"placement {text!r}: objective {objective!r}: {unknown_name(objective, objectives)}")
    only = ENTRIES[strategy].objectives if strategy in ENTRIES else ()
    if objective and only and objective not in only:
        raise ConfigurationError(f"placement {text!r}: {strategy} follows {', '.join(only)} only.")
    return PlacementChoice(strategy, objective)


def strategy_named(name: str) -> PlacementStrategy:
    """Return the strategy of agents with this name. Raises ConfigurationError for an unknown name."""
    if name not in STRATEGIES:
        raise ConfigurationError(f"placement = {name!r}: unknown strategy; use one of {', '.join(STRATEGIES)}")
    return ENTRIES[name].make()


def _package_points() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points  # an idle agent needs none

    return {point.name: point for point in entry_points(group=GROUP)}


def package_strategies() -> tuple[str, ...]:
    """Return the names of strategies of packages that are installed here. Slow."""
    return tuple(sorted(_package_points()))


def offline_strategy(name: str) -> PlacementStrategy:
    """Return a new strategy with this name, also of a package. Slow for the latter: it searches installed packages.

    Raises:
        ConfigurationError: no strategy has this name, or it cannot be loaded.
    """
    if name in ENTRIES:
        return ENTRIES[name].make()
    points = _package_points()
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
