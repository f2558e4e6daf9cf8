"""`NotGreeted`: the reason for which no node at an address is greeted."""

from typing import Final, NamedTuple, Self

from agiledart_transport.connecting import NoHello
from agiledart_transport.link import RefusedByPeer

SILENT_TRIES: Final = 3
BUSY_TRIES: Final = 8
"""Questions to an address that does not answer, and to a node that is there and too busy to greet: they take 35 s at most.

When fifty agents start at one moment on a small machine, the founder is busy for longer than three tries take.
"""

BUSY_REASONS: Final = ("unregistered", "crowded", "full", "descriptors")
"""Refusals of a node that may admit us soon: it, or the ring behind it, has too much to do."""


class NotGreeted(NamedTuple):
    """Reason, for users, for which no node at an address is greeted.

    Attributes:
        tries: number of questions in all that the address is worth; 1: the answer would not change.
    """

    text: str
    tries: int = 1

    @classmethod
    def by(cls, error: Exception, address: str) -> Self:
        """Return the reason for which a dial to this address failed."""
        text = str(error) if str(error).startswith(address) else f"{address}: {error}"
        if isinstance(error, RefusedByPeer):
            return cls(text + _hint(error), BUSY_TRIES if error.reason in BUSY_REASONS else 1)
        if isinstance(error, TimeoutError):
            return cls(text, BUSY_TRIES if isinstance(error, NoHello) else SILENT_TRIES)
        return cls(text)


def _hint(error: RefusedByPeer) -> str:
    """Explain a refusal to users, as far as the peer's own words do not."""
    if error.reason == "not yet valid":
        return " (our clock is ahead of its: compare the two)"
    if str(error) == "protocol":  # agents that refuse us by protocol 5 name the older one themselves
        return " (an older AgileDart runs there: update it)"
    return ""
