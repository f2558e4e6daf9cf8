"""Links to the other nodes of the ring: dialled when there is something to say, kept while they are used.

A message to a peer without a link waits for the dial, in a queue of bounded length; when the dial fails, the queue is
dropped and counted, and the node is told that the link was lost: a hint for its failure detector, which decides.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_transport.framed import HIGH_WATER_BYTES, Link

MAX_WAITING = 64
"""Messages that wait for one dial; protocols repeat what matters."""

DIAL_SECONDS = 3.0

LINK_STEP = 100
"""Permille in which the use of a link is told."""

Dial = Callable[[Peer], Awaitable[Link]]


class PeerLinks:
    """One link a peer, whoever dialled it.

    Args:
        codec: of the messages that travel.
        dial: opens a verified link to a peer, or raises.
        received: called with each message and its sender.
        lost: called when a link broke or could not be opened.
    """

    def __init__(
        self,
        codec: Codec[Any],
        dial: Dial,
        received: Callable[[Peer, Message], None],
        lost: Callable[[NodeId], None],
    ) -> None:
        self._codec, self._dial, self._received, self._lost = codec, dial, received, lost
        self._links: dict[NodeId, Link] = {}
        self._senders: dict[Link, Peer] = {}
        self._dials: dict[NodeId, asyncio.Task[None]] = {}
        self._waiting: dict[NodeId, deque[bytes]] = {}
        self._told_use: dict[NodeId, int] = {}
        self._closed = False
        self.dropped: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Peers with an open link."""
        return len(self._links)

    def links(self) -> tuple[Link, ...]:
        """All that are open, also those that a younger one superseded."""
        return tuple(self._senders)

    def moved(self) -> list[tuple[NodeId, int]]:
        """Peers whose link is used more or less than at the last look, with its use now.

        Use is what waits to be sent, in permille of what may wait before the link counts as full: a link that takes
        everything at once is at 0, whatever goes through it.
        """
        found = []
        for node, link in self._links.items():
            use = min(1_000, LINK_STEP * (10 * link.unsent_bytes // HIGH_WATER_BYTES))
            if use != self._told_use.get(node, 0):
                self._told_use[node] = use
                found.append((node, use))
        closed = [node for node in self._told_use if node not in self._links]
        return found + [(node, 0) for node in closed if self._told_use.pop(node)]

    def send(self, to: Peer, message: Message) -> None:
        """Send now, or when the dial succeeds; may be lost."""
        body = self._codec.encode(message)
        link = self._links.get(to.node)
        if link is not None and not link.closed:
            link.send(FrameKind.CONTROL, body)  # a peer that does not read is cut off by the link itself
            return
        waiting = self._waiting.setdefault(to.node, deque())
        if len(waiting) >= MAX_WAITING:
            self.dropped["dialling"] += 1
        else:
            waiting.append(body)
        if to.node not in self._dials and not self._closed:
            self._dials[to.node] = asyncio.create_task(self._open(to))

    async def _open(self, to: Peer) -> None:
        try:
            link = await asyncio.wait_for(self._dial(to), DIAL_SECONDS)
            if link.closed:
                raise ConnectionResetError("closed as soon as it was open")
        except (OSError, TimeoutError, ValueError, RemoteProtocolError):  # ValueError: a peer's address that is none
            self.dropped["no link"] += len(self._waiting.pop(to.node, ()))
            self._dials.pop(to.node, None)
            self._lost(to.node)
            return
        self._dials.pop(to.node, None)
        self.adopt(link)

    def adopt(self, link: Link) -> None:
        """Use a verified link, dialled or accepted. A younger life of a node supersedes its older link."""
        sender = link.peer.as_peer()
        self._senders[link] = sender
        current = self._links.get(sender.node)
        if current is None or current.closed or self._senders[current].incarnation <= sender.incarnation:
            self._links[sender.node] = link
        for body in self._waiting.pop(sender.node, ()):
            link.send(FrameKind.CONTROL, body)

    def frame(self, link: Link, kind: int, body: bytes) -> None:
        """A frame came in; raises RemoteProtocolError when it is none of ours (the link then closes)."""
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames travel between agents")
        sender = self._senders.get(link) or link.peer.as_peer()  # a first frame may come before `adopt`
        self._received(sender, self._codec.decode(body))

    def closed(self, link: Link) -> None:
        """A link ended, for whatever reason."""
        sender = self._senders.pop(link, None)
        if sender is not None and self._links.get(sender.node) is link:
            del self._links[sender.node]
            if not self._closed:
                self._lost(sender.node)

    async def close(self) -> None:
        """Close all links and give up all dials."""
        self._closed = True
        for task in self._dials.values():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._dials.values(), return_exceptions=True)
        for link in list(self._senders):
            link.close("leaving")
