"""Experiment `path-regret`: regret of each policy over a thousand packets, on the same random networks.

The paper's figures print no numbers. The values `_other_run` come from an independent simulator of the same rules on networks of
the same sizes (specification of the shuffle, T5).
"""

from functools import partial

from agiledart_experiments.paths.figures import ci95, mean, median, regrets
from agiledart_experiments.paths.networks import DELAYS_MS, SIZES, grid_of_nodes, shape_of
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings

POLICIES = ("planned", "paper", "paper-1", "kl", "ts", "ts4", "next-hop", "end-to-end")

OTHER_RUN: dict[str, dict[int, int]] = {
    "paper": {25: 395, 36: 583, 64: 950, 144: 2677},
    "paper-1": {25: 915, 36: 1306, 64: 2063, 144: 5433},
    "kl": {25: 244, 36: 444, 64: 695, 144: 1518},
    "ts": {25: 319, 36: 541, 64: 826, 144: 1881},
    "ts4": {25: 249, 36: 392, 64: 579, 144: 1235},
    "planned": {25: 235, 36: 331, 64: 505, 144: 1181},
    "next-hop": {25: 2261, 36: 4334, 64: 7746, 144: 8338},
    "end-to-end": {25: 812, 36: 4676, 64: 15201, 144: 19058},
}

PAPER = (tuple(SIZES), 100)
SMALL = ((25, 36, 64), 12)
"""Nodes of the networks, and the number of networks of each size."""

PACKETS = 1_000
OF_FULL_MOST = 0.35
"""Regret of `planned` as a share of that of the paper's rule with C = 1."""

WITHIN = 0.1


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each size and policy."""
    usual, count = PAPER if settings.is_paper else SMALL
    sizes = settings.sizes_or(usual)
    rows = []
    for nodes in sizes:
        links = shape_of(nodes)[1]
        for policy in POLICIES:
            settings.progress(f"{policy} on {count} networks of {nodes} nodes and {links} links")
            networks = partial(grid_of_nodes, nodes, settings.seed)
            rows.append(_row(nodes, policy, regrets(policy, networks, count, PACKETS, settings.seed)))
    parameters = {
        "sizes": sizes,
        "networks": count,
        "packets": PACKETS,
        "delays_ms": DELAYS_MS,
        "slot_ms": DELAYS_MS[0],
    }
    notes = (
        "regret in slots: each attempt on a link is worth its success rate times the cost to go that it saves; links do not change",
        "other_run: an independent simulator on other networks of the same sizes; the paper's figures print no numbers",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _row(nodes: int, policy: str, totals: list[float]) -> Row:
    return {
        "nodes": nodes,
        "links": shape_of(nodes)[1],
        "policy": policy,
        "regret_mean": round(mean(totals), 1),
        "regret_mean_other_run": OTHER_RUN[policy].get(nodes),
        "regret_ci95": round(ci95(totals), 1),
        "regret_median": round(median(totals), 1),
        "networks": len(totals),
        "packets": PACKETS,
    }


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    goals = []
    for nodes in dict.fromkeys(row["nodes"] for row in rows):
        of_size = {row["policy"]: row for row in rows if row["nodes"] == nodes}
        means = {policy: row["regret_mean"] for policy, row in of_size.items()}
        baselines = ("next-hop", "end-to-end")
        goals += [
            Goal(f"{nodes} nodes: {policy} below {other}", means[policy] < means[other])
            for policy in ("planned", "paper")
            for other in baselines
        ]
        goals.append(Goal(f"{nodes} nodes: planned below paper", means["planned"] < means["paper"]))
        part = means["planned"] / means["paper-1"]
        goals.append(Goal(f"{nodes} nodes: planned ≤ {OF_FULL_MOST} of paper-1 ({part:.2f})", part <= OF_FULL_MOST))
        for policy in ("paper", "paper-1"):
            theirs = OTHER_RUN[policy].get(nodes)
            if theirs is not None:
                allowed = WITHIN * theirs + of_size[policy]["regret_ci95"]
                bound = f"{nodes} nodes: {policy} within {WITHIN:.0%} of {theirs}, give or take its confidence interval"
                goals.append(Goal(bound, abs(means[policy] - theirs) <= allowed))
    return tuple(goals)
