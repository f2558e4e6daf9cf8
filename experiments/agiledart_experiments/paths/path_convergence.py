"""Experiment `path-convergence`: excess delay over the best path, from the first fifty to the last hundred of 1,000 packets.

The values `_other_run` come from an independent simulator (specification of the shuffle, T7): figure 23 prints no values.
"""

from agiledart_experiments.paths.figures import mean, trial_of
from agiledart_experiments.paths.networks import DELAYS_MS, grid_of_nodes, shape_of
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings

POLICIES = ("planned", "paper", "paper-1", "ts", "next-hop", "end-to-end")
WINDOWS = ((1, 50), (51, 200), (201, 500), (501, 900), (901, 1000))

OTHER_RUN: dict[tuple[int, str], tuple[float, ...]] = {
    (25, "end-to-end"): (2.36, 0.88, 0.74, 0.69, 0.69),
    (36, "paper"): (3.28, 1.08, 0.47, 0.24, 0.19),
    (36, "paper-1"): (3.46, 2.17, 1.31, 0.83, 0.68),
    (36, "ts"): (3.48, 1.03, 0.41, 0.22, 0.16),
    (36, "next-hop"): (6.09, 4.61, 4.47, 4.38, 4.30),
    (36, "end-to-end"): (9.19, 9.21, 7.04, 1.54, 0.80),
    (64, "paper-1"): (4.92, 3.40, 2.14, 1.41, 1.14),
    (64, "next-hop"): (10.3, 7.70, 7.45, 7.31, 7.28),
    (64, "end-to-end"): (15.1, 15.1, 15.1, 15.1, 15.1),
}

PAPER = ((25, 36, 64), 100)
SMALL = ((25, 36, 64), 12)
"""Nodes of the networks, and the number of networks of each size."""

PACKETS = WINDOWS[-1][1]
_LAST = "excess_901_1000"


COURSE = 50
"""Packets of one point of `excess_by_50`."""


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each size and policy."""
    usual, count = PAPER if settings.is_paper else SMALL
    sizes = settings.sizes_or(usual)
    rows = []
    for nodes in sizes:
        for policy in POLICIES:
            settings.progress(f"{policy} on {count} networks of {nodes} nodes")
            rows.append(_measure(nodes, policy, count, settings.seed))
    parameters = {
        "sizes": sizes,
        "networks": count,
        "packets": PACKETS,
        "delays_ms": DELAYS_MS,
        "slot_ms": DELAYS_MS[0],
    }
    notes = (
        "slots a packet beyond the best path's mean delay",
        "other_run: an independent simulator on other networks of the same sizes; the paper's figure prints no numbers",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _measure(nodes: int, policy: str, count: int, seed: int) -> Row:
    sums = [0.0] * PACKETS
    for number in range(count):
        trial = trial_of(policy, grid_of_nodes(nodes, seed, number), seed, number)
        trial.send(PACKETS)
        sums = [total + regret for total, regret in zip(sums, trial.regret, strict=True)]
    row: Row = {"nodes": nodes, "links": shape_of(nodes)[1], "policy": policy}
    theirs = OTHER_RUN.get((nodes, policy), (None,) * len(WINDOWS))
    for (first, last), value in zip(WINDOWS, theirs, strict=True):
        row[f"excess_{first}_{last}"] = round(mean(sums[first - 1 : last]) / count, 3)
        row[f"excess_{first}_{last}_other_run"] = value
    course = [
        [first + COURSE, round(mean(sums[first : first + COURSE]) / count, 3)] for first in range(0, PACKETS, COURSE)
    ]
    return row | {"excess_by_50": course, "networks": count}


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    goals = []
    for nodes in dict.fromkeys(row["nodes"] for row in rows):
        of = {row["policy"]: row for row in rows if row["nodes"] == nodes}
        goals += [
            Goal(f"{nodes} nodes: {window} of planned below {other}", of["planned"][window] < of[other][window])
            for other in ("paper", "next-hop", "end-to-end")
            for window in ("excess_51_200", "excess_201_500", _LAST)
        ]
        goals.append(
            Goal(
                f"{nodes} nodes: paper keeps converging, and ends below next-hop",
                of["paper"]["excess_51_200"]
                > of["paper"]["excess_201_500"]
                > of["paper"][_LAST]
                < of["next-hop"][_LAST],
            )
        )
        end, begin = of["end-to-end"][_LAST], of["end-to-end"]["excess_1_50"]
        if nodes in (25, 36):
            goals.append(Goal(f"{nodes} nodes: end-to-end gets near the best path in the end", end < begin / 2))
        if nodes == 64:
            goals.append(Goal("64 nodes: end-to-end has not begun to converge", end > begin / 2))
    return tuple(goals)
