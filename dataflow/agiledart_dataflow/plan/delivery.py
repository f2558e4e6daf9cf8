"""`Delivery`: guarantee for an application, and for the rows that it has emitted, when a node that runs a part of it fails."""

from enum import StrEnum
from typing import Final


class Delivery(StrEnum):
    """Delivery guarantee that a user requests; all of its consequences are properties of it.

    `SURVIVE`: the run restarts as with `AT_LEAST_ONCE`, and saves as little as each step allows (`recovery/…/survival.py`).
    No source and no sink is refused: the user reads before the start what one of them cannot keep.
    `EXACTLY_ONCE`: the run restarts from its last committed epoch, and rows count once their epoch is committed.
    `AT_LEAST_ONCE`: the run restarts, too, but sinks emit rows at once and keep them: rows after the last epoch come again.
    `AT_MOST_ONCE`: nothing is saved, and the run ends with its host.
    """

    SURVIVE = "survive"
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"

    @property
    def is_saved(self) -> bool:
        """True when the run is saved by epochs and survives its hosts."""
        return self is not Delivery.AT_MOST_ONCE

    @property
    def duplicates(self) -> bool:
        """True when sinks emit rows at once and abort none, so that some rows are duplicated after a failure."""
        return self in (Delivery.AT_LEAST_ONCE, Delivery.SURVIVE)

    @property
    def saves_less(self) -> bool:
        """True when a step without state saves nothing, no epoch begins while no rows come, and no source or sink is refused."""
        return self is Delivery.SURVIVE

    def emits_at_once(self, kind: str) -> bool:
        """Return whether a sink of this kind aborts no rows although it could.

        A run that survives cuts files back to its last epoch: their readers see rows at once, and none twice. Readers of a log that
        waited for epochs would see rows seconds later.
        """
        return self is Delivery.AT_LEAST_ONCE or (self is Delivery.SURVIVE and kind == "log")

    @classmethod
    def of(cls, *, is_saved: bool, duplicates: bool, saves_less: bool) -> "Delivery":
        """Return the guarantee with these properties."""
        if not is_saved:
            return cls.AT_MOST_ONCE
        if saves_less:
            return cls.SURVIVE
        return cls.AT_LEAST_ONCE if duplicates else cls.EXACTLY_ONCE

    @classmethod
    def named(cls, word: str) -> "Delivery":
        """Return the guarantee for a user's word; an empty word gives the default. Raises ValueError with a message for the
        user."""
        try:
            return cls(word) if word else DEFAULT
        except ValueError:
            raise ValueError(f"delivery is {' or '.join(map(repr, DELIVERIES))}, not {word!r}") from None


DELIVERIES: Final = tuple(str(delivery) for delivery in Delivery)
DEFAULT: Final = Delivery.SURVIVE
"""Guarantee where neither the topology nor the submission names one."""

SAVING: Final = f'delivery="{DEFAULT}"'
"""Option to submit with so that an application survives its hosts, for messages."""
