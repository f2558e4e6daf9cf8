"""Points of the latency space, in ms."""

from collections.abc import Iterable
from math import sqrt

Point = tuple[float, float, float]
ORIGIN: Point = (0.0, 0.0, 0.0)
Pull = tuple[Point, float]
"""Point of a neighbour and rate of the link to it."""


NOTIFY_MS = 1.0
"""An operator tells its free neighbours of a move of at least this length."""


def distance(a: Point, b: Point) -> float:
    """Return the Euclidean distance."""
    return sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2)


def usage(point: Point, pulls: Iterable[Pull]) -> float:
    """Return Σ rate × distance to these neighbours."""
    return sum(rate * distance(point, other) for other, rate in pulls)


def resultant(point: Point, pulls: Iterable[Pull]) -> Point:
    """Return Σ rate × unit vector towards each neighbour that is not at the point itself: minus the gradient of the usage."""
    x = y = z = 0.0
    for other, rate in pulls:
        apart = distance(point, other)
        if apart > 0:
            share = rate / apart
            x += share * (other[0] - point[0])
            y += share * (other[1] - point[1])
            z += share * (other[2] - point[2])
    return x, y, z


def length(vector: Point) -> float:
    """Return the length of a vector."""
    return distance(vector, ORIGIN)
