"""Throughput of a placement: the source rate at which the first node is full.

Source: spec of placement P13; deterministic, without queues. The cost c_x of an event that crosses the network is paid on both
ends; the paper does not have it, so each figure stands for three values.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from agiledart_placement.baselines.resource_use import PROCESSOR
from agiledart_placement.evaluation.movable_assignment import path_ends
from agiledart_placement.problem.natural_order import natural_order
from agiledart_placement.problem.problem import Problem

CROSSING_COSTS = (0.0, 0.5, 2.0)
"""c_x: processor points to send or receive one event over the network; the mean work on an event is 1."""


def largest_rate(problem: Problem, where: Sequence[int], source_rate: float, crossing: float) -> float:
    """Return the source rate at which the first node is full, in rows per second.

    Args:
        problem: its demands hold at `source_rate`.
        where: node of each instance.
        source_rate: rows per second.
        crossing: c_x.
    """
    cpu = problem.resources.index(PROCESSOR)
    need = [0.0] * len(problem.nodes)
    for instance, node in enumerate(where):
        need[node] += problem.demand[instance][cpu] / source_rate
    for edge in problem.edges:
        u, v = where[edge.above], where[edge.below]
        if u != v:
            need[u] += crossing * edge.events / source_rate
            need[v] += crossing * edge.events / source_rate
    return min(
        (row[cpu] / amount for row, amount in zip(problem.capacity, need, strict=True) if amount > 0), default=inf
    )


def reservation(problem: Problem, where: Sequence[int]) -> float:
    """Return the processor points of all nodes in use."""
    cpu = problem.resources.index(PROCESSOR)
    return sum(problem.capacity[node][cpu] for node in sorted(dict.fromkeys(where)))


def longest_delay(problem: Problem, where: Sequence[int]) -> float:
    """Return the longest path of delays, in ms."""
    return max(path_ends(problem, where, with_execution=False), default=0.0)


def in_turn(problem: Problem, width: int) -> list[int]:
    """Return Storm's round robin on the first `width` nodes."""
    order = sorted(
        range(len(problem.instances)), key=lambda i: (natural_order(problem.stage_of[i].name), problem.instances[i][1])
    )
    where = [0] * len(order)
    for turn, instance in enumerate(order):
        where[instance] = turn % width
    return where


def at_reservation(points: Sequence[tuple[float, float]], wanted: float) -> float:
    """Return a figure at a reservation, linear between the known ones; outside of them that of the nearest.

    Args:
        points: (reservation, figure).
        wanted: reservation.
    """
    known = sorted(points)
    if wanted <= known[0][0]:
        return known[0][1]
    for (low, a), (high, b) in pairwise(known):
        if low <= wanted <= high:
            return a if high == low else a + (b - a) * (wanted - low) / (high - low)
    return known[-1][1]
