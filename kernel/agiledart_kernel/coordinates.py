"""Coordinates in a space of latencies, to guess the round trip between two nodes without measuring it.

A coordinate is a point and a height: the guess is the distance of the points (the core of the network) plus both heights (the
access links, which every message crosses). After each measured round trip a node moves a little along the line to the other node,
as a spring would: away when the guess was too short, nearer when it was too long. The step depends on which of the two is surer
of its place. For that each node keeps the smoothed relative error of its own guesses, which is also the confidence of a guess.

Positions are whole microseconds and errors millionths, on the wire and in memory. An update uses only +, -, *, / and the square
root, which IEEE 754 rounds the same way everywhere, so equal input gives equal coordinates on all platforms.

Source: [Vivaldi] §2.4 (spring), §2.5 (adaptive time step), §5.4 (height). Departs: three dimensions in place of two, which brings
the median error on real round trips from 8 to 7 %; the error never exceeds 1, so that a bad start does not last.
"""

from collections.abc import Sequence
from math import sqrt

import msgspec

_CC = 0.25
"""Share of a spring's force by which one sample moves a node; c_c of the paper."""
_CE = 0.25
"""Weight of one sample in the smoothed error; c_e of the paper."""
_MILLION = 1_000_000
LEAST_HEIGHT_US = 10
LARGEST_US = 60 * _MILLION
"""Bound of a position: a claim to be farther away than a minute is rejected."""


class Coordinate(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Place in the space of latencies.

    Args:
        x, y, z: microseconds.
        height: microseconds that every message spends on this node's own link; positive.
        error: relative error of this node's guesses, in millionths; 1,000,000 without any knowledge.
    """

    x: int = 0
    y: int = 0
    z: int = 0
    height: int = LEAST_HEIGHT_US
    error: int = _MILLION

    @property
    def is_sane(self) -> bool:
        """Report whether a received coordinate lies within the bounds."""
        return (
            -LARGEST_US <= self.x <= LARGEST_US
            and -LARGEST_US <= self.y <= LARGEST_US
            and -LARGEST_US <= self.z <= LARGEST_US
            and 0 < self.height <= LARGEST_US
            and 0 <= self.error <= _MILLION
        )


ORIGIN = Coordinate()
"""Start of every node."""


def estimated_rtt_ns(a: Coordinate, b: Coordinate) -> int:
    """Return the guessed round trip between two nodes, in nanoseconds; at least 1."""
    dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
    return int(1_000 * (sqrt(dx * dx + dy * dy + dz * dz) + a.height + b.height)) or 1


def estimated_error(a: Coordinate, b: Coordinate) -> float:
    """Return the possible error of a guess as a share of it, 0 to 1: the larger of the two nodes' errors. 1: no knowledge."""
    return max(a.error, b.error) / _MILLION


_Point = tuple[float, float, float, float, float]


def moved(
    mine: Coordinate, theirs: Coordinate, rtt_ns: int, direction: tuple[float, float, float] = (1.0, 0.0, 0.0)
) -> Coordinate:
    """Return the own coordinate after one measured round trip.

    Args:
        mine, theirs: coordinates now.
        rtt_ns: nanoseconds; must be positive.
        direction: direction to move when both are at the same point; not all zero. Random, so that nodes do not stay on a line.

    Source: [Vivaldi] figure 3, with the vector algebra of §5.4.
    """
    return refined(mine, ((theirs, rtt_ns),), 1, direction)


def refined(
    mine: Coordinate,
    samples: Sequence[tuple[Coordinate, int]],
    passes: int,
    direction: tuple[float, float, float] = (1.0, 0.0, 0.0),
) -> Coordinate:
    """Return the own coordinate after measured round trips to several nodes, each taken `passes` times and rounded once."""
    point: _Point = float(mine.x), float(mine.y), float(mine.z), float(mine.height), float(mine.error)
    for _ in range(passes):
        for theirs, rtt_ns in samples:
            point = _step(point, theirs, rtt_ns / 1_000.0, direction)
    x, y, z, height, error = point
    return Coordinate(round(x), round(y), round(z), round(height), round(error) or 1)


def _step(point: _Point, theirs: Coordinate, rtt: float, direction: tuple[float, float, float]) -> _Point:
    x, y, z, height, error = point
    dx, dy, dz = x - theirs.x, y - theirs.y, z - theirs.z
    apart = sqrt(dx * dx + dy * dy + dz * dz)
    heights = height + theirs.height
    guess = apart + heights
    if rtt > LARGEST_US:
        rtt = float(LARGEST_US)
    certain = error + theirs.error
    weight = error / certain if certain else 0.5
    step = _CE * weight
    error = abs(guess - rtt) / rtt * _MILLION * step + error * (1.0 - step)
    force = _CC * weight * (rtt - guess)
    along = force / guess
    if apart < 1.0:
        dx, dy, dz = direction
        along = force / sqrt(dx * dx + dy * dy + dz * dz)
    x, y, z, height = x + along * dx, y + along * dy, z + along * dz, height + force * heights / guess
    if not (-LARGEST_US < x < LARGEST_US and -LARGEST_US < y < LARGEST_US and -LARGEST_US < z < LARGEST_US):
        x, y, z = _bounded(x), _bounded(y), _bounded(z)
    if height < LEAST_HEIGHT_US:
        height = float(LEAST_HEIGHT_US)
    elif height > LARGEST_US:
        height = float(LARGEST_US)
    return x, y, z, height, error if error < _MILLION else float(_MILLION)


def _bounded(value: float) -> float:
    return max(-float(LARGEST_US), min(float(LARGEST_US), value))
