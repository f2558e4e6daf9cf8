"""Experiment `schedulers`: the number of schedulers for growing numbers of applications, and the hops to find one.

AgileDART, figure 10c: one more scheduler for every 50 applications, spread evenly over the zones, most found within 4 hops. The two
published rules disagree for few applications per zone (overlay specification §9). Scope `zone` has at least one scheduler in every
zone that has an application; scope `region` has ⌈a/50⌉ in all. The submission rate limits the time that gossip has to spread, so
the experiment runs both extremes: one submission a second, and all at once.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.ring_lookups import quantile
from agiledart_kernel.instants import SECOND
from agiledart_simulation.runs.scheduling_run import RunFigures, RunOptions, run_growing

PER_SCHEDULER = 50
PAPER = (10_000, 20, (250, 500, 750, 1_000))
SMALL = (200, 4, (40, 120))
"""Number of nodes, number of zones, and the numbers of applications."""


ALL_AT_ONCE, ONE_A_SECOND = "all at once", "one a second"


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each scope, rate and number of applications."""
    nodes, zones, usual = PAPER if settings.is_paper else SMALL
    counts = settings.sizes_or(usual)
    rows: list[Row] = []
    for scope in ("zone", "region"):
        for count in counts:
            settings.progress(f"{count:,} applications at once, scope {scope}")
            options = RunOptions(settings.seed, nodes, zones, count, scope)
            rows.extend(_rows(options, ALL_AT_ONCE, (count,), settings))
        options = RunOptions(settings.seed, nodes, zones, counts[-1], scope, SECOND)
        rows.extend(_rows(options, ONE_A_SECOND, counts, settings))
    parameters = {"nodes": nodes, "zones": zones, "applications": counts, "apps_per_scheduler": PER_SCHEDULER}
    notes = (
        "elections_needed: share of look-ups that began an election although a scheduler with spare capacity existed",
        "a look-up counts one hop for each node asked; with all at once no gossip has run yet",
        "one a second: one run; each row is the state when its number of applications had been submitted, "
        "with cpu_seconds and events since the row before",
        "spread_max_over_min: schedulers of the zone with most over the zone with least; scope region with fewer "
        "schedulers than zones has zones without one, and then none is given",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    steady = [row for row in rows if row["submitted"] == ONE_A_SECOND]
    return (
        Goal(
            "zone scope: the specification's number", all(row["surplus"] == 0 for row in rows if row["scope"] == "zone")
        ),
        Goal(
            "region scope: at most 10 % more than the specification's number",
            all(row["surplus"] <= 0.1 * row["schedulers_model"] for row in rows if row["scope"] == "region"),
        ),
        Goal(
            "at most 5 % of the look-ups miss a scheduler with spare capacity",
            all(row["elections_needed"] <= 0.05 for row in rows),
        ),
        Goal("90 % of the look-ups within 4 hops, one a second", all(row["within_4_hops"] >= 0.9 for row in steady)),
        Goal(
            "zone scope: spread_max_over_min ≤ 1.5",
            all(row["spread_max_over_min"] <= 1.5 for row in rows if row["scope"] == "zone"),
        ),
        Goal("every application runs", all(row["refused"] == 0 for row in rows)),
    )


def _rows(options: RunOptions, rate: str, counts: tuple[int, ...], settings: Settings) -> Iterator[Row]:
    started, events = time.process_time(), 0
    for count, figures in zip(counts, run_growing(options, counts), strict=True):
        if len(counts) > 1:
            settings.progress(f"{count:,} applications, {rate}, scope {options.scope}")
        now = time.process_time()
        row = _row(replace(options, applications=count), rate, figures)
        yield {**row, "events": figures.events - events, "cpu_seconds": round(now - started, 2)}
        started, events = now, figures.events


def _row(options: RunOptions, rate: str, figures: RunFigures) -> Row:
    wanted = _wanted(options)
    lookups = len(figures.hops)
    return {
        "scope": options.scope,
        "submitted": rate,
        "applications": options.applications,
        "schedulers": figures.schedulers,
        "schedulers_model": wanted,
        "surplus": figures.schedulers - wanted,
        "surplus_reasons": _reasons(figures, wanted),
        "lookup_hops_mean": round(sum(figures.hops) / max(1, lookups), 3),
        "lookup_hops_p99": quantile(figures.hops, 0.99),
        "within_4_hops": round(sum(hops <= 4 for hops in figures.hops) / max(1, lookups), 4),
        "elections": figures.elections,
        "elections_needed": round(figures.missed / max(1, lookups), 4),
        "spread_max_over_min": figures.spread_max_over_min if math.isfinite(figures.spread_max_over_min) else None,
        "refused": len(figures.refused),
    }


def _reasons(figures: RunFigures, wanted: int) -> list[str]:
    """Explain surplus schedulers: name those with spare capacity that a look-up missed; empty when there is no surplus."""
    if figures.schedulers <= wanted:
        return []
    served = [count for counts in figures.served.values() for count in counts]
    with_capacity = [f"{count} of {PER_SCHEDULER}" for count in sorted(served) if count < PER_SCHEDULER]
    return [
        f"{figures.missed} of {figures.elections} elections were begun while a scheduler had spare capacity",
        f"with spare capacity: {', '.join(with_capacity)}",
    ]


def _wanted(options: RunOptions) -> int:
    """Return the specified number of schedulers: by zone with applications spread evenly, or in all."""
    if options.scope == "region":
        return max(1, math.ceil(options.applications / PER_SCHEDULER))
    share, more = divmod(options.applications, options.zones)
    return sum(math.ceil((share + (zone < more)) / PER_SCHEDULER) for zone in range(options.zones))
