"""Weber point: where one operator uses least network, given the places of its neighbours and the rates to them.

Source: spec of placement §3, algorithm 2 of Rizou et al. with its errata: the move follows minus the gradient; the last gain
counts by its absolute value, begins infinite, and a least step ends the search.
"""

from collections.abc import Sequence
from math import inf

from agiledart_placement.latency_space.points import Point, Pull, distance, length, resultant, usage

LEAST_GAIN = 1e-6
"""δ_t, in rate × ms."""
LEAST_STEP = 1e-9
MOST_ITERATIONS = 10_000


def weber_point(at: Point, pulls: Sequence[Pull]) -> tuple[Point, bool]:
    """Return the point of least usage, and whether it is a neighbour's own point, tested exactly.

    Args:
        at: present point, which remains when no link has a rate.
        pulls: neighbours and rates.
    """
    merged: dict[Point, float] = {}
    for point, rate in pulls:
        if rate > 0:
            merged[point] = merged.get(point, 0.0) + rate
    if not merged:
        return at, False
    neighbours = list(merged.items())
    for point, rate in neighbours:
        if length(resultant(point, neighbours)) <= rate:
            return point, True
    best = _median(neighbours)
    value = usage(best, neighbours)
    nearest, least = min(((point, usage(point, neighbours)) for point, _ in neighbours), key=lambda pair: pair[1])
    if least <= value:
        best, value = nearest, least
    step = max(distance(best, point) for point, _ in neighbours)
    gain = inf
    for _ in range(MOST_ITERATIONS):
        if gain < LEAST_GAIN or step < LEAST_STEP:
            break
        force = resultant(best, neighbours)
        strength = length(force)
        if strength == 0:
            break
        scale = step / strength
        trial = (best[0] + scale * force[0], best[1] + scale * force[1], best[2] + scale * force[2])
        after = usage(trial, neighbours)
        if after < value:
            gain, best, value = value - after, trial, after
        else:
            step /= 2
    return best, False


def _median(neighbours: Sequence[Pull]) -> Point:
    """Return the coordinate-wise weighted lower median: the first value at which the weight reaches half."""
    half = sum(rate for _, rate in neighbours) / 2

    def along(axis: int) -> float:
        reached = 0.0
        for point, rate in sorted(neighbours, key=lambda pull: pull[0][axis]):
            reached += rate
            if reached >= half:
                return point[axis]
        return neighbours[-1][0][axis]

    return along(0), along(1), along(2)
