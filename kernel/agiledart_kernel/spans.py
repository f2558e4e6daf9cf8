"""Lengths of time as users write them: `30m`, `1h30m`, `250ms`, `2d`."""

import re
from datetime import timedelta

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)\s*")


def parse_span(text: str) -> timedelta:
    """Parse a time span such as `30m`, `1h30m`, `250ms` or `2d`. Raises ValueError, also for a number (not 0) without a unit."""
    compact = text.strip().lower()
    parts = _SPAN.findall(compact)
    if parts and _SPAN.sub("", compact) == "":
        try:
            return timedelta(seconds=sum(float(count) * _UNITS[unit] for count, unit in parts))
        except OverflowError:
            raise ValueError(f"{text} is longer than any time") from None
    if float(compact) == 0:
        return timedelta(0)
    raise ValueError(f"{text} has no unit")
