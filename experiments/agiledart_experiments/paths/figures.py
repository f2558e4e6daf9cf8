"""Means of many runs, and their confidence intervals."""

import math
from collections.abc import Callable, Sequence

from agiledart_experiments.paths.networks import PathNetwork
from agiledart_experiments.paths.trial import PathTrial
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.estimates import STATIONARY, EstimateMemory
from agiledart_shuffle.registry import PathTask, policy_named


def mean(values: Sequence[float]) -> float:
    """Return the mean of the values; 0 when there are none."""
    return sum(values) / len(values) if values else 0.0


def median(values: Sequence[float]) -> float:
    """Return the median of the values; 0 when there are none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def ci95(values: Sequence[float]) -> float:
    """Return half the width of the 95 % confidence interval of the mean; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return 1.96 * math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))


def trial_of(
    policy: str, network: PathNetwork, seed: int, number: int, memory: EstimateMemory = STATIONARY
) -> PathTrial:
    """Build a trial of the named policy on a network; its random draws depend only on seed, network number and policy."""
    task = PathTask(
        network.graph,
        network.source,
        network.sink,
        RandomStream(seed, "policy", policy, network.graph.nodes, number),
        memory,
        network.rates,
    )
    luck = RandomStream(seed, "luck", policy, network.graph.nodes, number)
    return PathTrial(network, policy_named(policy, task), luck)


def regrets(policy: str, networks: Callable[[int], PathNetwork], count: int, packets: int, seed: int) -> list[float]:
    """Return the total regret of a policy, in slots, on each of `count` networks."""
    totals = []
    for number in range(count):
        trial = trial_of(policy, networks(number), seed, number)
        trial.send(packets)
        totals.append(sum(trial.regret))
    return totals
