"""Service levels: shares of items that take at most 1, 2 and 5 times the time that is agreed. Source: [Hochreiner 2017] §5.4."""

from typing import Final

LEVELS: Final[dict[str, float]] = {"real_time": 1.0, "near_real_time": 2.0, "relaxed": 5.0}
"""Level → multiple of the agreed time that an item may take."""
