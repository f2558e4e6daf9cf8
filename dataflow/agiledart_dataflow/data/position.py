"""Positions: the order of all rows and events, independent of timing (docs/decisions/0003).

A position is a tuple of ints `(event time in ms, kind, source, sequence number, *path)`. All positions on one edge are
equally long. A *watermark* is a position too: nothing at or below it will follow.
"""

from typing import Final, TypeAlias

Position: TypeAlias = tuple[int, ...]

END: Final = 2**63 - 1
"""Number greater than any part of a path: `p + (END,)` covers all that the record at p causes."""

START: Final[Position] = (-END,)
"""Position below every other; the watermark of an input from which nothing has come yet."""

BEFORE_ALL_MS: Final = -(2**62)
"""Event time of the rows of a reference table: before all others."""

EXPIRY: Final = 0
"""Kind of events that the passing of time causes; sorts before records of the same time."""

RECORD: Final = 1
"""Kind of events that a record causes."""

CAUSE_LENGTH: Final = 4
"""Length of the part of a position that names its cause: `position[:4]` is the source record, or the expiry."""


def final_watermark(time_ms: int | None) -> Position:
    """Return the watermark of END_OF_INPUT, above every position; it carries the time of the last record (None: there was none).

    Every instance must learn that time, even if its last watermark was earlier: rows leave a sliding window up to it.
    """
    return (END, -END if time_ms is None else time_ms)


def final_behind(watermark: Position, last: Position | int) -> Position:
    """Return a final watermark after rows that the end of the input caused; `last` is the position or time of the last one.

    Downstream these rows have happened: every instance there must learn how far time has come, even if it gets none of them.
    """
    return final_watermark(max(watermark[1], last if isinstance(last, int) else last[0]))


def is_final(watermark: Position) -> bool:
    """Return whether this is the watermark of END_OF_INPUT."""
    return watermark[0] == END


def end_of_time(watermark: Position) -> Position:
    """Return the position up to which time has passed: the watermark itself, or for a final one the end of the last record's
    time."""
    return (watermark[1], END) if watermark[0] == END else watermark


def covering(position: Position) -> Position:
    """Return the watermark after all that the record at this position causes."""
    return (*position, END)


def union_padding(depth: int, common: int, branch: int) -> Position:
    """Return the numbers that a union appends to positions whose path has length `depth`, where the longest has length `common`."""
    return (-1,) * (common - depth) + (branch,)


def reached(watermark: Position) -> int | None:
    """Return the event time (ms) up to which a watermark states completeness; None before the first record."""
    time_ms = end_of_time(watermark)[0]
    return None if time_ms in (-END, BEFORE_ALL_MS) else time_ms
