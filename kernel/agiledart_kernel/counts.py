"""A number of things in a message. Its bound leaves room: one more than the largest can still be written, though not be read."""

from typing import Annotated, Final

import msgspec

MAX_COUNT: Final = 1 << 62
"""Beyond anything that is counted. Who counts on from a number that came in a message stops here, or refuses."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]


def saturating_increment(count: int) -> int:
    """The next number; the last one stays. For numbers from which nothing follows but an order."""
    return min(count + 1, MAX_COUNT)
