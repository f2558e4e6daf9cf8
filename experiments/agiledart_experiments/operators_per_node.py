"""Experiment `operators-per-node`: how evenly the operators of many applications are placed on the nodes.

AgileDART, figures 10a and 10b: 10,000 nodes in 20 zones, applications of ten operators on average. All applications are submitted
at once to random agents. Real messages elect the schedulers, record the paths and map the operators. The ring is assembled from
global knowledge, since this experiment measures no joins. It counts mapped operators only: sources and sinks are where their
data is, and no mapping moves them.

The last row has machines of different sizes, in turn. There the share of each node should follow the nodes of the ring for which
its cores count (AgileDART, §IV).
"""

import time

from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_overlay.tables.virtual_nodes import ring_places
from agiledart_simulation.runs.scheduling_run import RunOptions, run_submissions

PAPER = (10_000, 20, (250, 500, 750, 1_000))
SMALL = (800, 4, (20, 40, 60, 80))
"""Number of nodes, number of zones, and the numbers of applications."""

BELOW_3, BELOW_4 = 0.9785, 0.9989
"""Published shares of nodes with fewer than 3 operators (250 and 500 applications), than 4 (750 and 1,000)."""

MIXED = (1, 4, 8)
"""Cores of the nodes in the last row: they count for 1, 2 and 3 nodes of the ring."""

UNEVEN = 1.3
"""Largest ratio there of the operators of two kinds of nodes, for each node of the ring for which they count."""

OPERATORS = 10
"""Operators of an application, on average. Figure 10a has up to half an operator for each node, figure 10b up to one."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return one row for each number of applications."""
    nodes, zones, usual = PAPER if settings.is_paper else SMALL
    counts = settings.sizes_or(usual)
    rows = []
    for count in counts:
        settings.progress(f"{count:,} applications on {nodes:,} nodes")
        is_few = count * OPERATORS <= nodes // 2
        rows.append(_measure(RunOptions(settings.seed, nodes, zones, count), is_few=is_few))
    settings.progress(f"{counts[-1]:,} applications on {nodes:,} nodes of different sizes")
    rows.append(_measure(RunOptions(settings.seed, nodes, zones, counts[-1], cores=MIXED), is_few=False))
    goals = (
        *(
            Goal(
                f"share_below_{below} ≥ {row[f'share_below_{below}_published']} at {row['applications']:,} applications",
                row[f"share_below_{below}"] >= row[f"share_below_{below}_published"],
            )
            for row in rows[:-1]
            for below in (3, 4)
            if row[f"share_below_{below}_published"] is not None
        ),
        Goal(
            f"operators by node of the ring differ ≤ {UNEVEN} on mixed machines", (rows[-1]["uneven"] or 99) <= UNEVEN
        ),
        Goal("every application runs", all(row["refused"] == 0 for row in rows)),
    )
    parameters = {
        "nodes": nodes,
        "zones": zones,
        "applications": counts,
        "operators_mean": OPERATORS,
        "submitted": "all at once",
    }
    return ExperimentReport(parameters, tuple(rows), goals, ("the ring is assembled from global knowledge",))


def _measure(options: RunOptions, *, is_few: bool) -> Row:
    started = time.process_time()
    figures = run_submissions(options)
    by_place = [operators / ring_places(cores) for cores, operators in figures.by_cores.items()]
    return {
        "applications": options.applications,
        "cores": ", ".join(map(str, options.cores)) if len(options.cores) > 1 else None,
        "operators_by_cores": [[cores, operators] for cores, operators in figures.by_cores.items()],
        "uneven": round(max(by_place) / min(by_place), 3) if min(by_place) else None,
        "share_below_3": round(figures.mapped_below(3), 5),
        "share_below_3_published": BELOW_3 if is_few else None,
        "share_below_4": round(figures.mapped_below(4), 5),
        "share_below_4_published": None if is_few else BELOW_4,
        "share_of_nodes": [[held, round(count / options.nodes, 5)] for held, count in figures.mapped.items()],
        "max": max(figures.mapped),
        "operators": sum(operators * nodes for operators, nodes in figures.mapped.items()),
        "refused": len(figures.refused),
        "relaxed": figures.relaxed,
        "events": figures.events,
        "cpu_seconds": round(time.process_time() - started, 2),
    }
