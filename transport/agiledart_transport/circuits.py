"""Circuits: links whose bytes pass through a relay, which holds no key and reads no frame. The part that both ends need.

The dialer requests a ticket from a relay and connects to the relay's one port. That connection begins with a preface:
`\\0ADT`, a version and the ticket. Behind it bytes pass unchanged, as TLS between the two ends. A TLS record begins
with 22, so a listener tells both apart by the first byte. Source: the shuffle spec, section 12.
"""

from typing import Final, NamedTuple

from agiledart_kernel.errors import Refused

PREFACE: Final = b"\0ADT\x01"
"""First bytes of a preface. The last of them is the version."""

TICKET_BYTES: Final = 16
PREFACE_BYTES: Final = len(PREFACE) + TICKET_BYTES


class Via(NamedTuple):
    """The relay of a link: its address as a socket knows it, the ticket that it issued, and its name for people.

    Args:
        cost: claimed cost of the whole path in slots of 5 ms.
    """

    host: str
    port: int
    ticket: bytes
    name: str = ""
    cost: int = 0


def preface(ticket: bytes) -> bytes:
    """Return the first bytes of a connection to a relay."""
    return PREFACE + ticket


def ticket_of(head: bytes) -> bytes:
    """Return the ticket in a complete preface. Raises `Refused("ticket")`."""
    if len(head) != PREFACE_BYTES or not head.startswith(PREFACE):
        raise Refused("ticket", "no preface of a known version")
    return head[len(PREFACE) :]
