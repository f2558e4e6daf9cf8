"""Difference between the wall clocks of two nodes: how it is measured and how it is described.

A node measures another clock by one question and its answer, as NTP does: the time that the other node showed, less the
midpoint between question and answer here. The error is at most half the round trip, so slow answers are not used.
Source: D. Mills, RFC 5905, section 8.
"""

from typing import Final

from agiledart_kernel.counts import Count

WallMs = Count
"""Time of a wall clock, milliseconds since 1970-01-01 UTC; 0: unknown."""

SLOWEST_MS: Final = 4_000
"""Longest round trip that is used for a measurement."""

NAMED_MS: Final = 10_000
"""Smallest difference that is reported to people: well above the error of a measurement."""


def difference_ms(asked_ms: int, theirs_ms: int, received_ms: int) -> int | None:
    """Return how far another clock is ahead of ours (below zero: behind), or None when this answer does not show it.

    Args:
        asked_ms, received_ms: our clock when the question left, and when its answer arrived.
        theirs_ms: the other clock in between.
    """
    round_trip_ms = received_ms - asked_ms
    if not asked_ms or not theirs_ms or not 0 <= round_trip_ms <= SLOWEST_MS:
        return None
    return theirs_ms - asked_ms - round_trip_ms // 2


def describe_difference(difference: int) -> str:
    """Describe a difference in milliseconds for people: `3,600 s behind`."""
    return f"{abs(difference) / 1_000:,.0f} s {'ahead' if difference > 0 else 'behind'}"
