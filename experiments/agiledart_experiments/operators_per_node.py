"""How many operators the nodes host when many applications run: the balance of the mapping.

AgileDART, figures 10a and 10b: 10,000 nodes in 20 zones, applications of ten operators on average. They are submitted at once
to random agents; schedulers are elected, paths recorded and operators mapped by the messages that agents exchange. The ring
itself is put together from global knowledge, since this asks nothing about joins. Counted are mapped operators: sources and
sinks stand where their data is, whatever the mapping does.
"""

from agiledart_experiments.report import Goal, Report, Row, Settings
from agiledart_simulation.scheduling_run import RunOptions, run_submissions

PAPER = (10_000, 20, (250, 500, 750, 1_000))
SMALL = (800, 4, (20, 40, 60, 80))
"""Nodes, zones, and how many applications."""

BELOW_3, BELOW_4 = 0.9785, 0.9989
"""Published shares of nodes with fewer than 3 operators (250 and 500 applications), than 4 (750 and 1,000)."""


def run(settings: Settings) -> Report:
    """One row for each number of applications."""
    nodes, zones, counts = PAPER if settings.is_paper else SMALL
    rows = []
    for place, count in enumerate(counts):
        settings.progress(f"{count:,} applications on {nodes:,} nodes")
        rows.append(_measure(RunOptions(settings.seed, nodes, zones, count), is_first_half=place < len(counts) / 2))
    goals = (
        Goal(f"share_below_3 ≥ {BELOW_3} at {counts[1]:,} applications", rows[1]["share_below_3"] >= BELOW_3),
        Goal(f"share_below_4 ≥ {BELOW_4} at {counts[-1]:,} applications", rows[-1]["share_below_4"] >= BELOW_4),
        Goal("every application runs", all(row["refused"] == 0 for row in rows)),
    )
    parameters = {
        "nodes": nodes,
        "zones": zones,
        "applications": counts,
        "operators_mean": 10,
        "submitted": "all at once",
    }
    return Report(parameters, tuple(rows), goals, ("the ring is assembled from global knowledge",))


def _measure(options: RunOptions, *, is_first_half: bool) -> Row:
    figures = run_submissions(options)
    return {
        "applications": options.applications,
        "share_below_3": round(figures.mapped_below(3), 5),
        "share_below_3_published": BELOW_3 if is_first_half else None,
        "share_below_4": round(figures.mapped_below(4), 5),
        "share_below_4_published": None if is_first_half else BELOW_4,
        "max": max(figures.mapped),
        "operators": sum(operators * nodes for operators, nodes in figures.mapped.items()),
        "refused": len(figures.refused),
        "relaxed": figures.relaxed,
        "events": figures.events,
    }
