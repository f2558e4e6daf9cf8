"""Server of this node's sink logs; it also tells readers where any log of the network is.

Bounds: `MAX_READERS` connections, one request of each in progress and `MAX_WAITING` behind it, and `MAX_UNSENT_BYTES`
of untaken answers. Beyond that the server answers `overloaded`, and readers try again.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agiledart_agent.sink_logs.columns_process import ColumnsProcess
from agiledart_agent.sink_logs.log_finder import LogFinder
from agiledart_agent.sink_logs.log_read_authoriser import LogReadAuthoriser, ownership_of_log
from agiledart_agent.sink_logs.log_registration import LogRegistration
from agiledart_agent.sink_logs.open_logs import OpenLogs
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.machine import Event
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import LogOwnership, Principal, log_read_refusal
from agiledart_node.records.log_permissions import not_to_be_read
from agiledart_node.records.sink_directory import SharersFound
from agiledart_node.wire.log_list_messages import LogsFound
from agiledart_sink_log.log_reader import ReadBatch
from agiledart_sink_log.protocol import (
    LEFT_OUT,
    SYSTEM_PREFIX,
    UNKNOWN_SINK,
    Ends,
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
    sink_name_fault,
)
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler
from agiledart_transport.request_reasons import ELSEWHERE, NOT_ALLOWED, OVERLOADED, UNAVAILABLE

MAX_READERS: Final = 64
IDLE_SECONDS: Final = 10.0
"""Time without a request after which a connection may be closed for another reader."""

MAX_WAITING: Final = 8
MAX_UNSENT_BYTES: Final = 64 << 20
STARTUP_GRACE_SECONDS: Final = 5.0
"""Time after its start at which an agent believes the ring that a log does not exist.

When a whole mesh starts again, nodes register their logs one after the other.
"""

REQUESTS: Codec[LogRequest] = Codec(LogRequest)
ANSWERS: Codec[LogAnswer] = Codec(LogAnswer)

NoteRefused = Callable[[Principal, str, LogOwnership, str, str], None]


@dataclass(eq=False)
class _ReaderConnection:
    """One connected reader."""

    link: Link
    waiting: deque[LogRequest] = field(default_factory=deque)
    work: asyncio.Task[None] | None = None
    used_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())


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
        registration: registers logs with the ring.
        open_logs: reads the logs of this node.
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
        self._me, self._count_refused, self._warn = me, count_refused, warn
        self._audit_refused, self._read_authoriser = audit_refused, LogReadAuthoriser(feed)
        self._connections: dict[Link, _ReaderConnection] = {}
        self._log_lists = LogFinder(feed)
        self._started = asyncio.get_running_loop().time()
        self.answered: Counter[str] = Counter()
        self.rows_sent = 0
        self.bytes_sent = 0
        self.batches_left_out = 0
        self.bytes_left_out = 0
        self.columns = ColumnsProcess(root, warn)
        self.registration = LogRegistration(root, me, feed, proof_of)
        self.open_logs = OpenLogs(root, self.columns)

    @property
    def readers(self) -> int:
        """Number of connections."""
        return len(self._connections)

    # ---- answers of the node

    def logs_found(self, effect: LogsFound) -> None:
        """Take the node's answer to `FindLogs`."""
        self._log_lists.take_answer(effect)

    def sharers_found(self, effect: SharersFound) -> None:
        """Take the node's answer to `FindSharers`."""
        self._read_authoriser.on_sharers_found(effect)

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
        self.open_logs.close()

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
            log = self.open_logs.open(name)
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
        if isinstance(request, Ends):
            return await self.open_logs.ends(log, request)
        return await self.open_logs.fetch(log, request, read)

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
        looked_up = await self.registration.find(request.sink)
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


def _unknown(number: int, name: str) -> LogRefused:
    begins = (
        f"A log begins when an application writes to log:{name}; agiledart status NAME shows where an application writes."
        if not name.startswith(SYSTEM_PREFIX)
        else "An agent keeps the latencies of a sink whose rows have a ReadTime, unless its latency_log_bytes is 0."
    )
    return LogRefused(number, UNKNOWN_SINK, f"There is no log {name} in this network. {begins}")


def _overloaded(request: LogRequest, why: str) -> LogRefused:
    return LogRefused(request.request, OVERLOADED, f"The agent is busy: {why}. Ask again in a moment.")
