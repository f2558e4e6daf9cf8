"""Experiment `hop-count`: hops of a look-up in rings of growing size.

Pastry's expectation is log₁₆ N hops on average and ⌈log₁₆ N⌉ with high probability. The values `_other_run` come from routing
tables made with global knowledge (overlay specification §12, O2); the ring measured here is built by real joins.
"""

import math
import time

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.ring_lookups import RingLookups, quantile
from agiledart_experiments.rings import JOINS_PER_SECOND, built_ring
from agiledart_kernel.instants import SECOND
from agiledart_simulation.world.paused_garbage_collection import paused_garbage_collection

MEANS = {100: 1.62, 1_000: 2.39, 10_000: 3.12}
"""Mean hops of an independent run by number of nodes, with routing tables made from global knowledge."""

PAPER = ((100, 1_000, 10_000), 100_000)
SMALL = ((100, 400), 5_000)
"""Sizes of the rings in nodes, and the number of look-ups in each ring."""

_PER_SECOND = 20_000
"""Number of look-ups sent in a virtual second."""

_TIMEOUT_S = 5
"""Virtual seconds after the last look-up within which all look-ups must have arrived."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each ring, with look-ups from random nodes to random keys."""
    usual, lookups = PAPER if settings.is_paper else SMALL
    sizes = settings.sizes_or(usual)
    rows = tuple(_measure(nodes, lookups, settings) for nodes in sizes)
    parameters = {"nodes": sizes, "lookups": lookups, "joins_per_second": JOINS_PER_SECOND, "preset": "simulation"}
    notes = (
        "each ring is built by real joins, one after the other",
        "cpu_seconds: building the ring, and the look-ups; depends on the machine, all other figures only on the seed",
    )
    return ExperimentReport(parameters, rows, _goals(rows), notes)


def _measure(nodes: int, lookups: int, settings: Settings) -> Row:
    with paused_garbage_collection():
        return _measured(nodes, lookups, settings)


def _measured(nodes: int, lookups: int, settings: Settings) -> Row:
    settings.progress(f"{nodes:,} nodes join")
    started = time.process_time()
    ring = built_ring(nodes, settings.seed, settings.progress)
    built, events_of_build = time.process_time(), ring.world.events
    ledger = RingLookups(ring, settings.seed)
    members = ring.members
    settings.progress(f"{lookups:,} look-ups among {nodes:,} nodes")
    while ledger.sent < lookups:
        ledger.send(members, min(_PER_SECOND // 10, lookups - ledger.sent))
        ring.world.run_for(SECOND // 10)
        ledger.collect()
    ring.world.run_until(lambda: _all_arrived(ledger), _TIMEOUT_S * SECOND, SECOND // 4)
    ring.world.run_for(SECOND)  # look-ups that arrive twice must be counted too
    ledger.collect()
    return {
        "nodes": nodes,
        "lookups": ledger.sent,
        "hops_mean": round(sum(ledger.hops) / max(1, len(ledger.hops)), 3),
        "hops_mean_other_run": MEANS.get(nodes),
        "hops_p99": quantile(ledger.hops, 0.99),
        "hops_max": max(ledger.hops, default=0),
        "hops_bound": _bound(nodes),
        "delivered_correctly": round(ledger.delivered_correctly, 6),
        "lost": ledger.lost,
        "doubles": ledger.doubles,
        "route_stretch_median": round(quantile(ledger.stretches, 0.5), 3),
        "events": ring.world.events,
        "events_of_build": events_of_build,
        "messages": ring.world.messages_sent,
        "cpu_seconds": round(time.process_time() - started, 2),
        "cpu_seconds_of_build": round(built - started, 2),
        "virtual_seconds": round(ring.world.now / SECOND, 1),
    }


def _all_arrived(ledger: RingLookups) -> bool:
    ledger.collect()
    return not ledger.lost


def _bound(nodes: int) -> int:
    """Return ⌈log₁₆ N⌉ + 1, the most hops that a route over correct tables takes."""
    return math.ceil(math.log(nodes, 16)) + 1


def _goals(rows: tuple[Row, ...]) -> tuple[Goal, ...]:
    goals = []
    for row in rows:
        nodes = row["nodes"]
        mean = MEANS.get(nodes)
        if mean is not None:
            near = abs(row["hops_mean"] - mean) <= 0.15
            goals.append(Goal(f"{nodes:,} nodes: hops_mean within 0.15 of {mean}", near))
        goals.append(Goal(f"{nodes:,} nodes: hops_max ≤ {_bound(nodes)}", row["hops_max"] <= _bound(nodes)))
        goals.append(
            Goal(f"{nodes:,} nodes: every look-up arrives once at the closest node", row["delivered_correctly"] == 1.0)
        )
        goals.append(Goal(f"{nodes:,} nodes: route_stretch_median below 2", row["route_stretch_median"] < 2))
    return tuple(goals)
