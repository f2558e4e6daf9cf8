"""Client of the service `fragments`: brings fragments to replica nodes, and fetches them.

One link to a replica node, dialled on demand and closed when idle. Of fragments of more than one piece, one at a time goes out on a
link; of smaller ones, `MAX_SMALL_PUTS`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agiledart_agent.fragments.fragment_messages import (
    ANSWERS,
    CHUNK_BYTES,
    MAX_SMALL_PUTS,
    REQUESTS,
    FetchedBytes,
    FragmentDescriptor,
    FragmentRefused,
    GetFragment,
    GetSnapshot,
    PutAccepted,
    PutBytes,
    PutCompleted,
    PutFragment,
)
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import RunId
from agiledart_transport.link import Link

A = TypeVar("A", PutAccepted, PutCompleted, FetchedBytes)

IDLE_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 30.0
"""Time without an answer, or a piece, after which a replica node counts as failed."""

Dial = Callable[[Peer, Callable[[Link, int, bytes], None], Callable[[Link, str], None]], Awaitable[Link]]


@dataclass(eq=False)
class _ReplicaLink:
    """Link to one replica node, and the pending requests on it. `address`: of the node when the link was dialled."""

    link: Link | None = None
    address: str = ""
    dialling: asyncio.Lock = field(default_factory=asyncio.Lock)
    putting_small: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_SMALL_PUTS))
    putting_large: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: dict[int, "asyncio.Queue[object]"] = field(default_factory=dict)
    idle: asyncio.TimerHandle | None = None


class FragmentClient:
    """Links to the replica nodes of one agent's fragments, and to the nodes from which it fetches.

    Args:
        dial: opens a verified link of the service to a peer, or raises.

    Attributes:
        bytes_out, bytes_in: of fragments.
    """

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._replica_links: dict[NodeId, _ReplicaLink] = {}
        self._number = 0
        self.bytes_out = self.bytes_in = 0

    async def put(self, peer: Peer, about: FragmentDescriptor, fragment: bytes, attempt: int = 0) -> None:
        """Store a fragment on a replica node. Raises `OperationFailed` with the reason when it is not stored."""
        link_state = self._link_state(peer)
        async with link_state.putting_small if len(fragment) <= CHUNK_BYTES else link_state.putting_large:
            link = await self._link(peer, link_state)
            number, answers = self._ask(link_state)
            try:
                self._send(link, PutFragment(number, about, attempt))
                await self._expect(link, answers, PutAccepted)
                for start in range(0, len(fragment), CHUNK_BYTES):
                    piece = fragment[start : start + CHUNK_BYTES]
                    self._send(link, PutBytes(number, piece))
                    self.bytes_out += len(piece)
                    await link.drain()
                    if not answers.empty():
                        break  # the replica node refused it on the way
                await self._expect(link, answers, PutCompleted)
            except ConnectionError as error:
                raise OperationFailed(str(error)) from None
            finally:
                self._done(link_state, number)

    async def get(self, peer: Peer, key: FragmentKey, digest: bytes, offset: int, length: int, most: int) -> bytes:
        """Return bytes of a fragment; all of it with `length` 0. Raises `OperationFailed`.

        Args:
            most: largest number of bytes that is accepted.
        """
        link_state = self._link_state(peer)
        link = await self._link(peer, link_state)
        number, answers = self._ask(link_state)
        pieces: list[bytes] = []
        taken = 0
        try:
            self._send(link, GetFragment(number, key, digest, offset, length))
            while True:
                piece = await self._expect(link, answers, FetchedBytes)
                pieces.append(piece.data)
                taken += len(piece.data)
                self.bytes_in += len(piece.data)
                if taken > most or (not piece.data and piece.left):
                    raise OperationFailed("the replica node sends more than was requested")
                if not piece.left:
                    break
        finally:
            self._done(link_state, number)
        if length and taken != length:
            raise OperationFailed(f"the replica node sent {taken:,} of {length:,} bytes")
        return b"".join(pieces)

    async def take(self, peer: Peer, run: RunId, digest: bytes, most: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a snapshot, or of a checkpoint, piece by piece. Raises `OperationFailed`.

        Args:
            most: largest number of bytes that is accepted.
        """
        link_state = self._replica_links.setdefault(peer.node, _ReplicaLink())  # a plan may have a former address
        link = await self._link(peer, link_state)
        number, answers = self._ask(link_state)
        taken = 0
        try:
            self._send(link, GetSnapshot(number, run, digest))
            while True:
                piece = await self._expect(link, answers, FetchedBytes)
                taken += len(piece.data)
                self.bytes_in += len(piece.data)
                if taken > most or (not piece.data and piece.left):
                    raise OperationFailed("the node sends more than was requested")
                yield piece.data
                if not piece.left:
                    break
        finally:
            self._done(link_state, number)

    async def close(self) -> None:
        """Close all links."""
        for link_state in self._replica_links.values():
            if link_state.idle is not None:
                link_state.idle.cancel()
            if link_state.link is not None:
                link_state.link.close("leaving")

    # ---- links

    def _link_state(self, peer: Peer) -> _ReplicaLink:
        """Return the link to a node where it is now. One to a former address is cut, with the requests that wait there."""
        link_state = self._replica_links.setdefault(peer.node, _ReplicaLink())
        if link_state.link is not None and link_state.address != peer.address:
            link_state.link.abort(f"{peer.name or peer.node.short} is at {peer.address} now")
        return link_state

    async def _link(self, peer: Peer, link_state: _ReplicaLink) -> Link:
        if link_state.idle is not None:
            link_state.idle.cancel()
            link_state.idle = None
        async with link_state.dialling:
            if link_state.link is None or link_state.link.closed:
                try:
                    link_state.address = peer.address
                    link_state.link = await self._dial(
                        peer,
                        lambda _, kind, body: self._frame(link_state, kind, body),
                        lambda link, reason: self._closed(link_state, link, reason),
                    )
                except (OSError, ValueError, RemoteProtocolError) as error:
                    raise OperationFailed(f"the node cannot be reached: {error}") from None
            return link_state.link

    def _send(self, link: Link, message: PutFragment | PutBytes | GetFragment | GetSnapshot) -> None:
        link.send(FrameKind.CONTROL, REQUESTS.encode(message))

    def _ask(self, link_state: _ReplicaLink) -> "tuple[int, asyncio.Queue[object]]":
        self._number += 1
        answers: asyncio.Queue[object] = asyncio.Queue()
        link_state.asked[self._number] = answers
        return self._number, answers

    def _done(self, link_state: _ReplicaLink, number: int) -> None:
        link_state.asked.pop(number, None)
        if not link_state.asked and link_state.link is not None:
            link_state.idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._is_idle, link_state)

    def _is_idle(self, link_state: _ReplicaLink) -> None:
        if not link_state.asked and link_state.link is not None:
            link_state.link.close("done")

    async def _expect(self, link: Link, answers: "asyncio.Queue[object]", kind: type[A]) -> A:
        try:
            answer = await asyncio.wait_for(answers.get(), ANSWER_SECONDS)
        except TimeoutError:
            link.abort("no answer")  # whatever follows on it would wait as long; the next request dials anew
            raise OperationFailed(f"no answer within {ANSWER_SECONDS:.0f} s") from None
        if isinstance(answer, FragmentRefused):
            raise OperationFailed(f"refused: {answer.text}")
        if not isinstance(answer, kind):
            raise OperationFailed(
                str(answer) if isinstance(answer, str) else "the node sent another answer than the requested one"
            )
        return answer

    def _frame(self, link_state: _ReplicaLink, kind: int, body: bytes) -> None:
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames are taken here")
        answer = ANSWERS.decode(body)
        answers = link_state.asked.get(answer.request)
        if answers is not None:
            answers.put_nowait(answer)

    def _closed(self, link_state: _ReplicaLink, link: Link, reason: str) -> None:
        if link_state.link is link:
            link_state.link = None
            for answers in link_state.asked.values():
                answers.put_nowait(f"the link broke: {reason}")
