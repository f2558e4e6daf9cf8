"""The first record of a caller, looked at before TLS is begun for it: the system keeps it, we only peek.

So a caller that says nothing, or a byte now and then, costs a socket and no TLS; and what is no TLS at all is refused unread, but
for the preface of a circuit, which is taken.
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
    """Wait until the first TLS record of a caller has come as a whole; nothing of it is taken from the socket.

    Returns:
        Empty, or the ticket of a caller that begins with the preface of a circuit; the preface is taken from the socket.

    Raises:
        Refused: `tls`, when what comes is neither, or the caller goes before it is whole; `ticket`, for half a preface.
    """
    head = await _peek(connection, _RECORD_HEADER)
    if head == PREFACE:
        whole = await _peek(connection, PREFACE_BYTES)
        return ticket_of(connection.recv(len(whole)))
    length = int.from_bytes(head[3:5], "big")
    if head[0] != _HANDSHAKE or head[1] != 3 or not 0 < length <= _MAX_RECORD:
        raise Refused("tls", "no TLS record")
    await _peek(connection, _RECORD_HEADER + length)
    return b""


async def _peek(connection: socket.socket, size: int) -> bytes:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)  # the system wakes us once, when all is here
    try:
        await _readable(connection)
        found = connection.recv(size, socket.MSG_PEEK)
    finally:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    if len(found) < min(size, _RECORD_HEADER):
        raise Refused("tls", "gone before its first record")
    return found


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
