"""Detection of stragglers: an instance far slower than its siblings is moved, because more instances would wait for it."""

from collections.abc import Sequence

SLOW_SHARE = 0.5
SLOW_INTERVALS = 3
"""An instance is slow below this share of its siblings' median; it is a straggler after this many intervals. Shorter spells may
be garbage collection or a busy disk."""


def slow_intervals(rates: Sequence[float | None], before: Sequence[int]) -> tuple[int, ...]:
    """Return for each instance the number of successive intervals in which it was slow.

    Args:
        rates: measured true rates; an instance without a rate, or without a measured sibling, is not slow.
        before: result of the previous interval; when the number of instances changed, those that stay keep their index.
    """
    from statistics import median

    counts = (*before, *(0 for _ in rates))[: len(rates)]
    result = []
    for index, (rate, count) in enumerate(zip(rates, counts, strict=True)):
        siblings = [other for place, other in enumerate(rates) if place != index and other is not None]
        is_slow = rate is not None and bool(siblings) and rate < SLOW_SHARE * median(siblings)
        result.append(count + 1 if is_slow else 0)
    return tuple(result)


def straggler(rates: Sequence[float | None], slow: Sequence[int]) -> int | None:
    """Return the index of the slowest instance that has been slow long enough; None: there is none."""
    candidates = [
        (rate, index) for index, rate in enumerate(rates) if rate is not None and slow[index] >= SLOW_INTERVALS
    ]
    return min(candidates)[1] if candidates else None
