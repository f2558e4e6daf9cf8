"""Check of the wall clock before certificates are made by it."""

from datetime import UTC, datetime
from typing import Final

from agiledart_kernel.errors import OperationFailed

RELEASED: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""A correct clock shows no earlier time than this: the software did not exist."""


class ClockIsWrong(OperationFailed):
    """The wall clock shows an impossible time."""


def check_clock(wall_seconds: float) -> None:
    """Raise `ClockIsWrong` when the wall clock cannot be correct."""
    if wall_seconds < RELEASED.timestamp():
        shown = datetime.fromtimestamp(max(0.0, wall_seconds), UTC).date()
        raise ClockIsWrong(
            f"The clock of this node says {shown}: certificates and event times would be wrong. "
            "Set it (sudo timedatectl set-ntp true)"
        )
