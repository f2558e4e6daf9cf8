"""Means of many runs, and how sure they are."""

import math
from collections.abc import Callable, Sequence

from agiledart_experiments.paths.networks import PathNetwork
from agiledart_experiments.paths.trial import PathTrial
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.estimates import STATIONARY, EstimateMemory
from agiledart_shuffle.registry import PathTask, policy_named


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0


def median(values: Sequence[float]) -> float:
    """The middle one, or between the two in the middle; 0 of none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def ci95(values: Sequence[float]) -> float:
    """Half the width of the 95 % confidence interval of their mean; 0 of fewer than two."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return 1.96 * math.sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1) / len(values))


def trial_of(
    policy: str, network: PathNetwork, seed: int, number: int, memory: EstimateMemory = STATIONARY
) -> PathTrial:
    """A policy by name on a network; luck and draws depend on the seed, the network's number and the policy only."""
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
    """The whole regret of a policy on each of so many networks."""
    totals = []
    for number in range(count):
        trial = trial_of(policy, networks(number), seed, number)
        trial.send(packets)
        totals.append(sum(trial.regret))
    return totals
