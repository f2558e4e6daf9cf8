"""Punching: a direct connection between two agents whose routers let none in, which both open at one moment.

Each end opens a connection to a member from a port of its own, and learns from that member's HELLO under which address
it is seen. The ends tell each other over their relayed link. Then both connect from that same port.
"""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability
from agiledart_node.reaching.punch_rules import TRIES, PunchRules, is_punchable
from agiledart_node.reaching.reachability_messages import PunchAnswer, PunchMessage, PunchNow, RequestPunch
from agiledart_transport.connecting import parse_address
from agiledart_transport.link import Link

ANSWER_SECONDS: Final = 3.0
"""Time for the answer to a request, and for the moment that follows it."""

TRY_SECONDS: Final = 0.6
"""Time of one try: less than the second after which the kernel sends the first packet again."""

REFUSED_SECONDS: Final = 0.01
"""Time after a refusal before the next packet of the same try."""

MAX_ANSWERING: Final = 4
"""Punches of others at one time."""

SendTo = Callable[[Peer, PunchMessage], None]


class _Mirrored(NamedTuple):
    """A local port and what a member sees of it. The link to that member keeps the router's entry."""

    local: tuple[str, int]
    outside: str
    link: Link


class HolePuncher:
    """Punches of one agent.

    Args:
        me: this node.
        send: sends a message to a peer over the link in use.
        mirror: connects an unconnected socket to a member and returns the link, whose HELLO names the outside address.
        reach: returns how this agent is reached.
        take: treats a connection as one that was accepted here.

    Attributes:
        opened, missed: punches of this agent that have opened a connection, or not.
    """

    def __init__(
        self,
        me: NodeId,
        send: SendTo,
        mirror: Callable[[socket.socket], Awaitable[Link]],
        reach: Callable[[], Reachability],
        take: Callable[[socket.socket], None],
    ) -> None:
        self._send, self._mirror, self._reach, self._take = send, mirror, reach, take
        self._rules = PunchRules(me)
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[PunchAnswer]] = {}
        self._moments: dict[tuple[NodeId, int], asyncio.Queue[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.opened = self.missed = 0

    def is_due(self, peer: Peer) -> bool:
        """Report whether a direct connection to this peer should be tried so."""
        return self._rules.is_due(peer, self._reach(), time.monotonic_ns())

    async def punch(self, peer: Peer) -> socket.socket:
        """Return a direct connection to a peer, which treats it as accepted. Raises OSError."""
        self._rules.failed(peer, self._reach(), time.monotonic_ns())
        try:
            opened = await self._punch(peer)
        except BaseException:
            self.missed += 1
            raise
        self.opened += 1
        self._rules.worked(peer.node)
        return opened

    def receive(self, peer: Peer, message: PunchMessage) -> None:
        """Take a message of a peer."""
        match message:
            case PunchAnswer():
                answer = self._answers.get(message.request)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case PunchNow():
                moments = self._moments.get((peer.node, message.request))
                if moments is not None and moments.qsize() < TRIES:
                    moments.put_nowait(None)
            case RequestPunch():
                if (
                    len(self._moments) >= MAX_ANSWERING
                    or not is_punchable(message.outside)
                    or not self._rules.may_answer(peer.node, time.monotonic_ns())
                ):
                    self._send(peer, PunchAnswer(message.request))
                else:
                    self._start(self._answer(peer, message))

    async def close(self) -> None:
        """End punches for others."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _punch(self, peer: Peer) -> socket.socket:
        mirrored = await self._open_port()
        request = next(self._numbers)
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        try:
            began = time.monotonic_ns()
            self._send(peer, RequestPunch(request, mirrored.outside))
            answered = await asyncio.wait_for(answer, ANSWER_SECONDS)
            round_trip_ns = max(0, time.monotonic_ns() - began - answered.took_ns)
            if not is_punchable(answered.outside):
                raise ConnectionError(f"{peer.name or peer.node.short} does not punch")
            for _ in range(TRIES):
                self._send(peer, PunchNow(request))
                await asyncio.sleep(round_trip_ns / 2e9)
                with contextlib.suppress(OSError):
                    return await _connect_from(mirrored.local, answered.outside)
            raise ConnectionError("the routers let no connection pass")
        finally:
            del self._answers[request]
            mirrored.link.close("done")

    async def _answer(self, peer: Peer, asked: RequestPunch) -> None:
        began = time.monotonic_ns()
        moments = self._moments[peer.node, asked.request] = asyncio.Queue()
        mirrored: _Mirrored | None = None
        try:
            with contextlib.suppress(OSError):
                mirrored = await self._open_port()
            outside = mirrored.outside if mirrored is not None else ""
            self._send(peer, PunchAnswer(asked.request, outside, time.monotonic_ns() - began))
            for _ in range(TRIES if mirrored is not None else 0):
                assert mirrored is not None
                await asyncio.wait_for(moments.get(), ANSWER_SECONDS)
                with contextlib.suppress(OSError):
                    self._take(await _connect_from(mirrored.local, asked.outside))
                    return
        except TimeoutError:
            pass  # the peer has its connection, or has given up
        finally:
            del self._moments[peer.node, asked.request]
            if mirrored is not None:
                mirrored.link.close("done")

    async def _open_port(self) -> _Mirrored:
        """Return a local port with its outside address. Raises OSError."""
        link = await self._mirror(_shared_port_socket(("0.0.0.0", 0)))
        seen = link.peer.hello.seen
        if not is_punchable(seen):
            link.close("done")
            raise ConnectionError("no member says from which address this agent comes")
        return _Mirrored(link.local, seen, link)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shared_port_socket(local: tuple[str, int]) -> socket.socket:
    """Return a socket at a local port that others of this process share."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(local)
    except BaseException:
        made.close()
        raise
    return made


async def _connect_from(local: tuple[str, int], outside: str) -> socket.socket:
    """Return a connection from a local port to an outside address. Raises OSError.

    A router that rejects is asked again: it refuses until its own end has sent a packet.
    """
    async with asyncio.timeout(TRY_SECONDS):
        while True:
            opened = _shared_port_socket(local)
            try:
                await asyncio.get_running_loop().sock_connect(opened, parse_address(outside))
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return opened
            except ConnectionRefusedError:
                opened.close()
                await asyncio.sleep(REFUSED_SECONDS)
            except BaseException:
                opened.close()
                raise
