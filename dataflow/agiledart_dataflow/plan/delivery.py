"""`Delivery`: what becomes of an application, and of the rows that it has shown, when a node dies that runs a part of it."""

from enum import StrEnum
from typing import Final


class Delivery(StrEnum):
    """What a user asks for; all that follows from the word is a property of it.

    `EXACTLY_ONCE`: it is brought back from its last committed epoch, and rows count when their epoch is committed.
    `AT_LEAST_ONCE`: it is brought back, too, but rows are shown at once and stay: those behind the last epoch come again.
    `AT_MOST_ONCE`: nothing is saved, and it ends with its host.
    """

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"

    @property
    def is_saved(self) -> bool:
        """The run is saved by epochs, and survives its hosts."""
        return self is not Delivery.AT_MOST_ONCE

    @property
    def duplicates(self) -> bool:
        """Sinks show rows at once and take none back, so that some are there again after a failure."""
        return self is Delivery.AT_LEAST_ONCE

    @classmethod
    def of(cls, *, is_saved: bool, duplicates: bool) -> "Delivery":
        """The one with these properties."""
        if not is_saved:
            return cls.AT_MOST_ONCE
        return cls.AT_LEAST_ONCE if duplicates else cls.EXACTLY_ONCE

    @classmethod
    def named(cls, word: str) -> "Delivery":
        """By what a user wrote; nothing is the default. Raises ValueError, with a sentence for the user."""
        try:
            return cls(word) if word else DEFAULT
        except ValueError:
            raise ValueError(f"delivery is {' or '.join(map(repr, DELIVERIES))}, not {word!r}") from None


DELIVERIES: Final = tuple(str(one) for one in Delivery)
DEFAULT: Final = Delivery.AT_MOST_ONCE
"""Where neither the topology nor who submits it says a word."""

SAVING: Final = " or ".join(f'delivery="{one}"' for one in Delivery if one.is_saved)
"""For messages that say what to submit with, so that an application survives its hosts."""
