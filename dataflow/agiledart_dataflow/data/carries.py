"""What may go with a row: nothing, its event time, its position."""

from typing import Final, Literal

Carries = Literal["rows", "times", "positions"]
"""`rows`: nothing but the batch's mark; `times`: event time (ms) of each row; `positions`: position of each row."""

_RANK: Final[dict[Carries, int]] = {"rows": 0, "times": 1, "positions": 2}

STATELESS: Final = frozenset({"map", "filter", "flat_map", "where", "with_columns", "select", "map_batches"})
"""Kinds of steps that treat each row by itself: they join the stage before them."""


def most(*needs: Carries) -> Carries:
    """The greatest of several needs."""
    return max(needs, key=_RANK.__getitem__, default="rows")
