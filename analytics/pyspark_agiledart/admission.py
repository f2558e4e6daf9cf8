"""How far the next micro-batch goes: pure functions on offsets of partitions.

Rules: never below where it starts, never without a partition that it starts with, never past what is committed, never past
the limits; a limit is shared so that a partition with few rows leaves its share to the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
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


def rows_within(max_bytes: int, row_bytes: float) -> int:
    """How many rows of a mean size go into so many bytes, at least one: a batch must get on."""
    return max(1, int(max_bytes / row_bytes)) if row_bytes > 0 else 1
