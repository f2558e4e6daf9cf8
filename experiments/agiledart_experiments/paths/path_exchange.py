"""Experiment `path-exchange`: regret when nodes announce their costs to go rarely, and some announcements are lost.

It runs the distributed planner with the paper's index, C = 0.2. The values `_other_run` come from an independent simulator
(specification of the shuffle, §7) with 200 networks, whose nodes never announce at once; the paper prints no values. Agents
announce at once when a cost changed by 10 %.
"""

from functools import partial
from typing import NamedTuple

from agiledart_experiments.paths.figures import ci95, mean
from agiledart_experiments.paths.networks import PathNetwork, grid_of_nodes, shape_of
from agiledart_experiments.paths.trial import PathTrial
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.cost_exchange import CHANGE
from agiledart_shuffle.distributed import DistributedPlanner
from agiledart_shuffle.policies.kl import KlIndex

EXPLORATION = 0.2

PAPER = ((25, 36, 64), 200)
SMALL = ((25, 36), 6)
"""Nodes of the networks, and the number of networks of each size."""

PACKETS = 1_000


class Mode(NamedTuple):
    """Mode of announcing costs to go: packets between announcements (0: acknowledgements only), change, and loss."""

    name: str
    every: int
    change: float | None
    loss: float


MODES = (
    Mode("every packet", 1, None, 0.0),
    Mode("every 10", 10, None, 0.0),
    Mode("every 100", 100, None, 0.0),
    Mode("acknowledgements", 0, None, 0.0),
    Mode("every 10, at once", 10, CHANGE, 0.0),
    Mode("every 10, at once, half lost", 10, CHANGE, 0.5),
)

OTHER_RUN = {25: (389, 395, 417, 432), 36: (617, 663, 779, 837), 64: (1006, 1154, 1523, 1750)}


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each size and mode of announcing."""
    sizes, count = PAPER if settings.is_paper else SMALL
    rows: list[Row] = []
    goals: list[Goal] = []
    for nodes in sizes:
        networks = partial(grid_of_nodes, nodes, settings.seed)
        totals: dict[str, list[float]] = {}
        for place, mode in enumerate(MODES):
            settings.progress(f"{nodes} nodes, {mode.name}")
            trials = [_trial(networks(number), mode, settings.seed, number) for number in range(count)]
            totals[mode.name] = [regret for regret, _ in trials]
            theirs = OTHER_RUN[nodes][place] if place < len(OTHER_RUN[nodes]) else None
            rows.append(
                {
                    "nodes": nodes,
                    "links": shape_of(nodes)[1],
                    "told": mode.name,
                    "regret_mean": round(mean(totals[mode.name]), 1),
                    "regret_mean_other_run": theirs,
                    "regret_ci95": round(ci95(totals[mode.name]), 1),
                    "announcements_a_packet": round(mean([sent for _, sent in trials]) / PACKETS, 2),
                    "networks": count,
                }
            )
        goals += _goals(nodes, totals)
    parameters = {"sizes": sizes, "networks": count, "packets": PACKETS, "c": EXPLORATION}
    return ExperimentReport(parameters, tuple(rows), tuple(goals))


def _trial(network: PathNetwork, mode: Mode, seed: int, number: int) -> tuple[float, float]:
    """Return (regret, announcements) of a trial; the random draws are the same for every mode."""
    planner = DistributedPlanner(
        network.graph,
        network.sink,
        KlIndex(EXPLORATION),
        RandomStream(seed, "policy", "exchange", network.graph.nodes, number),
        exchange_every=mode.every,
        change=mode.change,
        loss=mode.loss,
    )
    trial = PathTrial(network, planner, RandomStream(seed, "luck", "exchange", network.graph.nodes, number))
    trial.send(PACKETS)
    return sum(trial.regret), planner.announcements


def _goals(nodes: int, totals: dict[str, list[float]]) -> list[Goal]:
    """Return the goals: rare announcements cost more; announcing at once recovers most of that, even with losses."""

    def no_worse(better: str, worse: str) -> bool:
        gains = [
            worse_total - better_total for worse_total, better_total in zip(totals[worse], totals[better], strict=True)
        ]
        return mean(gains) + ci95(gains) > 0.0

    alone = "acknowledgements"
    return [
        Goal(f"{nodes} nodes: every packet no worse than acknowledgements alone", no_worse("every packet", alone)),
        Goal(f"{nodes} nodes: every 10 packets no worse than acknowledgements alone", no_worse("every 10", alone)),
        Goal(
            f"{nodes} nodes: at once, half lost, no worse than acknowledgements alone", no_worse(MODES[-1].name, alone)
        ),
    ]
