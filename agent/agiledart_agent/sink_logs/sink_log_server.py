"""Server of this node's sink logs; it also tells readers where any log of the network is.

Threads read files, never the event loop. A long poll reads the 20 bytes of the partition's `committed` file: 50 times a
second just after new rows came, 5 times a second when none come, and not at all without a waiting reader.

Bounds: `MAX_READERS` connections, one request of each in progress and `MAX_WAITING` behind it, and `MAX_UNSENT_BYTES`
of untaken answers. Beyond that the server answers `overloaded`, and readers try again.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from agiledart_agent.host.freed_memory import keep_freed_memory
from agiledart_agent.sink_logs.columns_process import ColumnsProcess
from agiledart_agent.sink_logs.log_finder import LogFinder
from agiledart_agent.sink_logs.log_read_authoriser import LogReadAuthoriser, ownership_of_log
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.machine import Completed, Event
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import LogOwnership, Principal, log_read_refusal
from agiledart_node.records.log_permissions import not_to_be_read
from agiledart_node.records.sink_directory import FindSink, RegisterSink, SharersFound, SinkFound, SinkRecord
from agiledart_node.wire.log_list_messages import LogName, LogsFound, ReadLogNames
from agiledart_sink_log.layout import Description, holds_rows, log_directory, logs_in, read_description
from agiledart_sink_log.log_reader import ALL, DamagedError, LogReader, ReadBatch, ReadSelection, TrimmedError
from agiledart_sink_log.protocol import (
    BY_COLUMNS,
    DAMAGED,
    LEFT_OUT,
    MAX_FETCH_BYTES,
    SYSTEM_PREFIX,
    TRIMMED,
    UNKNOWN_SINK,
    Ends,
    EndsReply,
    Fetch,
    Fetched,
    FetchedParts,
    ListLogs,
    Locate,
    Located,
    LogAnswer,
    LogRefused,
    LogRequest,
    LogsListed,
    PartitionEnds,
    StoredBatch,
    StoredPart,
    sink_name_fault,
)
from agiledart_sink_log.retention import trim_idle
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler
from agiledart_transport.request_reasons import ELSEWHERE, NOT_ALLOWED, OVERLOADED, UNAVAILABLE

MAX_READERS: Final = 64
IDLE_SECONDS: Final = 10.0
"""Time without a request after which a connection may be closed for another reader."""

MAX_WAITING: Final = 8
MAX_UNSENT_BYTES: Final = 64 << 20
MAX_OPEN_LOGS: Final = 256
"""Logs whose index is kept in memory."""

THREADS: Final = 2
FIRST_LOOK_SECONDS: Final = 0.02
LAST_LOOK_SECONDS: Final = 0.2
FIND_SECONDS: Final = 15.0
NOTE_SECONDS: Final = 30.0
TRIM_SECONDS: Final = 60.0
"""Time between two checks for logs without a writer that exceed their bounds."""

STARTUP_GRACE_SECONDS: Final = 5.0
"""Time after its start at which an agent believes the ring that a log does not exist.

When a whole mesh starts again, nodes register their logs one after the other.
"""

REQUESTS: Codec[LogRequest] = Codec(LogRequest)
ANSWERS: Codec[LogAnswer] = Codec(LogAnswer)

R = TypeVar("R")
NoteRefused = Callable[[Principal, str, LogOwnership, str, str], None]


@dataclass(eq=False)
class _ReaderConnection:
    """One connected reader."""

    link: Link
    waiting: deque[LogRequest] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None
    used_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())


@dataclass(eq=False)
class _OpenLog:
    """A log that was requested; its reader belongs to one thread at a time."""

    reader: LogReader
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


RelayTo = Callable[[Peer], Awaitable[tuple[str, bytes]]]
"""Returns relay and ticket by which a reader reaches a peer; both empty: the reader dials it. Raises OSError."""


async def no_relay(_peer: Peer) -> tuple[str, bytes]:
    return "", b""


class SinkLogServer:
    """Service `sink_log` of one agent.

    Args:
        root: the state directory, above `sink-logs`.
        me: returns this node as others reach it.
        feed: takes events for the node.
        count_refused: called with (reason, requester) for each request that is not permitted.
        warn: takes a sentence about a log that cannot be kept within its bounds.
        proof_of: (log, owner) → the owner's signed command, which proves the ownership.
        audit_refused: takes (requester, origin, log, reason, sentence) of each read that is not permitted, for the
            audit.

    Attributes:
        answered: requests by kind of answer, for metrics; refusals count under their reason.
        batches_left_out, bytes_left_out: of stored batches that readers did not need: of which no row matched, and the bytes of
            these and of other columns.
        columns: process that rewrites segments.
    """

    def __init__(
        self,
        root: Path,
        me: Callable[[], Peer],
        feed: Callable[[Event], None],
        count_refused: Callable[[str, str], None],
        warn: Callable[[str], None] = lambda _: None,
        audit_refused: NoteRefused = lambda *_: None,
        proof_of: Callable[[str, bytes], bytes] = lambda *_: b"",
        relay_to: RelayTo = no_relay,
    ) -> None:
        self._relay_to = relay_to
        self._root, self._me, self._feed, self._count_refused, self._warn = root, me, feed, count_refused, warn
        self._audit_refused, self._read_authoriser, self._proof_of = audit_refused, LogReadAuthoriser(feed), proof_of
        self._connections: dict[Link, _ReaderConnection] = {}
        self._logs: dict[str, _OpenLog] = {}
        self._serves_columns = False
        self._threads, self._log_lists = ThreadPoolExecutor(THREADS, "sink-log"), LogFinder(feed)
        self._finding: dict[int, asyncio.Future[SinkFound]] = {}
        self._number = 0
        self._started = asyncio.get_running_loop().time()
        self.answered: Counter[str] = Counter()
        self.rows_sent = 0
        self.bytes_sent = 0
        self.batches_left_out = 0
        self.bytes_left_out = 0
        self.columns = ColumnsProcess(root, warn)

    @property
    def readers(self) -> int:
        """Number of connections."""
        return len(self._connections)

    # ---- the ring

    def note_logs(self) -> None:
        """Register every log here with the ring, as far as the ring does not know it."""
        for _, log in logs_in(self._root):
            self._note(log)

    def note_logs_named(self, names: Iterable[str]) -> None:
        """Register these logs, as far as they are here: a start of an application must not read the logs of all others."""
        for name in names:
            with contextlib.suppress(OperationFailed, OSError):  # a damaged one is reported when it is read
                log = read_description(log_directory(self._root, name))
                if log is not None and log.name == name:
                    self._note(log)

    def _note(self, log: Description) -> None:
        self._feed(RegisterSink(_record_of(log, self._me(), self._proof_of)))

    async def announce_forever(self, also: Callable[[], None] = lambda: None) -> None:
        """Register the logs again and again: the ring forgets when all nodes of a neighbourhood end at once.

        Args:
            also: registers what has no log yet.
        """
        while True:
            self.note_logs()
            also()
            await asyncio.sleep(NOTE_SECONDS)

    async def trim_forever(self) -> None:
        """Keep the bounds of logs without a writer; a writer keeps those of its own."""
        warned: set[str] = set()
        while True:
            failures = await asyncio.get_running_loop().run_in_executor(
                self._threads, trim_all, self._root, time.time_ns()
            )
            for text in failures:
                if text not in warned:
                    self._warn(text)
            warned = set(failures)
            await asyncio.sleep(TRIM_SECONDS)

    def logs_found(self, effect: LogsFound) -> None:
        """Take the node's answer to `FindLogs`."""
        self._log_lists.take_answer(effect)

    def read_names(self, effect: ReadLogNames) -> None:
        """Report the names of the logs here to the node."""
        names = tuple(LogName(log.name, log.application, bytes.fromhex(log.owner)) for _, log in logs_in(self._root))
        self._feed(Completed(effect.request, names))

    def sharers_found(self, effect: SharersFound) -> None:
        """Take the node's answer to `FindSharers`."""
        self._read_authoriser.on_sharers_found(effect)

    def on_sink_found(self, effect: SinkFound) -> None:
        """Take the node's answer to `FindSink`."""
        if (future := self._finding.pop(effect.request, None)) is not None and not future.done():
            future.set_result(effect)

    async def find(self, name: str) -> SinkFound:
        """Look up a log on the ring."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[SinkFound] = asyncio.get_running_loop().create_future()
        self._finding[number] = answer
        self._feed(FindSink(number, name))
        try:
            return await asyncio.wait_for(answer, FIND_SECONDS)
        except TimeoutError:
            return SinkFound(number, None, "timeout")
        finally:
            self._finding.pop(number, None)

    # ---- connections

    def accept(self, link: Link) -> LinkHandler:
        """Accept a reader. Its grant's role was verified."""
        if len(self._connections) >= MAX_READERS:
            self._close_idle()
        if len(self._connections) >= MAX_READERS:
            self._count_refused("too many readers", link.remote)
            asyncio.get_running_loop().call_soon(link.close, "full")
            return LinkHandler(lambda *_: None, lambda *_: None)
        connection = _ReaderConnection(link)
        self._connections[link] = connection
        return LinkHandler(lambda _, kind, body: self._take(connection, kind, body), self._closed)

    def _close_idle(self) -> None:
        """Close the connection that has been idle for longest, so that readers that keep theirs do not keep others out."""
        idle = [reader for reader in self._connections.values() if reader.work is None or reader.work.done()]
        oldest = min(idle, key=lambda reader: reader.used_at, default=None)
        if oldest is not None and oldest.used_at < asyncio.get_running_loop().time() - IDLE_SECONDS:
            del self._connections[oldest.link]
            oldest.link.close("done")

    def _closed(self, link: Link, reason: str) -> None:
        if (connection := self._connections.pop(link, None)) is not None and connection.work is not None:
            connection.work.cancel()
        if reason not in ORDINARY_ENDS:
            self._count_refused(reason, link.remote)

    def links(self) -> tuple[Link, ...]:
        """Return the links of readers."""
        return tuple(self._connections)

    async def close(self) -> None:
        """Close the links of all readers."""
        for connection in list(self._connections.values()):
            if connection.work is not None:
                connection.work.cancel()
            connection.link.close("leaving")
        await self.columns.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _take(self, connection: _ReaderConnection, kind: int, body: bytes) -> None:
        if kind != FrameKind.CONTROL:
            raise RemoteProtocolError("kind", "only CONTROL frames are taken here")
        request = REQUESTS.decode(body)
        if len(connection.waiting) >= MAX_WAITING:
            self._answer(connection, _overloaded(request, f"{MAX_WAITING} requests of this connection wait already"))
            return
        connection.waiting.append(request)
        if connection.work is None or connection.work.done():
            connection.work = asyncio.create_task(self._serve(connection))

    async def _serve(self, connection: _ReaderConnection) -> None:
        """Answer the requests of a connection, one after the other."""
        while connection.waiting:
            request = connection.waiting.popleft()
            batches: list[ReadBatch] = []
            try:
                answer = await self._answer_to(connection.link, request, batches)
            except OperationFailed as error:
                answer = LogRefused(request.request, UNAVAILABLE, str(error))
            except OSError as error:
                text = f"The log {request.sink} cannot be read on {self._me().name}: {error.strerror or error}."
                answer = LogRefused(request.request, UNAVAILABLE, text)
            except Exception as error:  # noqa: BLE001  a fault of ours costs this answer, not all that wait behind it
                self._warn(f"a request for the log {request.sink} could not be answered: {error!r}")
                text = (
                    f"The log {request.sink} cannot be read on {self._me().name} now; the agent's log has the reason."
                )
                answer = LogRefused(request.request, UNAVAILABLE, text)
            self._answer(connection, answer, batches)
            connection.used_at = asyncio.get_running_loop().time()
            try:
                await connection.link.drain()
            except ConnectionError:
                return

    def _answer(self, connection: _ReaderConnection, answer: LogAnswer, batches: Sequence[ReadBatch] = ()) -> None:
        """Send an answer, and the bytes of the batches that it describes."""
        self.answered[answer.reason if isinstance(answer, LogRefused) else type(answer).__name__] += 1
        if isinstance(answer, Fetched):
            self.rows_sent += sum(batch.rows for batch in answer.batches)
            self.bytes_sent += sum(len(batch.body) for batch in answer.batches)
        connection.link.send(FrameKind.CONTROL, ANSWERS.encode(answer))
        if isinstance(answer, FetchedParts):
            for batch in batches:
                self._count(batch)
                if batch.size:
                    connection.link.send_parts(FrameKind.DATA, batch.parts)

    def _count(self, batch: ReadBatch) -> None:
        if batch.form == LEFT_OUT:
            self.batches_left_out += batch.stored
        else:
            self.rows_sent += batch.rows
        self.bytes_sent += batch.size
        self.bytes_left_out += batch.left_out

    # ---- requests

    async def _answer_to(self, link: Link, request: LogRequest, read: list[ReadBatch]) -> LogAnswer:
        """Return the answer; `read` takes the batches of a `FetchedParts`."""
        number, name = request.request, request.sink
        principal = Principal.of(link.peer.grant)
        # so that such a reader learns no names
        if principal.scope.startswith("sink:") and principal.scope != f"sink:{name}":
            return self._refused(link, number, "scope", LogOwnership(name))
        if isinstance(request, ListLogs):
            return await self._list_logs(principal, request)
        if sink_name_fault(name):
            return _unknown(number, name)
        if isinstance(request, Locate):
            return await self._locate(link, request)
        try:
            log = self._open(name)
        except OperationFailed as error:
            return LogRefused(number, UNAVAILABLE, f"The log {name} on {self._me().name}: {error}")
        if log is None:
            return LogRefused(number, ELSEWHERE, f"The log {name} is not on {self._me().name}.")
        ownership = ownership_of_log(log.reader.description)._replace(
            name=name
        )  # users' code may have written the name in it
        if reason := await self._read_authoriser.refusal(principal, ownership):
            return self._refused(link, number, reason, ownership)
        if isinstance(request, Fetch) and sum(other.unsent_bytes for other in self._connections) > MAX_UNSENT_BYTES:
            return _overloaded(request, "readers do not take the requested rows")
        return await (self._ends(log, request) if isinstance(request, Ends) else self._fetch(log, request, read))

    def _refused(self, link: Link, number: int, why: str, log: LogOwnership) -> LogRefused:
        """Refuse a reader; the refusal is counted and audited."""
        principal = Principal.of(link.peer.grant)
        text = not_to_be_read(principal, why, log)
        self._count_refused(why, link.remote)
        self._audit_refused(principal, link.remote, log, why, text)
        return LogRefused(number, NOT_ALLOWED, text)

    async def _list_logs(self, principal: Principal, request: ListLogs) -> LogsListed:
        """Return the logs that fit a pattern and that the requester may read, as far as no ring look-up is needed for that."""
        listed = await self._log_lists.find(request.sink)
        readable = [
            log.name
            for log in listed.logs
            if not log.name.startswith(SYSTEM_PREFIX)
            and not log_read_refusal(principal, LogOwnership(log.name, log.application, log.owner))
        ]
        return LogsListed(request.request, tuple(readable), listed.silent)

    async def _locate(self, link: Link, request: Locate) -> LogAnswer:
        principal = Principal.of(link.peer.grant)
        looked_up = await self.find(request.sink)
        record = looked_up.record
        if record is None and looked_up.reason:
            text = (
                f"The log {request.sink} cannot be looked up: the ring did not answer ({looked_up.reason}). Try again."
            )
            return LogRefused(request.request, UNAVAILABLE, text)
        if record is None and asyncio.get_running_loop().time() - self._started < STARTUP_GRACE_SECONDS:
            text = f"The log {request.sink} is not known yet: {self._me().name} has just started. Try again."
            return LogRefused(request.request, UNAVAILABLE, text)
        if record is None and principal.scope.startswith("app:"):
            return self._refused(link, request.request, "scope", LogOwnership(request.sink))
        if record is None:
            return _unknown(request.request, request.sink)
        if not record.log_id:
            text = f"Nothing was published to the feed {request.sink} yet."
            return LogRefused(request.request, UNAVAILABLE, text)
        log = LogOwnership(record.name, record.application, record.owner)
        if reason := await self._read_authoriser.refusal(principal, log):
            return self._refused(link, request.request, reason, log)
        node = record.node
        try:
            relay, ticket = await self._relay_to(node)
        except OSError as error:
            text = f"The log {record.name} is on {node.name}, which takes no connections, and no relay leads to it: {error}."
            return LogRefused(request.request, UNAVAILABLE, f"{text} Try again.")
        return Located(
            request.request, record.name, record.application, record.version, node.node, node.name, node.address,
            record.log_id, record.schema, record.partitions, relay, ticket,
        )  # fmt: skip

    def _open(self, name: str) -> _OpenLog | None:
        log = self._logs.get(name)
        try:
            if log is None or not log.reader.refresh():
                if name not in self._logs and len(self._logs) >= MAX_OPEN_LOGS:
                    del self._logs[next(iter(self._logs))]
                log = self._logs[name] = _OpenLog(LogReader(log_directory(self._root, name)))
        except OperationFailed:
            self._logs.pop(name, None)
            if holds_rows(log_directory(self._root, name)):
                raise
            return None
        return log

    async def _in_thread(self, log: _OpenLog, work: Callable[[], R]) -> R:
        async with log.lock:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _ends(self, log: _OpenLog, request: Ends) -> LogAnswer:
        reader, uncommitted = log.reader, request.uncommitted

        def look() -> tuple[PartitionEnds, ...]:
            return tuple(reader.ends(n, uncommitted=uncommitted) for n in range(reader.description.partitions))

        async def news() -> tuple[PartitionEnds, ...] | None:
            ends = await self._in_thread(log, look) if uncommitted else look()
            for end in ends:
                if (end.latest if uncommitted else end.committed) > request.after.get(end.partition, -1):
                    return ends
            return None

        ends = await _until(news, request.wait_ms)
        if ends is None:
            ends = await self._in_thread(log, look)
        about = reader.description
        return EndsReply(request.request, about.log_id, ends, reader.is_open, about.ended)

    async def _fetch(self, log: _OpenLog, request: Fetch, read: list[ReadBatch]) -> LogAnswer:
        reader, number = log.reader, request.request
        if request.partition >= reader.description.partitions:
            text = f"The log {request.sink} has {reader.description.partitions} partitions; there is no {request.partition}."
            return LogRefused(number, UNKNOWN_SINK, text)

        async def news() -> bool | None:
            # The committed end is 20 bytes, which the event loop may read itself; everything else goes to a thread.
            if request.uncommitted:
                ends = await self._in_thread(log, lambda: reader.ends(request.partition, uncommitted=True))
                return ends.latest > request.offset or None
            return reader.ends(request.partition).committed > request.offset or None

        if request.wait_ms:
            await _until(news, request.wait_ms)
        is_new = request.columns is not None
        if is_new and not self._serves_columns:
            self._serves_columns = True
            keep_freed_memory(MAX_FETCH_BYTES)
        selection = ReadSelection(request.columns, request.where) if is_new else ALL
        try:
            batches, following, end = await self._in_thread(
                log,
                lambda: reader.fetch(
                    request.partition,
                    request.offset,
                    request.max_rows,
                    min(request.max_bytes, MAX_FETCH_BYTES),
                    uncommitted=request.uncommitted,
                    selection=selection,
                ),
            )
        except TrimmedError as error:
            return LogRefused(number, TRIMMED, str(error), error.first)
        except DamagedError as error:
            return LogRefused(number, DAMAGED, str(error), error.next_good)
        log_id = reader.description.log_id
        if is_new:
            read += batches
            parts = tuple(
                StoredPart(
                    batch.offset,
                    batch.rows,
                    batch.form,
                    tuple(map(len, batch.parts)),
                    batch.at_ms,
                    batch.size + batch.left_out,
                )
                for batch in batches
            )
            return FetchedParts(number, request.partition, parts, following, end, log_id)
        stored = await self._as_rows(request, batches)
        following = stored[-1].offset + stored[-1].rows if stored else following
        return Fetched(number, request.partition, stored, following, end, log_id)

    async def _as_rows(self, request: Fetch, batches: Sequence[ReadBatch]) -> tuple[StoredBatch, ...]:
        """Return batches for a reader that knows rows only, at most as many bytes as it wants. Raises OperationFailed."""
        stored: list[StoredBatch] = []
        size = 0
        for batch in batches:
            if batch.form == BY_COLUMNS:
                body = await self.columns.rows_of(request.sink, batch.rows, [bytes(part) for part in batch.parts])
            else:
                body = batch.body
            size += len(body)
            if stored and size > min(request.max_bytes, MAX_FETCH_BYTES):
                break
            stored.append(StoredBatch(batch.offset, batch.rows, body, batch.at_ms))
        return tuple(stored)


def trim_all(root: Path, now_ns: int) -> list[str]:
    """Trim every log without a writer below a state directory. Return a sentence for each that could not be trimmed."""
    failures = []
    for directory, log in logs_in(root):
        try:
            trim_idle(directory, now_ns // 1_000_000)
        except (OSError, OperationFailed) as error:
            failures.append(f"the log {log.name} cannot be trimmed: {error}")
    return failures


async def _until(look: Callable[[], Coroutine[Any, Any, R | None]], wait_ms: int) -> R | None:
    """Return the result of `look`, or None when it has none in time. It looks less and less often."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + wait_ms / 1000, FIRST_LOOK_SECONDS
    while True:
        if (result := await look()) is not None:
            return result
        left = deadline - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(pause, left))
        pause = min(1.3 * pause, LAST_LOOK_SECONDS)


def _unknown(number: int, name: str) -> LogRefused:
    begins = (
        f"A log begins when an application writes to log:{name}; agiledart status NAME shows where an application writes."
        if not name.startswith(SYSTEM_PREFIX)
        else "An agent keeps the latencies of a sink whose rows have a ReadTime, unless its latency_log_bytes is 0."
    )
    return LogRefused(number, UNKNOWN_SINK, f"There is no log {name} in this network. {begins}")


def _overloaded(request: LogRequest, why: str) -> LogRefused:
    return LogRefused(request.request, OVERLOADED, f"The agent is busy: {why}. Ask again in a moment.")


def _record_of(log: Description, node: Peer, proof_of: Callable[[str, bytes], bytes]) -> SinkRecord:
    """Return the record of a log on this node for the ring."""
    owner = bytes.fromhex(log.owner)
    return SinkRecord(
        log.name,
        log.application,
        log.version,
        node,
        log.opened_ms,
        log.log_id,
        log.schema_json(),
        log.partitions,
        owner,
        proof_of(log.name, owner) if owner else b"",
    )
