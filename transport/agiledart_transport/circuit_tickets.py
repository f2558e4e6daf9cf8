"""Who may use a relay, and how often: tickets for circuits, each good once, for a few seconds, from one address. No I/O.

    booked ── redeemed in time, from the right address ──> open ── ended ──> gone
    booked ── late ──> gone

Booked and open circuits count alike against the bounds, so whoever asks ten thousand times holds no more than eight.
"""

from collections import Counter
from typing import Final, NamedTuple

from agiledart_kernel.errors import Refused
from agiledart_kernel.instants import SECOND

MAX_CIRCUITS: Final = 64
"""Of one relay: each costs two sockets and two buffers."""

MAX_CIRCUITS_OF_PEER: Final = 8
"""Of these, of one key."""

TICKET_NS: Final = 5 * SECOND
"""For which a ticket waits: the asker has it after one round trip and needs another."""


class Booking(NamedTuple):
    """A circuit that somebody may open.

    Args:
        asker: its key; `from_host`: the address from which it asked.
        host, port: where the circuit leads; `says`: bytes that are sent there first: the preface for another relay.
    """

    requester_key: bytes
    from_host: str
    host: str
    port: int
    initial_bytes: bytes = b""


class CircuitTickets:
    """The circuits of one relay."""

    def __init__(self, circuits: int = MAX_CIRCUITS, of_peer: int = MAX_CIRCUITS_OF_PEER) -> None:
        self._most, self._most_of_peer = circuits, of_peer
        self._booked: dict[bytes, tuple[int, Booking]] = {}  # oldest first
        self._by_peer: Counter[bytes] = Counter()
        self.open = 0

    @property
    def held(self) -> int:
        """Circuits that are open or may be opened."""
        return self.open + len(self._booked)

    def check_quota(self, requester_key: bytes, now: int) -> None:
        """Raise `Refused("quota")` unless this key may have one more."""
        self._forget_late(now)
        if self.held >= self._most or self._by_peer[requester_key] >= self._most_of_peer:
            raise Refused("quota", "this relay carries as many circuits as it may")

    def book(self, ticket: bytes, booking: Booking, now: int) -> None:
        """Let a circuit be opened with this ticket; raises `Refused("quota")`."""
        self.check_quota(booking.requester_key, now)
        self._booked[ticket] = (now + TICKET_NS, booking)
        self._by_peer[booking.requester_key] += 1

    def redeem(self, ticket: bytes, from_host: str, now: int) -> Booking:
        """What a ticket is for, once; `ended` must follow. Raises `Refused("ticket")`: unknown, used, late, of another address."""
        self._forget_late(now)
        known = self._booked.get(ticket)
        if known is None or known[1].from_host != from_host:
            raise Refused("ticket", "unknown, used or late, or from another address")
        del self._booked[ticket]
        self.open += 1
        return known[1]

    def ended(self, booking: Booking) -> None:
        """A circuit that was redeemed is over."""
        self.open -= 1
        self._release(booking)

    def _release(self, booking: Booking) -> None:
        self._by_peer[booking.requester_key] -= 1
        if not self._by_peer[booking.requester_key]:
            del self._by_peer[booking.requester_key]

    def _forget_late(self, now: int) -> None:
        while self._booked:
            ticket, (until, booking) = next(iter(self._booked.items()))
            if now < until:
                return
            del self._booked[ticket]
            self._release(booking)
