"""Coordinates of Ecker et al.: a supervisor moves by forces that grow with the logarithm of the relative error.

Source: spec of placement §5.6. Departs: the factor k depends on the latencies, since a constant one oscillates or diverges.
"""

from collections.abc import Sequence
from math import log

from agiledart_placement.latency_space.points import Point, distance, length

KAPPA = 0.5
LEAST_LATENCY_MS = 0.05
LEAST_MOVE_MS = 1e-3
COINCIDENT_MS = 1e-3
MOST_MOVES = 100


def spring_factor(latencies_ms: Sequence[float], kappa: float = KAPPA) -> float:
    """Return k = κ ÷ Σ 1/latency, which keeps the iteration stable for κ below 2."""
    return kappa / sum(1 / max(latency, LEAST_LATENCY_MS) for latency in latencies_ms)


def forces_sum(at: Point, peers: Sequence[tuple[Point, float]], k: float) -> Point:
    """Return the next move: k·ln(distance ÷ latency) towards each peer; too far pulls, too near pushes."""
    x = y = z = 0.0
    for point, measured in peers:
        apart, latency = distance(at, point), max(measured, LEAST_LATENCY_MS)
        towards = (point[0] - at[0], point[1] - at[1], point[2] - at[2])
        if apart == 0:
            apart, towards = COINCIDENT_MS, (COINCIDENT_MS, 0.0, 0.0)
        share = k * log(apart / latency) / apart
        x, y, z = x + share * towards[0], y + share * towards[1], z + share * towards[2]
    return x, y, z


def updated(at: Point, peers: Sequence[tuple[Point, float]], kappa: float = KAPPA) -> Point:
    """Return the place after one update against peers with measured latencies in ms; without peers it stays."""
    if not peers:
        return at
    k = spring_factor([latency for _, latency in peers], kappa)
    for _ in range(MOST_MOVES):
        move = forces_sum(at, peers, k)
        at = (at[0] + move[0], at[1] + move[1], at[2] + move[2])
        if length(move) <= LEAST_MOVE_MS:
            break
    return at
