"""Positions: the order of everything, independent of who was faster (docs/decisions/0003).

A position is a tuple of ints `(event time in ms, kind, source, sequence number, *path)`. All positions on one edge are
equally long. A *mark* is a position too: nothing at or below it will follow.
"""

from typing import Final, TypeAlias

Position: TypeAlias = tuple[int, ...]

END: Final = 2**63 - 1
"""Greater than any path element: `p + (END,)` covers all that the record at p causes."""

FINAL: Final[Position] = (END,)
"""The mark of END_OF_INPUT: above every position."""

START: Final[Position] = (-END,)
"""Below every position; the mark of an input that has not spoken yet."""

EXPIRY: Final = 0
"""Kind of what happens by the passing of time; sorts before records of the same time."""

RECORD: Final = 1
"""Kind of what a record causes."""

CAUSE_LENGTH: Final = 4
"""`position[:4]` names the source record, or the expiry, behind a position."""


def covering(position: Position) -> Position:
    """The mark that says: all that the record at this position causes has been sent."""
    return (*position, END)


def lifted(position: Position, padding: Position) -> Position:
    """A record's position after a union: padded to the common length, ended by the number of the branch."""
    return position + padding


def union_padding(depth: int, common: int, branch: int) -> Position:
    """What `lifted` appends for a branch whose paths have `depth` elements where the longest has `common`."""
    return (-1,) * (common - depth) + (branch,)
