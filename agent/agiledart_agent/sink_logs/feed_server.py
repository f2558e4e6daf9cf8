"""Server of this node's feeds: it stages rows of writers and publishes them, batch by batch.

Threads work on the files, never the event loop; each feed has one thread at a time. Bounds: `MAX_WRITERS` connections with
`MAX_WAITING` requests each. Beyond that the server answers `overloaded`, and writers try again.
"""

import asyncio
import errno
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agiledart_agent.sink_logs.sink_log_server import RelayTo, no_relay
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import BusyError, OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import FEED_PREFIX, FeedOwnership, LogOwnership, Principal, feed_write_refusal
from agiledart_node.records.sink_directory import RegisterSink, SinkFound, SinkRecord
from agiledart_node.wire.commands import CreateFeed, RemoveFeed
from agiledart_node.wire.feed_messages import ChangeFeed, FeedInfo, ReadFeeds
from agiledart_sink_log.feed import (
    DEFAULT_MAX_BYTES,
    Feed,
    FeedDescription,
    SchemaMismatch,
    create_feed,
    feeds_in,
    remove_feed,
)
from agiledart_sink_log.feed_protocol import (
    FULL,
    INVALID,
    LOST_STAGE,
    UNKNOWN_FEED,
    BatchDropped,
    BatchPublished,
    DropBatch,
    FeedAnswer,
    FeedLocated,
    FeedRefused,
    FeedRequest,
    LocateFeed,
    PublishBatch,
    RowsStaged,
    StageRows,
    feed_name_fault,
)
from agiledart_sink_log.feed_stages import StageLost, StagesFull, StageTooLarge
from agiledart_sink_log.layout import log_directory, read_description, segments_of
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler
from agiledart_transport.request_reasons import ELSEWHERE, NOT_ALLOWED, OVERLOADED, UNAVAILABLE

MAX_WRITERS: Final = 64
MAX_WAITING: Final = 8
MAX_FEEDS: Final = 1_024
THREADS: Final = 2
EXPIRY_SECONDS: Final = 600.0
"""Time between two checks for stages that no writer goes on with."""

REQUESTS: Codec[FeedRequest] = Codec(FeedRequest)
ANSWERS: Codec[FeedAnswer] = Codec(FeedAnswer)

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(eq=False)
class _WriterConnection:
    """One connected writer."""

    link: Link
    waiting: deque[FeedRequest] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None


class FeedServer:
    """Service `feed` of one agent.

    Args:
        root: the state directory, above `feeds`.
        me: returns this node as others reach it.
        feed: takes events for the node.
        find: looks up a log or feed on the ring.
        note_logs: called when a feed was created or has published: it registers this node's logs with the ring.
        count_refused: called with (reason, requester) for each request that is not permitted.
        audit_refused: takes (requester, origin, log, reason, sentence) of each of them, for the audit.

    Attributes:
        answered: requests by kind of answer, for metrics; refusals count under their reason.
        rows_published: rows of batches that counted since the start.
    """

    def __init__(
        self,
        root: Path,
        me: Callable[[], Peer],
        feed: Callable[[Event], None],
        find: Callable[[str], Coroutine[Any, Any, SinkFound]],
        note_logs: Callable[[], None],
        count_refused: Callable[[str, str], None],
        audit_refused: Callable[[Principal, str, LogOwnership, str, str], None],
        relay_to: RelayTo = no_relay,
    ) -> None:
        self._relay_to = relay_to
        self._root, self._me, self._feed, self._find, self._note_logs = root, me, feed, find, note_logs
        self._count_refused, self._audit_refused = count_refused, audit_refused
        self._connections: dict[Link, _WriterConnection] = {}
        self._feeds: dict[str, tuple[Feed, asyncio.Lock]] = {}
        self._threads = ThreadPoolExecutor(THREADS, "feed")
        self.answered: Counter[str] = Counter()
        self.rows_published = 0

    def note_feeds(self) -> None:
        """Register the feeds here that have no log yet with the ring; a log registers itself."""
        for name in feeds_in(self._root):
            try:
                feed, _ = self._open(name)
                if read_description(log_directory(self._root, name)) is not None:
                    continue
            except OperationFailed:
                continue  # damaged, as `damaged` says
            about = name, f"{FEED_PREFIX}{name}", 0, self._me(), feed.description.created_ms
            self._feed(RegisterSink(SinkRecord(*about, "", b"{}", 1, feed.owner)))

    def damaged(self) -> list[str]:
        """Return a sentence about each feed here that cannot be read."""
        sentences = []
        for name in feeds_in(self._root):
            try:
                self._open(name)
            except OperationFailed as error:
                sentences.append(f"the feed {name} cannot be read: {error}")
        return sentences

    # ---- connections

    def accept(self, link: Link) -> LinkHandler:
        """Accept a writer. Its grant's role was verified."""
        if len(self._connections) >= MAX_WRITERS:
            self._count_refused("too many writers", link.remote)
            asyncio.get_running_loop().call_soon(link.close, "full")
            return LinkHandler(lambda *_: None, lambda *_: None)
        connection = self._connections[link] = _WriterConnection(link)
        return LinkHandler(lambda _, kind, body: self._take(connection, kind, body), self._closed)

    def _closed(self, link: Link, reason: str) -> None:
        # Its requests are carried out: a publication in a thread cannot be stopped.
        self._connections.pop(link, None)
        if reason not in ORDINARY_ENDS:
            self._count_refused(reason, link.remote)

    @property
    def writers(self) -> int:
        """Number of connections."""
        return len(self._connections)

    def links(self) -> tuple[Link, ...]:
        """Return the links of writers."""
        return tuple(self._connections)

    async def close(self) -> None:
        """Close the links of all writers."""
        for connection in list(self._connections.values()):
            if connection.work is not None:
                connection.work.cancel()
            connection.link.close("leaving")
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, connection: _WriterConnection, kind: int, body: bytes) -> None:
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames are taken here")
        request = REQUESTS.decode(body)
        if len(connection.waiting) >= MAX_WAITING:
            text = f"The agent is busy: {MAX_WAITING} requests of this connection wait already. Ask again in a moment."
            self._answer(connection.link, FeedRefused(request.request, OVERLOADED, text))
            return
        connection.waiting.append(request)
        if connection.work is None or connection.work.done():
            connection.work = asyncio.create_task(self._serve(connection))

    async def _serve(self, connection: _WriterConnection) -> None:
        """Answer the requests of a connection, one after the other."""
        while connection.waiting:
            request = connection.waiting.popleft()
            self._answer(connection.link, await self._answer_or_refusal(connection.link, request))
            try:
                await connection.link.drain()
            except ConnectionError:
                return

    def _answer(self, link: Link, answer: FeedAnswer) -> None:
        self.answered[answer.reason if isinstance(answer, FeedRefused) else type(answer).__name__] += 1
        if link in self._connections:
            link.send(FrameKind.CONTROL, ANSWERS.encode(answer))

    # ---- requests

    async def _answer_or_refusal(self, link: Link, request: FeedRequest) -> FeedAnswer:
        number = request.request
        try:
            return await self._answer_to(link, request)
        except (SchemaMismatch, StageTooLarge) as error:
            return FeedRefused(number, INVALID, str(error))
        except StageLost as error:
            return FeedRefused(number, LOST_STAGE, f"The feed {request.feed}: {error}.")
        except StagesFull as error:
            return FeedRefused(number, FULL, f"{error}. They end with their queries, or after a day.")
        except BusyError as error:
            return FeedRefused(number, OVERLOADED, f"{error}.")
        except (OperationFailed, OSError) as error:
            cause = error.__context__ if isinstance(error, OperationFailed) else error
            is_full = isinstance(cause, OSError) and cause.errno in _NO_ROOM
            text = (
                f"The disk of {self._me().name} is full. Make room there, and the query goes on."
                if is_full
                else f"The feed {request.feed} on {self._me().name}: {error}"
            )
            return FeedRefused(number, FULL if is_full else UNAVAILABLE, text)

    async def _answer_to(self, link: Link, request: FeedRequest) -> FeedAnswer:
        number, name = request.request, request.feed
        principal = Principal.of(link.peer.grant)
        # so that a writer of another feed learns no names
        if principal.scope not in ("", f"{FEED_PREFIX}{name}"):
            return self._refused(link, number, "scope", FeedOwnership(name))
        if isinstance(request, LocateFeed):
            return await self._locate(link, request)
        if feed_name_fault(name) or name not in feeds_in(self._root):
            return FeedRefused(number, ELSEWHERE, f"The feed {name} is not on {self._me().name}.")
        feed, lock = self._open(name)
        if reason := feed_write_refusal(principal, FeedOwnership(name, feed.owner)):
            return self._refused(link, number, reason, FeedOwnership(name, feed.owner))
        async with lock:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, _carry_out, feed, request)
        if isinstance(answer, BatchPublished) and not answer.is_repeat:
            self.rows_published += answer.end - answer.first
            self._note_logs()
        return answer

    def _open(self, name: str) -> tuple[Feed, asyncio.Lock]:
        if name not in self._feeds:
            self._feeds[name] = (Feed(self._root, name), asyncio.Lock())
        return self._feeds[name]

    def _refused(self, link: Link, number: int, why: str, feed: FeedOwnership) -> FeedRefused:
        """Refuse a writer; the refusal is counted and audited."""
        principal = Principal.of(link.peer.grant)
        text = (
            f"This {principal.role} may not write to the feed {feed.name}. Ask for a token:  "
            f"agiledart token create --role writer --scope {FEED_PREFIX}{feed.name}"
        )
        self._count_refused(why, link.remote)
        log = LogOwnership(feed.name, f"{FEED_PREFIX}{feed.name}", feed.owner)
        self._audit_refused(principal, link.remote, log, why, text)
        return FeedRefused(number, NOT_ALLOWED, text)

    async def _locate(self, link: Link, request: LocateFeed) -> FeedAnswer:
        name = request.feed
        if not feed_name_fault(name) and name in feeds_in(self._root):
            return await self._located(request, self._me())
        looked_up = await self._find(name)
        record = looked_up.record
        if record is None and looked_up.reason:
            text = f"The feed {name} cannot be looked up: the ring did not answer ({looked_up.reason}). Try again."
            return FeedRefused(request.request, UNAVAILABLE, text)
        if record is None or record.application != f"{FEED_PREFIX}{name}":
            what = f"{name} is the log of an application, not a feed." if record else f"There is no feed {name}."
            text = f"{what} Create one:  agiledart feed create NAME  ; agiledart feed list shows all."
            return FeedRefused(request.request, UNKNOWN_FEED, text)
        return await self._located(request, record.node)

    async def _located(self, request: LocateFeed, node: Peer) -> FeedAnswer:
        try:
            relay, ticket = await self._relay_to(node)
        except OSError as error:
            text = f"The feed {request.feed} is on {node.name}, which takes no connections, and no relay leads to it: {error}."
            return FeedRefused(request.request, UNAVAILABLE, f"{text} Try again.")
        return FeedLocated(request.request, request.feed, node.node, node.name, node.address, relay, ticket)

    # ---- commands of users

    def change(self, effect: ChangeFeed) -> None:
        """Create or remove a feed, and report it to the node."""
        command, principal = effect.command, effect.principal
        try:
            if isinstance(command, CreateFeed):
                self._create(command, principal)
            else:
                self._remove(command, principal)
        except (OperationFailed, OSError) as error:
            self._feed(Failed(effect.request, f"{error} (on {self._me().name})"))
        else:
            self._note_logs()
            self._feed(Completed(effect.request, None))

    def _create(self, command: CreateFeed, principal: Principal) -> None:
        if fault := feed_name_fault(command.name):
            raise OperationFailed(fault)
        if len(feeds_in(self._root)) >= MAX_FEEDS:
            raise OperationFailed(f"there are {MAX_FEEDS} feeds already; remove one")
        owner = principal.key.hex() if principal.role == "submitter" else ""
        now_ms = time.time_ns() // 1_000_000
        create_feed(self._root, FeedDescription(command.name, owner, now_ms, command.max_bytes or DEFAULT_MAX_BYTES))

    def _remove(self, command: RemoveFeed, principal: Principal) -> None:
        if command.name not in feeds_in(self._root):
            raise OperationFailed(f"there is no feed {command.name}; agiledart feed list shows all")
        feed, lock = self._open(command.name)
        if feed_write_refusal(principal, FeedOwnership(command.name, feed.owner)):
            raise OperationFailed(
                f"the feed {command.name} belongs to another key; its owner or an admin may remove it"
            )
        if lock.locked():
            raise OperationFailed(f"the feed {command.name} is being written; try again in a moment")
        del self._feeds[command.name]
        remove_feed(self._root, command.name)

    def read(self, effect: ReadFeeds) -> None:
        """Report this node's feeds to the node."""
        infos = []
        for name in feeds_in(self._root):
            try:
                infos.append(self._info(name))
            except OperationFailed:
                continue  # damaged; the agent warns of it when it starts
        self._feed(Completed(effect.request, tuple(infos)))

    def _info(self, name: str) -> FeedInfo:
        feed, _ = self._open(name)
        segments = segments_of(log_directory(self._root, name) / "0")
        size = sum(segment.path.stat().st_size for segment in segments if segment.path.exists())
        return FeedInfo(name, feed.owner, feed.log_end(), size, feed.stages.staged_bytes, feed.published_ms)

    async def expire_forever(self) -> None:
        """Drop the stages of writers that do not go on."""
        while True:
            for feed, lock in tuple(self._feeds.values()):
                async with lock:
                    await asyncio.get_running_loop().run_in_executor(self._threads, feed.stages.expire, time.time())
            await asyncio.sleep(EXPIRY_SECONDS)


def _carry_out(feed: Feed, request: StageRows | PublishBatch | DropBatch) -> FeedAnswer:
    """Carry out a permitted request; raises as `Feed`."""
    match request:
        case StageRows():
            part = (request.partition, request.attempt)
            about = request.query, request.batch, part, request.piece
            feed.stage(*about, request.schema, request.body, request.rows)
            return RowsStaged(request.request)
        case PublishBatch():
            published, is_repeat = feed.publish(request.query, request.batch, request.schema, request.parts)
            return BatchPublished(request.request, published.first, published.end, is_repeat)
        case DropBatch():
            feed.stages.drop(request.query, request.batch)
            return BatchDropped(request.request)
