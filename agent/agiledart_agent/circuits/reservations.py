"""Reservations of an agent that only dials out: links to relays, over which these ask it to connect back for a circuit."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from agiledart_agent.circuits.relay_messages import (
    CircuitRefused,
    ConnectBack,
    RelayAnswer,
    RelayMessage,
    RequestReservation,
    ReservationGranted,
)
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_transport.circuits import preface
from agiledart_transport.connecting import parse_address
from agiledart_transport.link import Link
from agiledart_transport.outgoing import OpenConnection, open_connection

ECHO_SECONDS: Final = 20.0
"""Time between two requests for an echo over the link of a reservation: routers forget links that are idle for longer."""

ECHO_WAIT_SECONDS: Final = 4.0
"""Time for the echo. A relay that does not answer is replaced."""

MAX_CONNECTING: Final = 16
"""Connections to one relay that are being opened at its request; more requests are ignored and counted."""

Ask = Callable[[Peer, Callable[[int], RelayMessage]], Awaitable[tuple[RelayAnswer, Link]]]


class Reservations:
    """Links to relays that lead circuits to this agent.

    Args:
        ask: asks a relay a question over a link that this agent opens.
        take: treats a connection to a relay as one that was accepted; with the link of its reservation.
        hand_over: hands a connection over to an executor here, by its id; returns whether it has.
        changed: called when a reservation was made or lost.
        connection: opens a connection to another node.

    Attributes:
        ignored: requests of relays that had no reservation, or too many at one time.
    """

    def __init__(
        self,
        ask: Ask,
        take: Callable[[socket.socket, Link], None],
        hand_over: Callable[[NodeId, socket.socket], bool],
        changed: Callable[[], None],
        connection: OpenConnection = open_connection,
    ) -> None:
        self._open_connection = connection
        self._ask, self._take, self._hand_over, self._changed = ask, take, hand_over, changed
        self._links: dict[NodeId, Link] = {}
        self._echoes: dict[Link, asyncio.Event] = {}
        self._connecting: dict[Link, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self.ignored = 0

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """Relays with a reservation, the oldest first."""
        return tuple(node for node, link in self._links.items() if not link.closed)

    async def reserve(self, relay: Peer) -> str:
        """Reserve at a relay. Return why that failed; empty when it has worked."""
        try:
            answer, link = await self._ask(relay, RequestReservation)
        except (OSError, ValueError, RemoteProtocolError) as error:
            return str(error) or type(error).__name__
        if not isinstance(answer, ReservationGranted):
            return answer.reason if isinstance(answer, CircuitRefused) else "the relay answers with nonsense"
        if link.closed:
            return "the link to the relay was lost"
        self._links[relay.node] = link
        self._start(self._watch(relay.node, link))
        self._changed()
        return ""

    def drop_all(self) -> None:
        """End all reservations: other nodes reach this agent by a dial."""
        for link in list(self._links.values()):
            link.close("done")

    async def close(self) -> None:
        """End all reservations and connections that were opened for relays."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def echoed(self, link: Link, _body: bytes) -> None:
        """Note an echo on the link to a relay."""
        if (event := self._echoes.get(link)) is not None:
            event.set()

    def connect_back(self, link: Link, asked: ConnectBack) -> None:
        """Connect to the relay for a circuit: for this agent, or for an executor of it."""
        is_mine = any(link is held for held in self._links.values())
        if not is_mine or self._connecting.get(link, 0) >= MAX_CONNECTING:
            self.ignored += 1
            return
        self._connecting[link] = self._connecting.get(link, 0) + 1
        self._start(self._connect(link, asked))

    async def _watch(self, node: NodeId, link: Link) -> None:
        """Ask for echoes until the link is gone."""
        answered = self._echoes[link] = asyncio.Event()
        try:
            while not link.closed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(link.gone), ECHO_SECONDS)
                    break
                answered.clear()
                link.send(FrameKind.PROBE, next(self._numbers).to_bytes(8, "big"))
                try:
                    await asyncio.wait_for(answered.wait(), ECHO_WAIT_SECONDS)
                except TimeoutError:
                    link.abort("stalled")
        finally:
            del self._echoes[link]
            self._connecting.pop(link, None)
            if self._links.get(node) is link:
                del self._links[node]
                self._changed()

    async def _connect(self, link: Link, asked: ConnectBack) -> None:
        try:
            connection = await self._open(link, asked)
        finally:
            if link in self._connecting:
                self._connecting[link] -= 1
        if connection is None:
            return
        if not asked.application:
            self._take(connection, link)
        elif not self._hand_over(asked.executor, connection):
            connection.close()

    async def _open(self, link: Link, asked: ConnectBack) -> socket.socket | None:
        """Connect to the relay. Its address is that of the link of the reservation, never one from a message."""
        host, port = parse_address(link.remote)
        try:
            async with asyncio.timeout(ECHO_WAIT_SECONDS):
                return await self._open_connection(host, port, preface(asked.ticket))
        except OSError:
            return None

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
