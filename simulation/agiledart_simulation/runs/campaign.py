"""Campaign of many seeds of one scenario, and their sums.

A campaign of 100 runs or more must have reached every kind of fault that its scenario has: a fault that never happens tests
nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agiledart_simulation.runs.admission import CrowdRun, MomentRun
from agiledart_simulation.runs.application_run import ApplicationRun
from agiledart_simulation.runs.leases_run import REACHED_BY_LEASES, LeasesRun
from agiledart_simulation.runs.placing_run import PlacingRun
from agiledart_simulation.runs.recovery_run import REACHED, REACHED_BY_LOSSES, REACHED_BY_SCALING, RecoveryRun
from agiledart_simulation.runs.ring_run import RingRun
from agiledart_simulation.runs.routes_run import RoutesRun
from agiledart_simulation.runs.run_report import RunReport
from agiledart_simulation.runs.scenario import NEVER_BROKEN, PERMANENT, SCENARIOS, Scenario, draw
from agiledart_simulation.world.latency_models import Latency

_ENOUGH_RUNS = 100
_RUNS: Mapping[
    str, type[RingRun] | type[ApplicationRun] | type[RecoveryRun] | type[RoutesRun] | type[PlacingRun] | type[LeasesRun]
] = {
    "applications": ApplicationRun,
    "recovery": RecoveryRun,
    "losses": RecoveryRun,
    "scaling": RecoveryRun,
    "routes": RoutesRun,
    "placing": PlacingRun,
    "moments": MomentRun,
    "crowds": CrowdRun,
    "leases": LeasesRun,
}
"""Scenarios with a run of their own; `RingRun` plays the others."""

_MESSAGE_FAULTS = ("loss", "duplicate", "reorder", "burst", "spike", "cut", "held", "queue")


def play(scenario: Scenario, latency: Latency | None = None) -> RunReport:
    """Play one run of any scenario."""
    return _RUNS.get(scenario.name, RingRun)(scenario, latency=latency).run()


@dataclass
class Campaign:
    """Runs, and their sums.

    Args:
        name: of the scenario.
        most_nodes: in one run.
        fixed: options that are not drawn.
        latency: makes the places of nodes anew for each run.
    """

    name: str = "swarm"
    most_nodes: int = 25
    fixed: Mapping[str, Any] = field(default_factory=dict)
    latency: Callable[[], Latency] | None = None
    runs: list[tuple[Scenario, RunReport]] = field(default_factory=list)

    def run(self, seeds: Iterable[int], goes_on: Callable[[Scenario, RunReport], bool]) -> None:
        """Run seeds one after the other for as long as `goes_on` says so."""
        for seed in seeds:
            scenario = draw(seed, self.most_nodes, self.name, self.fixed)
            report = play(scenario, self.latency() if self.latency is not None else None)
            self.runs.append((scenario, report))
            if not goes_on(scenario, report):
                return

    @property
    def failed(self) -> list[tuple[Scenario, RunReport]]:
        """Return the runs with a violation."""
        return [run for run in self.runs if run[1].violations]

    @property
    def reached(self) -> dict[str, int]:
        """Return how often each kind of thing happened in all runs."""
        total: dict[str, int] = {}
        for _, report in self.runs:
            for what, count in report.reached:
                total[what] = total.get(what, 0) + count
        return dict(sorted(total.items()))

    @property
    def unreached(self) -> list[str]:
        """Return the kinds of faults that a large campaign should have reached and did not."""
        if len(self.runs) < _ENOUGH_RUNS or self.fixed:
            return []
        reached = self.reached
        wanted = [*SCENARIOS[self.name][1]]
        if self.name == "recovery":
            wanted += REACHED
        elif self.name == "losses":
            wanted += REACHED_BY_LOSSES
        elif self.name == "scaling":
            wanted += REACHED_BY_SCALING
        elif self.name == "leases":
            wanted += REACHED_BY_LEASES
        elif self.name not in NEVER_BROKEN:
            wanted += [f"permanent-{kind}" for kind in PERMANENT if kind != "none"]
        if self.name == "swarm":
            wanted += [f"message-{what}" for what in _MESSAGE_FAULTS]
        return [kind for kind in wanted if not reached.get(kind)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        quiet = sorted(report.quiet_ns for _, report in self.runs) or [0]
        return {
            "scenario": self.name,
            "runs": len(self.runs),
            "failed": len(self.failed),
            "unreached": self.unreached,
            "events": sum(report.events for _, report in self.runs),
            "messages": sum(report.messages for _, report in self.runs),
            "virtual_hours": round(sum(report.virtual_s for _, report in self.runs) / 3_600, 3),
            "lookups": sum(report.lookups for _, report in self.runs),
            "lookups_delivered_again": sum(report.duplicates for _, report in self.runs),
            "unowned_ms_max": max((report.unowned_ms for _, report in self.runs), default=0),
            "false_alarms": sum(report.false_alarms for _, report in self.runs),
            "quiet_s_p50": quiet[len(quiet) // 2] / 1e9,
            "quiet_s_max": quiet[-1] / 1e9,
            "faults": self.reached,
            "fixed": dict(self.fixed),
            "drawn": [field.name for field in fields(Scenario)][2:],
            "seeds": [
                {"options": scenario.options, **report.to_dict(), "command": scenario.command}
                if report.violations or len(self.runs) <= 3
                else {
                    "seed": scenario.seed,
                    "drawn": list(scenario.options.values())[2:],
                    "events": report.events,
                    "digest": report.digest,
                }
                for scenario, report in self.runs
            ],
        }
