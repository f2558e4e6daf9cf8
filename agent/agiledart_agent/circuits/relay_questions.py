"""Questions to other agents over the service `relay`: links that are dialled when needed, and the answers that are awaited."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Final

from agiledart_agent.circuits.relay_messages import RelayAnswer, RelayMessage
from agiledart_kernel.codec import Codec
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_transport.link import Link

ASK_SECONDS: Final = 1.0
"""Time for one answer of a relay or a target."""

RELAY_CODEC: Codec[RelayMessage] = Codec(RelayMessage)


class RelayQuestions:
    """Links of one agent to the relay services of others.

    Args:
        connect: opens a link to the service `relay` of a peer.
    """

    def __init__(self, connect: Callable[[Peer], Awaitable[Link]]) -> None:
        self._connect = connect
        self._links: dict[NodeId, asyncio.Task[Link]] = {}
        self._asked: dict[int, asyncio.Future[RelayAnswer]] = {}
        self._numbers = itertools.count(1)

    async def ask(
        self, peer: Peer, question: Callable[[int], RelayMessage], seconds: float = ASK_SECONDS
    ) -> tuple[RelayAnswer, Link]:
        """Return the answer of a peer to one question, and the link that brought it. Raises OSError (TimeoutError)."""
        async with asyncio.timeout(seconds):
            link = await self.link_to(peer)
            number = next(self._numbers)
            answer = self._asked[number] = asyncio.get_running_loop().create_future()
            try:
                self.send(link, question(number))
                return await answer, link
            finally:
                del self._asked[number]

    async def link_to(self, peer: Peer) -> Link:
        """Return an open link to the relay service of a peer. Raises OSError, RemoteProtocolError."""
        known = self._links.get(peer.node)
        if known is None or (known.done() and (known.cancelled() or known.exception() or known.result().closed)):
            known = self._links[peer.node] = asyncio.ensure_future(self._dial(peer))
            known.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(known)

    async def _dial(self, peer: Peer) -> Link:
        return await self._connect(peer)

    @staticmethod
    def send(link: Link, message: RelayMessage) -> None:
        """Send a message over a link of this service."""
        link.send(FrameKind.CONTROL, RELAY_CODEC.encode(message))

    def receive_answer(self, message: RelayAnswer) -> None:
        """Hand an answer to the question that waits for it."""
        answer = self._asked.get(message.request)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def closed(self, link: Link) -> None:
        """Forget a link that is gone; the next question dials it afresh."""
        for node, task in list(self._links.items()):
            if task.done() and not task.cancelled() and not task.exception() and task.result() is link:
                del self._links[node]

    async def close(self) -> None:
        """End all dials."""
        for task in self._links.values():
            task.cancel()
        await asyncio.gather(*self._links.values(), return_exceptions=True)
