"""Links to the other nodes of the ring: dialled when there is a message to send, kept while they are used.

A message to a peer without a link waits for the dial, in a queue of bounded length. When the dial fails, the queue is
dropped and counted, and the node gets the event that the link was lost: a hint for its failure detector, which decides.
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
from agiledart_kernel.randomness import RandomStream
from agiledart_node.reaching.reachability_messages import PunchMessage, ReachabilityChanged
from agiledart_transport.link import HIGH_WATER_BYTES, Link
from agiledart_transport.monitored_link import MonitoredLink

MAX_WAITING = 64
"""Messages that wait for one dial; protocols repeat the important ones."""

DIAL_SECONDS = 3.0

SILENT_SECONDS = 10
"""Time for which a link may be silent while no other one to the peer opens; then it is lost."""

LINK_STEP = 100
"""Step, in permille, in which the use of a link is reported."""

Dial = Callable[[Peer, bool], Awaitable[Link]]
"""(peer to dial, whether only directly)."""


class PeerLinks:
    """One link for each peer, whichever side dialled it.

    Args:
        codec: of the messages that travel.
        dial: opens a verified link to a peer, or raises. Also beside a silent one: the first link that answers is used.
        received: called with each message and its sender.
        lost: called when a link broke or could not be opened, and whether the peer's machine refused it: no process
            listens there.
    """

    def __init__(
        self,
        codec: Codec[Any],
        dial: Dial,
        received: Callable[[Peer, Message], None],
        lost: Callable[[NodeId, bool], None],
    ) -> None:
        self._codec, self._dial, self._received, self._lost = codec, dial, received, lost
        self._links: dict[NodeId, Link] = {}
        self._senders: dict[Link, Peer] = {}
        self._dials: dict[NodeId, asyncio.Task[None]] = {}
        self._waiting: dict[NodeId, deque[bytes]] = {}
        self._reported_use: dict[NodeId, int] = {}
        self._kept: dict[NodeId, MonitoredLink] = {}
        self._closed = False
        self.on_punch: Callable[[Peer, PunchMessage], None] = lambda _peer, _message: None
        self.dropped: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Number of peers with an open link."""
        return len(self._links)

    def links(self) -> tuple[Link, ...]:
        """Return all open links, also those that a newer one superseded."""
        return tuple(self._senders)

    @property
    def used(self) -> tuple[Link, ...]:
        """Open links, one for each peer."""
        return tuple(link for link in self._links.values() if not link.closed)

    @property
    def linked(self) -> tuple[Peer, ...]:
        """Peers with an open link."""
        return tuple(self._senders[link] for link in self._links.values() if not link.closed)

    def moved(self) -> list[tuple[NodeId, int]]:
        """Return the peers whose link is used more or less than at the last call, with its use now.

        Use is the queue of bytes to send, in permille of the size at which the link counts as full. A link that takes
        everything at once is at 0, however much goes through it.
        """
        changes = []
        for node, link in self._links.items():
            use = min(1_000, LINK_STEP * (10 * link.unsent_bytes // HIGH_WATER_BYTES))
            if use != self._reported_use.get(node, 0):
                self._reported_use[node] = use
                changes.append((node, use))
        closed = [node for node in self._reported_use if node not in self._links]
        return changes + [(node, 0) for node in closed if self._reported_use.pop(node)]

    def send(self, to: Peer, message: Message) -> None:
        """Send now, or when the dial succeeds; the message may be lost."""
        body = self._codec.encode(message)
        link = self._links.get(to.node)
        if link is not None and not link.closed and self._senders[link].incarnation >= to.incarnation:
            link.send(FrameKind.CONTROL, body)  # the link itself cuts off a peer that does not read
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
            link = await asyncio.wait_for(self._dial(to, False), DIAL_SECONDS)
            if link.closed:
                raise ConnectionResetError("closed as soon as it was open")
        except (
            OSError,
            TimeoutError,
            ValueError,
            RemoteProtocolError,
        ) as error:  # ValueError: an invalid address of a peer
            self.dropped["no link"] += len(self._waiting.pop(to.node, ()))
            self._dials.pop(to.node, None)
            self._lost(to.node, isinstance(error, ConnectionRefusedError))
            return
        except BaseException:  # our bug, or cancelled: it must not keep the next message from dialling
            self._dials.pop(to.node, None)
            raise
        self._dials.pop(to.node, None)
        self.adopt(link)

    def adopt(self, link: Link) -> None:
        """Use a verified link, dialled or accepted. A newer incarnation of a node supersedes its older link."""
        sender = link.peer.as_peer()
        current = self._links.get(sender.node)
        if current is not None and self._senders[current].incarnation == sender.incarnation:
            sender = sender.with_reach(self._senders[current].reach)
        self._senders[link] = sender
        if current is None or current.closed or self._senders[current].incarnation <= sender.incarnation:
            self._links[sender.node] = link
            self._keep(sender, link)
            if current is not None and self._senders[current].incarnation < sender.incarnation:
                current.abort("lost")  # that process has ended, though its machine may not have said so
        for body in self._waiting.pop(sender.node, ()):
            link.send(FrameKind.CONTROL, body)

    def _keep(self, peer: Peer, link: Link) -> None:
        """Monitor the link that is used for a peer."""
        if (known := self._kept.get(peer.node)) is not None:
            if known.link is link:
                return  # the monitor has just switched to this link
            known.close()
        self._kept[peer.node] = MonitoredLink(
            link,
            peer.name or peer.node.short,
            lambda timeout, directly: asyncio.wait_for(self._dial(peer, directly), timeout),
            SILENT_SECONDS,
            RandomStream(peer.incarnation, "peer link", peer.node.hex),
            self.adopt,
            lambda _: self._links[peer.node].abort("stalled"),
        )

    def look(self) -> None:
        """Check which links answer. The owner calls this about once a second."""
        for monitored in list(self._kept.values()):
            monitored.look()

    def echoed(self, link: Link, body: bytes) -> None:
        """Note that a link has answered a probe."""
        sender = self._senders.get(link)
        if sender is not None and (monitored := self._kept.get(sender.node)) is not None:
            monitored.echoed(link, body)

    def frame(self, link: Link, kind: int, body: bytes) -> None:
        """Take a frame. Raises RemoteProtocolError when it is not a message between agents (the link then closes)."""
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames travel between agents")
        sender = self._senders.get(link) or link.peer.as_peer()  # a first frame may come before `adopt`
        message = self._codec.decode(body)
        if isinstance(message, ReachabilityChanged):
            if link in self._senders:
                self._senders[link] = sender.with_reach(message.reach)
        elif isinstance(message, PunchMessage):
            self.on_punch(sender, message)
        else:
            self._received(sender, message)

    def announce(self, message: Message, feature: str) -> None:
        """Send a message over every open link whose other end has a feature."""
        body = self._codec.encode(message)
        for link in self._links.values():
            if feature in link.peer.hello.features:
                link.send(FrameKind.CONTROL, body)

    def closed(self, link: Link) -> None:
        """Note that a link has ended, for any reason."""
        sender = self._senders.pop(link, None)
        if sender is not None and self._links.get(sender.node) is link:
            del self._links[sender.node]
            self._kept.pop(sender.node).close()  # the next message dials the peer again
            if not self._closed:
                self._lost(sender.node, False)

    async def close(self) -> None:
        """Close all links and cancel all dials."""
        self._closed = True
        for monitored in self._kept.values():
            monitored.close()
        for task in self._dials.values():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._dials.values(), return_exceptions=True)
        for link in list(self._senders):
            link.close("leaving")
