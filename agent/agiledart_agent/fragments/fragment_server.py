"""Server of the service `fragments` on a replica node: takes fragments from hosts of runs, and returns them.

The node decides which fragments are stored here. Bounds: `MAX_LINKS` peers; for each one incoming fragment of
several pieces, `MAX_SMALL_PUTS` of one piece and `MAX_WAITING` requests; `MAX_AHEAD_BYTES` of unwritten bytes, above which the peer
is not read; `STALL_SECONDS` without a byte, after which an incomplete fragment is dropped.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agiledart_agent.fragments.fragment_file_store import (
    FragmentFileHeader,
    FragmentFileStore,
    FragmentUnavailable,
    FragmentWriter,
)
from agiledart_agent.fragments.fragment_messages import (
    ANSWERS,
    CHUNK_BYTES,
    MAX_SMALL_PUTS,
    REQUESTS,
    FetchedBytes,
    FragmentAnswer,
    FragmentRefused,
    GetFragment,
    GetSnapshot,
    PutAccepted,
    PutBytes,
    PutCompleted,
    PutFragment,
)
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import RunId
from agiledart_sink_log.plain_files import open_plain
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler

MAX_LINKS: Final = 64
MAX_WAITING: Final = 64
MAX_AHEAD_BYTES: Final = 4 << 20
STALL_SECONDS: Final = 30.0

AuthorisePut = Callable[[Peer, FragmentKey, int], Awaitable[tuple[str, str]]]
"""(peer, key, attempt in which the peer is) → why its fragment may not be stored here: reason and text, both empty when it may."""

Find = Callable[[RunId, bytes, NodeId], tuple[Path, int, int] | None]
"""(run, hash, requesting node) → the file with these bytes, their offset in it, their number."""


@dataclass(eq=False)
class _IncomingFragment:
    """One fragment that is being received, and the timer that drops it when no byte arrives."""

    writer: FragmentWriter
    stall: asyncio.TimerHandle

    @property
    def is_small(self) -> bool:
        """Return whether it is one piece."""
        return self.writer.header.about.size <= CHUNK_BYTES


@dataclass(eq=False)
class _ClientLink:
    """One connected peer, and its incoming fragments by request."""

    link: Link
    waiting: deque[GetFragment | PutFragment | GetSnapshot] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None
    coming: dict[int, _IncomingFragment] = field(default_factory=dict)
    ahead: int = 0

    def has_space(self, request: int, size: int) -> bool:
        """Return whether one more fragment of this size may be received."""
        is_small = size <= CHUNK_BYTES
        others = sum(incoming.is_small is is_small for incoming in self.coming.values())
        return request not in self.coming and others < (MAX_SMALL_PUTS if is_small else 1)


class FragmentServer:
    """Service of one agent.

    Args:
        store: its files, used in `thread` only.
        authorise: asks the node.
        stored: called for each fragment that is on the disk, with the peer that brought it.
        count_refused: called with (reason, peer) for each refusal.
        find: looks up the bytes for `GetSnapshot`.

    Attributes:
        answered: by kind of answer; refusals count under their reason.
    """

    def __init__(
        self,
        store: FragmentFileStore,
        thread: ThreadPoolExecutor,
        authorise: AuthorisePut,
        stored: Callable[[FragmentKey, Peer], None],
        count_refused: Callable[[str, str], None],
        find: Find = lambda run, digest, node: None,
    ) -> None:
        self._find = find
        self._store, self._thread, self._authorise, self._stored = store, thread, authorise, stored
        self._count_refused = count_refused
        self._callers: dict[Link, _ClientLink] = {}
        self._loop = asyncio.get_running_loop()
        self.answered: Counter[str] = Counter()

    def accept(self, link: Link) -> LinkHandler:
        """Accept a peer. Its grant's role was verified: only agents of this network come so far."""
        if len(self._callers) >= MAX_LINKS:
            self._count_refused("too many links", link.remote)
            self._loop.call_soon(link.close, "full")
            return LinkHandler(lambda *_: None, lambda *_: None)
        caller = self._callers[link] = _ClientLink(link)
        return LinkHandler(lambda _, kind, body: self._take(caller, kind, body), self._closed)

    def _closed(self, link: Link, reason: str) -> None:
        caller = self._callers.pop(link, None)
        if caller is not None:
            self._drop_all(caller)
            if caller.work is not None:
                caller.work.cancel()
        if reason not in ORDINARY_ENDS:
            self._count_refused(reason, link.remote)

    async def close(self) -> None:
        """Close all links."""
        for caller in list(self._callers.values()):
            caller.link.close("leaving")
            if caller.work is not None:
                caller.work.cancel()
            self._drop_all(caller)

    # ---- frames

    def _take(self, caller: _ClientLink, kind: int, body: bytes) -> None:
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames are taken here")
        message = REQUESTS.decode(body)
        if isinstance(message, PutBytes):
            self._take_bytes(caller, message)
            return
        if len(caller.waiting) >= MAX_WAITING:
            self._refuse(caller, message.request, "busy", f"{MAX_WAITING} requests of this link wait already")
            return
        caller.waiting.append(message)
        if caller.work is None or caller.work.done():
            caller.work = asyncio.create_task(self._serve(caller))

    async def _serve(self, caller: _ClientLink) -> None:
        while caller.waiting:
            message = caller.waiting.popleft()
            try:
                if isinstance(message, PutFragment):
                    await self._put(caller, message)
                elif isinstance(message, GetSnapshot):
                    await self._give(caller, message)
                else:
                    await self._get(caller, message)
            except FragmentUnavailable as error:
                self._refuse(caller, message.request, error.reason, str(error))
            except ConnectionError:
                return

    def _answer(self, caller: _ClientLink, answer: FragmentAnswer) -> None:
        self.answered[answer.reason if isinstance(answer, FragmentRefused) else type(answer).__name__] += 1
        caller.link.send(FrameKind.CONTROL, ANSWERS.encode(answer))

    def _refuse(self, caller: _ClientLink, request: int, reason: str, text: str) -> None:
        if reason in ("form", "not a host", "old attempt"):
            self._count_refused(f"fragment: {reason}", caller.link.remote)
        self._answer(caller, FragmentRefused(request, reason, text[:400]))

    # ---- receiving a fragment

    async def _put(self, caller: _ClientLink, message: PutFragment) -> None:
        if fault := message.about.fault():
            raise FragmentUnavailable("form", fault)
        if not caller.has_space(message.request, message.about.size):
            raise FragmentUnavailable("busy", "other fragments are being received over this link")
        peer = caller.link.peer.as_peer()
        reason, text = await self._authorise(
            peer, message.about.key, message.attempt or message.about.key.checkpoint.attempt
        )
        if reason:
            raise FragmentUnavailable(reason, text)
        header = FragmentFileHeader(message.about, peer.node)
        writer = await self._loop.run_in_executor(self._thread, self._store.begin, header)
        if caller.link.closed:
            await self._loop.run_in_executor(self._thread, writer.drop)
            return
        caller.coming[message.request] = _IncomingFragment(writer, self._stall_timer(caller, message.request))
        self._answer(caller, PutAccepted(message.request))

    def _stall_timer(self, caller: _ClientLink, request: int) -> asyncio.TimerHandle:
        return self._loop.call_later(STALL_SECONDS, self._stalled, caller, request)

    def _stalled(self, caller: _ClientLink, request: int) -> None:
        self._refuse(caller, request, "form", f"no byte arrived within {STALL_SECONDS:.0f} s")
        self._drop_coming(caller, request)

    def _drop_coming(self, caller: _ClientLink, request: int) -> None:
        incoming = caller.coming.pop(request)
        incoming.stall.cancel()
        self._thread.submit(incoming.writer.drop)

    def _drop_all(self, caller: _ClientLink) -> None:
        for request in list(caller.coming):
            self._drop_coming(caller, request)

    def _take_bytes(self, caller: _ClientLink, message: PutBytes) -> None:
        incoming = caller.coming.get(message.request)
        if incoming is None:
            return  # of a refused fragment: bytes in transit still arrive
        writer = incoming.writer
        incoming.stall.cancel()
        incoming.stall = self._stall_timer(caller, message.request)
        caller.ahead += len(message.data)
        if caller.ahead > MAX_AHEAD_BYTES:
            caller.link.pause_reading()

        def work() -> tuple[bool, FragmentUnavailable | None]:
            try:
                writer.write(message.data)
                if writer.left > 0 and message.data:
                    return False, None
                self._store.finish(writer)
            except FragmentUnavailable as error:
                return True, error
            except OSError as error:
                writer.drop()
                return True, FragmentUnavailable(
                    "disk", f"the disk does not take the fragment: {(error.strerror or str(error)).lower()}"
                )
            return True, None

        done = self._loop.run_in_executor(self._thread, work)
        done.add_done_callback(lambda future: self._written(caller, message, writer, future))

    def _written(
        self,
        caller: _ClientLink,
        message: PutBytes,
        writing: FragmentWriter,
        done: "asyncio.Future[tuple[bool, FragmentUnavailable | None]]",
    ) -> None:
        caller.ahead -= len(message.data)
        if caller.ahead <= MAX_AHEAD_BYTES // 2:
            caller.link.resume_reading()
        if done.cancelled():
            return
        is_finished, error = done.result()
        if not is_finished:
            return
        about = writing.header.about
        if error is None:
            self._stored(about.key, caller.link.peer.as_peer())
        incoming = caller.coming.get(message.request)
        if incoming is not None and incoming.writer is writing:
            del caller.coming[message.request]
            incoming.stall.cancel()
            if error is None:
                self._answer(caller, PutCompleted(message.request))
            else:
                self._refuse(caller, message.request, error.reason, str(error))

    # ---- sending a fragment

    async def _get(self, caller: _ClientLink, message: GetFragment) -> None:
        run = self._loop.run_in_executor
        about = await run(self._thread, self._store.about, message.key, message.digest)
        offset, left = message.offset, message.length
        if not left:
            await run(self._thread, self._store.verify, about)
            offset, left = 0, about.size
        if offset + left > about.size:
            raise FragmentUnavailable("form", f"bytes {offset:,} to {offset + left:,} of {about.size:,}")
        while left:
            size = min(CHUNK_BYTES, left)
            data = await run(self._thread, self._store.read, about, offset, size)
            offset, left = offset + size, left - size
            self._answer(caller, FetchedBytes(message.request, data, left))
            await caller.link.drain()

    # ---- sending a snapshot

    async def _give(self, caller: _ClientLink, message: GetSnapshot) -> None:
        location = self._find(message.run, message.digest, caller.link.peer.as_peer().node)
        if location is None:
            raise FragmentUnavailable("missing", "this node does not have it")
        path, offset, left = location
        run = self._loop.run_in_executor
        try:
            while left:
                size = min(CHUNK_BYTES, left)
                data = await run(self._thread, _part_of, path, offset, size)
                offset, left = offset + size, left - size
                self._answer(caller, FetchedBytes(message.request, data, left))
                await caller.link.drain()
        except OSError as error:
            raise FragmentUnavailable("disk", (error.strerror or str(error)).lower()) from None


def _part_of(path: Path, offset: int, size: int) -> bytes:
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(offset)
        data = file.read(size)
    if len(data) != size:
        raise FragmentUnavailable("missing", "the file was cut short")
    return data
