"""Limits of the next micro-batch: pure functions on offsets of partitions.

Rules: a micro-batch ends not before its start, has all partitions of its start, and stays within the committed rows and the limits.
A partition with few rows leaves its share of a limit to the others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", str, int)


@dataclass(frozen=True)
class RetainedRange:
    """Retained rows of one partition: from `first`, committed up to `committed` (exclusive)."""

    first: int
    committed: int


def admitted(start: Mapping[K, int], ends: Mapping[K, int], max_rows: int = 0) -> dict[K, int]:
    """Return the end of the next micro-batch.

    Args:
        start: partition → first offset of the micro-batch.
        ends: partition → greatest end; a missing partition keeps its offset.
        max_rows: greatest number of rows of all partitions together; 0 for no limit.

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


def fair_shares(waiting: Mapping[K, int], budget: int) -> dict[K, int]:
    """Return a max-min fair division of a budget: no partition gets more than its waiting rows, and the rest is shared equally."""
    shares = dict.fromkeys(waiting, 0)
    open_ones = sorted((number, partition) for partition, number in waiting.items())
    for place, (number, partition) in enumerate(open_ones):
        share = min(number, budget // (len(open_ones) - place))
        shares[partition] = share
        budget -= share
    return shares


def ends_within(max_bytes: int, stored: "Mapping[K, Iterator[tuple[int, int]]]") -> dict[K, int]:
    """Return the end of each partition so that all stored batches together have at most `max_bytes`.

    Only whole stored batches count; the partition with the fewest bytes so far is next. The first batch is always admitted, even a
    larger one, so that a query makes progress.

    Args:
        stored: partition → (offset after a stored batch, its bytes) from the start of the micro-batch; read as far as needed.

    Returns:
        The partitions with rows, and their ends.
    """
    ends: dict[K, int] = {}
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
