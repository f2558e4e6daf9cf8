"""How far the next micro-batch goes: pure functions on offsets of partitions.

Rules: never below where it starts, never without a partition that it starts with, never past what is committed, never past
the limits; a limit is shared so that a partition with few rows leaves its share to the others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RetainedRange:
    """What a log holds of one partition: rows from `first`, committed up to `committed` (exclusive)."""

    first: int
    committed: int


def admitted(start: Mapping[int, int], ends: Mapping[int, int], max_rows: int = 0) -> dict[int, int]:
    """Where the next micro-batch ends.

    Args:
        start: partition → offset at which it begins.
        ends: partition → offset up to which it may go; a partition that is missing stays where it is.
        max_rows: most of all partitions together; 0 for no limit.

    Returns:
        Every partition of both, none below its start.
    """
    begin = {**dict.fromkeys(ends, 0), **start}
    target = {partition: max(offset, ends.get(partition, offset)) for partition, offset in begin.items()}
    waiting = {partition: target[partition] - begin[partition] for partition in begin}
    if not max_rows or sum(waiting.values()) <= max_rows:
        return dict(sorted(target.items()))
    shares = fair_shares(waiting, max_rows)
    return {partition: begin[partition] + shares[partition] for partition in sorted(begin)}


def fair_shares(waiting: Mapping[int, int], budget: int) -> dict[int, int]:
    """A budget divided so that nobody gets more than waits there, and nobody less than others for want of asking."""
    shares = dict.fromkeys(waiting, 0)
    open_ones = sorted((number, partition) for partition, number in waiting.items())
    for place, (number, partition) in enumerate(open_ones):
        share = min(number, budget // (len(open_ones) - place))
        shares[partition] = share
        budget -= share
    return shares


def ends_within(max_bytes: int, stored: "Mapping[int, Iterator[tuple[int, int]]]") -> dict[int, int]:
    """How far each partition may go so that all stored batches together have at most `max_bytes`.

    Whole stored batches only; the partition that got least so far is next. One batch is let in even when it is larger alone:
    a query must get on.

    Args:
        stored: partition → (offset after a stored batch, its bytes) from where the micro-batch begins; asked as far as needed.

    Returns:
        The partitions that get something, and the offset where they end.
    """
    ends: dict[int, int] = {}
    taken = dict.fromkeys(stored, 0)
    total = 0
    while taken:
        partition = min(taken, key=lambda one: (taken[one], one))
        end, size = next(stored[partition], (0, -1))
        if size < 0 or (ends and total + size > max_bytes):
            del taken[partition]
            continue
        ends[partition], taken[partition], total = end, taken[partition] + size, total + size
    return ends
