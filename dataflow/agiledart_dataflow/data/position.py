"""Positions: the order of everything, independent of who was faster (docs/decisions/0003).

A position is a tuple of ints `(event time in ms, kind, source, sequence number, *path)`. All positions on one edge are
equally long. A *mark* is a position too: nothing at or below it will follow.
"""

from typing import Final, TypeAlias

Position: TypeAlias = tuple[int, ...]

END: Final = 2**63 - 1
"""Greater than any path element: `p + (END,)` covers all that the record at p causes."""

START: Final[Position] = (-END,)
"""Below every position; the mark of an input that has not spoken yet."""

BEFORE_ALL_MS: Final = -(2**62)
"""Event time of the rows of a reference table: before all others."""

EXPIRY: Final = 0
"""Kind of what happens by the passing of time; sorts before records of the same time."""

RECORD: Final = 1
"""Kind of what a record causes."""

CAUSE_LENGTH: Final = 4
"""`position[:4]` names the source record, or the expiry, behind a position."""


def final_watermark(time_ms: int | None) -> Position:
    """The mark of END_OF_INPUT, above every position; carries the time of the last record (None: there was none).

    Every instance must learn that time, also one whose last mark was an earlier one: rows leave a sliding window up to it.
    """
    return (END, -END if time_ms is None else time_ms)


def final_behind(watermark: Position, last: Position | int) -> Position:
    """A final mark behind rows that the end of the input brought forth, of which the last has this position or time.

    Downstream they have happened: every instance there must learn how far time has come, also one that gets none of them.
    """
    return final_watermark(max(watermark[1], last if isinstance(last, int) else last[0]))


def is_final(watermark: Position) -> bool:
    """True for the mark of END_OF_INPUT."""
    return watermark[0] == END


def end_of_time(watermark: Position) -> Position:
    """Up to where time has passed: the mark itself, or for a final one the end of the last record's time."""
    return (watermark[1], END) if watermark[0] == END else watermark


def covering(position: Position) -> Position:
    """The mark that says: all that the record at this position causes has been sent."""
    return (*position, END)


def union_padding(depth: int, common: int, branch: int) -> Position:
    """What a union appends to the positions of a branch whose paths have `depth` elements where the longest has `common`."""
    return (-1,) * (common - depth) + (branch,)


def reached(watermark: Position) -> int | None:
    """The event time (ms) up to which a mark says that all is complete; None before the first record."""
    time_ms = end_of_time(watermark)[0]
    return None if time_ms in (-END, BEFORE_ALL_MS) else time_ms
