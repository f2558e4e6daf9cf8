"""Wall clocks of several nodes: how the difference between two is measured, and in which words it is told.

A clock is measured by one question and its answer, as in NTP: what the other one showed, less the middle between the two here.
That is off by half the round trip at the most, so slow answers are not used. Source: D. Mills, RFC 5905, section 8.
"""

from typing import Final

from agiledart_kernel.counts import Count

WallMs = Count
"""What a wall clock showed, milliseconds since 1970-01-01 UTC; 0: unknown."""

SLOWEST_MS: Final = 4_000
"""Round trips that take longer measure nothing."""

NAMED_MS: Final = 10_000
"""Differences that are told to people: well above what a measure may be off by."""


def difference_ms(asked_ms: int, theirs_ms: int, received_ms: int) -> int | None:
    """How far another clock is ahead of ours (below zero: behind), or None when this answer does not tell.

    Args:
        asked_ms, heard_ms: our clock when the question left, and when its answer was there.
        theirs_ms: the other clock in between.
    """
    took = received_ms - asked_ms
    if not asked_ms or not theirs_ms or not 0 <= took <= SLOWEST_MS:
        return None
    return theirs_ms - asked_ms - took // 2


def describe_difference(difference: int) -> str:
    """A difference in milliseconds for people: `3,600 s behind`."""
    return f"{abs(difference) / 1_000:,.0f} s {'ahead' if difference > 0 else 'behind'}"
