"""An instance that is far slower than its siblings: more instances would wait for it, so it is switched over to another place."""

from collections.abc import Sequence
from statistics import median

SLOW_SHARE = 0.5
SLOW_INTERVALS = 3
"""Slower than this share of its siblings' median, for so many intervals: shorter ones may be garbage collected or a busy disk."""


def slow_intervals(rates: Sequence[float | None], before: Sequence[int]) -> tuple[int, ...]:
    """For how many intervals in a row each instance has been slow.

    Args:
        rates: measured true rates; one that is void, or has no measured sibling, is not slow.
        before: the same of the interval before; when their number changed, those that stay keep their index.
    """
    counts = (*before, *(0 for _ in rates))[: len(rates)]
    result = []
    for index, (rate, count) in enumerate(zip(rates, counts, strict=True)):
        siblings = [other for place, other in enumerate(rates) if place != index and other is not None]
        is_slow = rate is not None and bool(siblings) and rate < SLOW_SHARE * median(siblings)
        result.append(count + 1 if is_slow else 0)
    return tuple(result)


def straggler(rates: Sequence[float | None], slow: Sequence[int]) -> int | None:
    """Index of the slowest instance that has been slow for long enough; None: there is none."""
    found = [(rate, index) for index, rate in enumerate(rates) if rate is not None and slow[index] >= SLOW_INTERVALS]
    return min(found)[1] if found else None
