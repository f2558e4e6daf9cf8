"""Where a node lies in a space of latencies, so that the round trip between two nodes can be guessed without measuring it.

A coordinate is a point and a height: the guess is the distance of the points (the core of the network) plus both heights (the
access links, which every message crosses). After each measured round trip a node moves a little along the line to the other node,
as a spring would: away when the guess was too short, nearer when it was too long. How far it moves depends on who is surer of its
place; each node keeps the smoothed relative error of its own guesses for that, and it serves as the confidence of a guess.

Positions are whole microseconds and errors millionths, on the wire and in memory. An update uses only +, -, *, / and the square
root, which IEEE 754 rounds the same way everywhere, so equal input gives equal coordinates on all platforms.

Source: [Vivaldi] §2.4 (spring), §2.5 (adaptive time step), §5.4 (height). Departs: three dimensions in place of two, which
brings the median error on real round trips from 8 to 7 %; the error never exceeds 1, so that a bad start does not last.
"""

from math import sqrt

import msgspec

_CC = 0.25
"""Share of a spring's force that one sample moves a node by; c_c of the paper."""
_CE = 0.25
"""Weight of one sample in the smoothed error; c_e of the paper."""
_MILLION = 1_000_000
LEAST_HEIGHT_US = 10
LARGEST_US = 60 * _MILLION
"""Bound of a position: whoever claims to be farther away than a minute is not believed."""


class Coordinate(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A place in the space of latencies.

    Args:
        x, y, z: microseconds.
        height: microseconds that every message spends on this node's own link; positive.
        error: relative error of this node's guesses, in millionths; 1,000,000 when it knows nothing.
    """

    x: int = 0
    y: int = 0
    z: int = 0
    height: int = LEAST_HEIGHT_US
    error: int = _MILLION

    @property
    def is_sane(self) -> bool:
        """Whether a coordinate that came from elsewhere lies within the bounds."""
        within = abs(self.x) <= LARGEST_US and abs(self.y) <= LARGEST_US and abs(self.z) <= LARGEST_US
        return within and 0 < self.height <= LARGEST_US and 0 <= self.error <= _MILLION


ORIGIN = Coordinate()
"""Where every node starts."""


def estimated_rtt_ns(a: Coordinate, b: Coordinate) -> int:
    """The guessed round trip between two nodes, in nanoseconds; at least 1."""
    dx, dy, dz = a.x - b.x, a.y - b.y, a.z - b.z
    return int(1_000 * (sqrt(dx * dx + dy * dy + dz * dz) + a.height + b.height)) or 1


def estimated_error(a: Coordinate, b: Coordinate) -> float:
    """How wrong the guess may be, as a share of it, 0 to 1: the larger of the two nodes' errors. 1: know nothing."""
    return max(a.error, b.error) / _MILLION


def moved(
    mine: Coordinate, theirs: Coordinate, rtt_ns: int, direction: tuple[float, float, float] = (1.0, 0.0, 0.0)
) -> Coordinate:
    """My coordinate after one measured round trip.

    Args:
        mine, theirs: coordinates now.
        rtt_ns: nanoseconds; must be positive.
        direction: where to go when both are at the same point; not all zero. Random, so that nodes do not stay on a line.

    Source: [Vivaldi] figure 3, with the vector algebra of §5.4.
    """
    rtt = min(rtt_ns / 1_000.0, float(LARGEST_US))
    dx, dy, dz = float(mine.x - theirs.x), float(mine.y - theirs.y), float(mine.z - theirs.z)
    apart = sqrt(dx * dx + dy * dy + dz * dz)
    heights = mine.height + theirs.height
    guess = apart + heights
    certain = mine.error + theirs.error
    weight = mine.error / certain if certain else 0.5
    step = _CE * weight
    error = min(float(_MILLION), abs(guess - rtt) / rtt * _MILLION * step + mine.error * (1.0 - step))
    force = _CC * weight * (rtt - guess)
    if apart < 1.0:
        dx, dy, dz = direction
        along = force / sqrt(dx * dx + dy * dy + dz * dz)
    else:
        along = force / guess
    return Coordinate(
        _bounded(mine.x + along * dx),
        _bounded(mine.y + along * dy),
        _bounded(mine.z + along * dz),
        max(LEAST_HEIGHT_US, _bounded(mine.height + force * heights / guess)),
        max(1, round(error)),
    )


def _bounded(value: float) -> int:
    return max(-LARGEST_US, min(LARGEST_US, round(value)))
