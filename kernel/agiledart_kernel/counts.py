"""Number of things in a message.

Its bound leaves space: a number one above the largest can still be written, though not read.
"""

from typing import Annotated, Final

import msgspec

MAX_COUNT: Final = 1 << 62
"""Largest count: beyond anything that is counted. Code that counts on from a number in a message stops here, or refuses."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


def saturating_increment(count: int) -> int:
    """Return the next number; the largest stays as it is. For numbers that only order things."""
    return min(count + 1, MAX_COUNT)
