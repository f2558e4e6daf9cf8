"""Tickets for circuits: which key may use a relay, and how often. A ticket is valid once, for a few seconds.

It is not bound to an address, since the routers of some providers use several for one host.

    booked ── redeemed in time ──> open ── ended ──> gone
    booked ── late ──> gone

Booked and open circuits count alike against the bounds, so a peer that requests ten thousand circuits holds no more
than its share. So does a machine with many keys (`fair_shares`). This module does no I/O.
"""

import ipaddress
from collections import Counter
from typing import Final, NamedTuple

from agiledart_kernel.errors import Refused
from agiledart_kernel.fair_shares import fits_share
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId

MAX_CIRCUITS: Final = 256
"""Circuits of one relay at one time: each costs two sockets, and buffers while bytes pass."""

MAX_CIRCUITS_OF_PEER: Final = 96
"""Circuits of one key, out of `MAX_CIRCUITS`: a node that only dials out reaches its leaf set through two relays."""

TICKET_NS: Final = 5 * SECOND
"""Validity of a ticket: the requester has it after one round trip and needs another."""


Callee = tuple[NodeId, str, NodeId]
"""An agent with a reservation, and application and id of its executor; empty and 0: the agent itself."""


class Booking(NamedTuple):
    """A circuit that a requester may open.

    Args:
        requester_key: public key of the requester.
        host, port: the address to which the circuit leads; empty and 0 with a callee.
        initial_bytes: bytes that the relay sends there first: the preface for another relay.
        callee: agent that must connect to the relay; application and id of its executor when the circuit ends there.
        origin: network from which the requester comes (`origin_of`); empty: this agent itself.
    """

    requester_key: bytes
    host: str = ""
    port: int = 0
    initial_bytes: bytes = b""
    callee: Callee | None = None
    origin: str = ""


def origin_of(remote: str) -> str:
    """Return the network at HOST:PORT that counts as one: an IPv4 address, or the 64 bits that an IPv6 subscriber has."""
    host = remote.rpartition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


class CircuitTickets:
    """Tickets and open circuits of one relay."""

    def __init__(self, circuits: int = MAX_CIRCUITS, of_peer: int = MAX_CIRCUITS_OF_PEER) -> None:
        self._most, self._most_of_peer = circuits, of_peer
        self._booked: dict[bytes, tuple[int, Booking]] = {}  # oldest first
        self._by_peer: Counter[bytes] = Counter()
        self._by_origin: Counter[str] = Counter()
        self.open = 0

    @property
    def held(self) -> int:
        """Number of circuits that are open or may be opened."""
        return self.open + len(self._booked)

    def check_quota(self, requester_key: bytes, now: int, origin: str = "") -> None:
        """Raise `Refused("quota")` unless this key, and the network that it comes from, may have one more circuit."""
        self._forget_late(now)
        if self.held >= self._most or self._by_peer[requester_key] >= self._most_of_peer:
            raise Refused("quota", "this relay carries as many circuits as it may")
        if origin and not fits_share(self._by_origin[origin], 1, self.held, self._most):
            raise Refused("quota", "this relay carries as many circuits from there as it may")

    def book(self, ticket: bytes, booking: Booking, now: int) -> None:
        """Allow one circuit to be opened with this ticket. Raises `Refused("quota")`."""
        self.check_quota(booking.requester_key, now, booking.origin)
        self._booked[ticket] = (now + TICKET_NS, booking)
        self._by_peer[booking.requester_key] += 1
        self._by_origin[booking.origin] += 1

    def redeem(self, ticket: bytes, now: int) -> Booking:
        """Return the booking of a ticket, once. The caller must call `ended` later.

        Raises `Refused("ticket")` when the ticket is unknown, used or late.
        """
        self._forget_late(now)
        known = self._booked.get(ticket)
        if known is None:
            raise Refused("ticket", "unknown, used or late")
        del self._booked[ticket]
        self.open += 1
        return known[1]

    def ended(self, booking: Booking) -> None:
        """Release a redeemed circuit that has ended."""
        self.open -= 1
        self._release(booking)

    def _release(self, booking: Booking) -> None:
        self._by_peer[booking.requester_key] -= 1
        if not self._by_peer[booking.requester_key]:
            del self._by_peer[booking.requester_key]
        self._by_origin[booking.origin] -= 1
        if not self._by_origin[booking.origin]:
            del self._by_origin[booking.origin]

    def _forget_late(self, now: int) -> None:
        while self._booked:
            ticket, (until, booking) = next(iter(self._booked.items()))
            if now < until:
                return
            del self._booked[ticket]
            self._release(booking)
