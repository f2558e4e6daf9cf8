"""Circuits: a link whose bytes pass through a relay, which holds no key and reads no frame. What both ends of one need.

Whoever wants a circuit asks a relay for a ticket and connects to the relay's one port. That connection begins with a preface,
`\\0ADT`, a version and the ticket; behind it bytes pass as they are, TLS between the two ends. A TLS record begins with 22, so a
listener tells both apart by the first byte. Source: the shuffle spec, section 12.
"""

import asyncio
import socket
from typing import Final, NamedTuple

from agiledart_kernel.errors import Refused

PREFACE: Final = b"\0ADT\x01"
"""Its last byte is the version."""

TICKET_BYTES: Final = 16
PREFACE_BYTES: Final = len(PREFACE) + TICKET_BYTES


class Via(NamedTuple):
    """The relay that a link goes through: its address as a socket knows it, the ticket that it gave, and its name for people.

    Args:
        cost: of the whole way in slots of 5 ms, as it is claimed.
    """

    host: str
    port: int
    ticket: bytes
    name: str = ""
    cost: int = 0


def preface(ticket: bytes) -> bytes:
    """How a connection to a relay begins."""
    return PREFACE + ticket


def ticket_of(head: bytes) -> bytes:
    """The ticket in a whole preface; raises `Refused("ticket")`."""
    if len(head) != PREFACE_BYTES or not head.startswith(PREFACE):
        raise Refused("ticket", "no preface of a version that is known")
    return head[len(PREFACE) :]


async def connect_through_relay(via: Via) -> socket.socket:
    """A connection to a relay on which the bytes of a circuit pass; raises OSError."""
    return await open_connection(via.host, via.port, preface(via.ticket))


async def open_connection(host: str, port: int, initial_bytes: bytes = b"") -> socket.socket:
    """A connection that has said these bytes; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, where = found[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, where)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if initial_bytes:
            await loop.sock_sendall(connection, initial_bytes)
    except BaseException:
        connection.close()
        raise
    return connection
