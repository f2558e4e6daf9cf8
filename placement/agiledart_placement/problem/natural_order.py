"""Order of names as people count: `n2` before `n10`."""

import re

_DIGITS = re.compile(r"([0-9]+)")


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key: runs of digits compare as numbers."""
    parts = _DIGITS.split(name)
    return tuple((int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts) if part)
