"""Data beside a row: nothing, its event time, or its position."""

from typing import Final, Literal

Carries = Literal["rows", "times", "positions"]
"""`rows`: only the batch's watermark; `times`: event time (ms) of each row; `positions`: position of each row."""

_RANK: Final[dict[Carries, int]] = {"rows": 0, "times": 1, "positions": 2}


def most(*needs: Carries) -> Carries:
    """Return the greatest of several needs."""
    return max(needs, key=_RANK.__getitem__, default="rows")
