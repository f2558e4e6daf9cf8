"""Times in data without a declared form: with or without a zone, or as numbers since 1970."""

from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

_UNITS: Final = ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (float("inf"), 1_000_000_000))
"""A number of seconds since 1970 is below 1e11 until the year 5138, one of milliseconds is above it since March 1973; and so on."""


def loose_time(value: Any) -> datetime:
    """Return a time without a zone, in UTC: from a time with or without one, or from a number of s, ms, µs or ns since 1970 (by its
    size).

    Raises ValueError for any other value.
    """
    if isinstance(value, datetime):
        return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is not a time")
    size = abs(value)
    unit = next((unit for bound, unit in _UNITS if size < bound), 0)
    if not unit or not isfinite(size):
        raise ValueError(f"{value!r} is not a time")
    whole, part = divmod(value, unit) if type(value) is int else (value // unit, value % unit)
    try:
        return datetime.fromtimestamp(int(whole), UTC).replace(tzinfo=None, microsecond=int(part * 1_000_000 // unit))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{value!r} is not a time") from None
