"""Connections that agents with a reservation open to this relay at its request."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping

from agiledart_agent.circuits.relay_messages import ConnectBack, RelayMessage
from agiledart_kernel.node_id import NodeId
from agiledart_transport.circuit_tickets import Callee
from agiledart_transport.circuits import TICKET_BYTES
from agiledart_transport.link import Link


class AwaitedCallers:
    """Connections that are awaited, by their tickets.

    Args:
        reserved: links of the agents with a reservation.
        send: sends a message over such a link.
    """

    def __init__(self, reserved: Mapping[NodeId, Link], send: Callable[[Link, RelayMessage], None]) -> None:
        self._reserved, self._send = reserved, send
        self._awaited: dict[bytes, asyncio.Future[socket.socket]] = {}

    async def connection_of(self, callee: Callee) -> socket.socket:
        """Return the connection that an agent with a reservation opens on request. Raises OSError."""
        target, application, executor = callee
        link = self._reserved.get(target)
        if link is None or link.closed:
            raise ConnectionError("the agent with the reservation is gone")
        ticket = secrets.token_bytes(TICKET_BYTES)
        connection: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._awaited[ticket] = connection
        self._send(link, ConnectBack(ticket, application, executor))
        try:
            return await connection
        except asyncio.CancelledError:
            if connection.done() and not connection.cancelled():
                connection.result().close()
            raise
        finally:
            self._awaited.pop(ticket, None)

    def take(self, connection: socket.socket, ticket: bytes) -> bool:
        """Take a connection with this ticket, if one is awaited; return whether that is so."""
        awaited = self._awaited.pop(ticket, None)
        if awaited is None or awaited.done():
            return False
        awaited.set_result(connection)
        return True
