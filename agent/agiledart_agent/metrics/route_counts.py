"""Counts of the paths of an application's rows, from the reports of its executors on this node."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agiledart_executor.routes.switch_reasons import SWITCH_REASONS
from agiledart_node.wire.route_responses import RouteRow, routes_of

DIRECT: Final = "direct"
RELAYED: Final = "relayed"
LOCAL: Final = "local"
OTHER: Final = "other"


@dataclass
class RouteCounts:
    """Counters of all paths.

    Attributes:
        frames: by path; changes: by reason.
    """

    frames: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)

    def copy(self) -> "RouteCounts":
        """Return a copy to which a caller may add."""
        return RouteCounts(Counter(self.frames), Counter(self.changes))

    def add(self, report: Mapping[str, Any]) -> None:
        """Add the report of one instance."""
        for route in routes_of(dict(report)):
            for path in (DIRECT, RELAYED, LOCAL):
                self.frames[path] += route.frames.get(path, 0)
            for reason, count in route.moves.items():
                self.changes[reason if reason in SWITCH_REASONS else OTHER] += count


def success_by_path(reports: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean success by path, of the circuits that carry rows now."""
    rates_by_path: dict[str, list[float]] = {}
    for report in reports:
        for route in routes_of(dict(report)):
            for rate in _in_use(route):
                rates_by_path.setdefault(_path_of(route), []).append(rate)
    return {path: sum(rates) / len(rates) for path, rates in rates_by_path.items()}


def _path_of(route: RouteRow) -> str:
    return RELAYED if route.relay else LOCAL if route.kind == LOCAL else DIRECT


def _in_use(route: RouteRow) -> list[float]:
    return [circuit.success for circuit in route.circuits if circuit.in_use]
