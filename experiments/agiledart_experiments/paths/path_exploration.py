"""Experiment `path-exploration`: regret of the paper's rule by its exploration factor C, on three kinds of networks.

The networks have 16 nodes and 30 links.

Published: the best C is 0.4 for the second kind and 0.2 for the third.
"""

from agiledart_experiments.paths.figures import ci95, mean
from agiledart_experiments.paths.networks import PathNetwork, lossy_grid
from agiledart_experiments.paths.trial import PathTrial
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.hop_planner import PathPlanner
from agiledart_shuffle.policies.kl import KlIndex

DELAYS_MS = {1: (10.0, 100.0), 2: (50.0, 100.0), 3: (100.0, 300.0)}
"""Range of the mean delays of links in milliseconds, by kind of network; a slot is the least delay."""

PUBLISHED = {2: 0.4, 3: 0.2}
SIDE, LINKS = 4, 30
FACTORS = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
LEAST, MOST = 0.01, 0.5

PAPER, SMALL = 200, 20
"""Number of networks of each kind."""

PACKETS = 1_000


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each kind of network and factor."""
    count = PAPER if settings.is_paper else SMALL
    rows: list[Row] = []
    goals = []
    for kind, delays in DELAYS_MS.items():
        networks = [
            lossy_grid(SIDE, LINKS, delays, RandomStream(settings.seed, "exploration", kind, n)) for n in range(count)
        ]
        of_kind = []
        for factor in FACTORS:
            settings.progress(f"C = {factor} on {count} networks of kind {kind}")
            totals = [_regret(network, factor, settings.seed, kind, n) for n, network in enumerate(networks)]
            of_kind.append((mean(totals), ci95(totals)))
        best = FACTORS[min(range(len(FACTORS)), key=lambda at: of_kind[at][0])]
        for factor, (middle, width) in zip(FACTORS, of_kind, strict=True):
            rows.append(
                {
                    "network": kind,
                    "delays_ms": f"{delays[0]:.0f} to {delays[1]:.0f}",
                    "c": factor,
                    "regret_mean": round(middle, 1),
                    "regret_ci95": round(width, 1),
                    "best_c": best,
                    "best_c_published": PUBLISHED.get(kind),
                    "networks": count,
                }
            )
        goals.append(Goal(f"network {kind}: best_c = {best} lies in ({LEAST}, {MOST})", LEAST < best < MOST))
    parameters = {"nodes": SIDE * SIDE, "links": LINKS, "networks": count, "packets": PACKETS, "factors": FACTORS}
    return ExperimentReport(parameters, tuple(rows), tuple(goals))


def _regret(network: PathNetwork, factor: float, seed: int, kind: int, number: int) -> float:
    """Return the regret of a trial in slots; the random draws are the same for every factor."""
    ties = RandomStream(seed, "ties", kind, number)
    trial = PathTrial(
        network,
        PathPlanner(network.graph, network.sink, KlIndex(factor), ties),
        RandomStream(seed, "luck", kind, number),
    )
    trial.send(PACKETS)
    return sum(trial.regret)
