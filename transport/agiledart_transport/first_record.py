"""Check of a caller's first record before TLS begins: the record stays in the socket, the listener only peeks.

So a caller that sends nothing, or a byte now and then, costs a socket and no TLS. Bytes that are not TLS are refused
unread, except the preface of a circuit, which is accepted.
"""

import asyncio
import socket
from typing import Final

from agiledart_kernel.errors import Refused
from agiledart_transport.circuits import PREFACE, PREFACE_BYTES, ticket_of

_RECORD_HEADER: Final = 5
_HANDSHAKE: Final = 22
_MAX_RECORD: Final = 1 << 14


async def first_record(connection: socket.socket) -> bytes:
    """Wait until the first TLS record of a caller has arrived completely. No byte of it is taken from the socket.

    Returns:
        Empty, or the ticket of a caller that begins with the preface of a circuit. The preface is taken from the
        socket.

    Raises:
        Refused: `tls`, when the bytes are neither, or the caller leaves before its record is complete; `ticket`, for
            half a preface.
    """
    head = await _peek(connection, _RECORD_HEADER)
    if head == PREFACE:
        preface_bytes = await _peek(connection, PREFACE_BYTES)
        return ticket_of(connection.recv(len(preface_bytes)))
    length = int.from_bytes(head[3:5], "big")
    if head[0] != _HANDSHAKE or head[1] != 3 or not 0 < length <= _MAX_RECORD:
        raise Refused("tls", "not a TLS record")
    await _peek(connection, _RECORD_HEADER + length)
    return b""


async def _peek(connection: socket.socket, size: int) -> bytes:
    # the system wakes us once, when all bytes are here
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    try:
        await _readable(connection)
        peeked = connection.recv(size, socket.MSG_PEEK)
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if len(peeked) < min(size, _RECORD_HEADER):
        raise Refused("tls", "the caller left before its first record was complete")
    return peeked


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
