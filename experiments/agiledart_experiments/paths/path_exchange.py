"""What it costs that nodes tell each other their costs to go only now and then, and that some of it is lost.

The distributed planner with the paper's index, C = 0.2. The published values beside ours are those of an independent simulator
(specification of the shuffle, §7), of 200 networks, whose nodes tell nothing at once; the paper prints none. Told at once when a
cost moved by 10 % is what agents do.
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
"""Nodes of the networks, and how many networks of each size."""

PACKETS = 1_000


class Mode(NamedTuple):
    """How costs to go are told: in every so many packets (0: with acknowledgements alone), at once, with losses."""

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

PUBLISHED = {25: (389, 395, 417, 432), 36: (617, 663, 779, 837), 64: (1006, 1154, 1523, 1750)}


def run(settings: Settings) -> ExperimentReport:
    """A row for each size and way of telling."""
    sizes, count = PAPER if settings.is_paper else SMALL
    rows: list[Row] = []
    goals: list[Goal] = []
    for nodes in sizes:
        networks = partial(grid_of_nodes, nodes, settings.seed)
        totals: dict[str, list[float]] = {}
        for place, mode in enumerate(MODES):
            settings.progress(f"{nodes} nodes, {mode.name}")
            found = [_trial(networks(number), mode, settings.seed, number) for number in range(count)]
            totals[mode.name] = [regret for regret, _ in found]
            published = PUBLISHED[nodes][place] if place < len(PUBLISHED[nodes]) else None
            rows.append(
                {
                    "nodes": nodes,
                    "links": shape_of(nodes)[1],
                    "told": mode.name,
                    "regret_mean": round(mean(totals[mode.name]), 1),
                    "regret_mean_published": published,
                    "regret_ci95": round(ci95(totals[mode.name]), 1),
                    "announcements_a_packet": round(mean([sent for _, sent in found]) / PACKETS, 2),
                    "networks": count,
                }
            )
        goals += _goals(nodes, totals)
    parameters = {"sizes": sizes, "networks": count, "packets": PACKETS, "c": EXPLORATION}
    return ExperimentReport(parameters, tuple(rows), tuple(goals))


def _trial(network: PathNetwork, mode: Mode, seed: int, number: int) -> tuple[float, float]:
    """(regret, announcements); luck is the same for every mode."""
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
    """Telling less costs more; telling at once makes most of it good, and losses do not undo that."""

    def no_worse(better: str, worse: str) -> bool:
        gains = [one - other for one, other in zip(totals[worse], totals[better], strict=True)]
        return mean(gains) + ci95(gains) > 0.0

    alone = "acknowledgements"
    return [
        Goal(f"{nodes} nodes: every packet no worse than acknowledgements alone", no_worse("every packet", alone)),
        Goal(f"{nodes} nodes: every 10 packets no worse than acknowledgements alone", no_worse("every 10", alone)),
        Goal(
            f"{nodes} nodes: at once, half lost, no worse than acknowledgements alone", no_worse(MODES[-1].name, alone)
        ),
    ]
