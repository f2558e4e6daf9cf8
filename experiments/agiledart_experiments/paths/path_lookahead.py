"""Experiment `path-lookahead`: regret of the paper's rule when nodes see only a limited number of links ahead.

The values `_other_run` come from an independent simulator (specification of the shuffle, T6): figure 17c prints no values.
"""

from functools import partial

from agiledart_experiments.paths.figures import ci95, mean, regrets
from agiledart_experiments.paths.networks import grid_of_nodes, shape_of
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings

HOPS = (1, 2, 4, 6)
"""Numbers of links ahead to run, in addition to all links."""

OTHER_RUN = {25: (1523, 1201, 977, 896, 876), 36: (3109, 2746, 2223, 1823, 1290), 64: (5603, 5053, 4221, 3722, 2079)}

PAPER = ((25, 36, 64), 100)
SMALL = ((25, 36, 64), 12)
"""Nodes of the networks, and the number of networks of each size."""

PACKETS = 1_000


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each size and number of links ahead."""
    sizes, count = PAPER if settings.is_paper else SMALL
    rows: list[Row] = []
    goals = []
    for nodes in sizes:
        networks = partial(grid_of_nodes, nodes, settings.seed)
        longest = 2 * (shape_of(nodes)[0] - 1)
        before: list[float] | None = None
        for hops, theirs in zip((*HOPS, longest), OTHER_RUN[nodes], strict=True):
            settings.progress(f"{hops} links ahead on {count} networks of {nodes} nodes")
            policy = "paper-1" if hops == longest else f"lookahead-{hops}"
            totals = regrets(policy, networks, count, PACKETS, settings.seed)
            rows.append(_row(nodes, hops, hops == longest, theirs, totals))
            if before is not None:
                goals.append(_goal(nodes, hops, before, totals))
            before = totals
    parameters = {"sizes": sizes, "hops": HOPS, "networks": count, "packets": PACKETS, "policy": "paper-1"}
    notes = ("no path is longer than the greatest number of hops of a size, which therefore stands for all",)
    return ExperimentReport(parameters, tuple(rows), tuple(goals), notes)


def _row(nodes: int, hops: int, is_all: bool, theirs: int, totals: list[float]) -> Row:
    return {
        "nodes": nodes,
        "links": shape_of(nodes)[1],
        "hops": hops,
        "is_all": is_all,
        "regret_mean": round(mean(totals), 1),
        "regret_mean_other_run": theirs,
        "regret_ci95": round(ci95(totals), 1),
        "networks": len(totals),
    }


def _goal(nodes: int, hops: int, before: list[float], totals: list[float]) -> Goal:
    """Return the goal that seeing further is no worse.

    The goal allows for the confidence interval: on few small networks the last links ahead matter less than chance.
    """
    gains = [old - new for old, new in zip(before, totals, strict=True)]
    bound = (
        f"{nodes} nodes: {hops} links ahead no worse than fewer, give or take the confidence interval of the difference"
    )
    return Goal(bound, mean(gains) + ci95(gains) > 0.0)
