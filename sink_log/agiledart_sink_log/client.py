"""Network client of sink logs without an event loop, for Spark's worker processes, threads and tools; see `AgentClient`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from agiledart_kernel.codec import Codec
from agiledart_kernel.frames import FrameKind
from agiledart_sink_log.column_index import ZoneCondition
from agiledart_sink_log.protocol import (
    ROWS,
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
    StoredBatch,
    StoredPart,
)
from agiledart_transport.agent_client import AgentClient, RequestFailure
from agiledart_transport.agent_connection import AgentConnection, ConnectionGone
from agiledart_transport.request_reasons import UNAVAILABLE

A = TypeVar("A", bound=LogAnswer)

ANSWER_SECONDS: Final = 20.0
"""Longest time for one answer, besides the time for which the request lets the agent wait."""

_ANSWERS: Codec[LogAnswer] = Codec(LogAnswer)
_REQUESTS: Codec[LogRequest] = Codec(LogRequest)


class SinkLogError(RequestFailure):
    """A request failed finally; the text is one sentence for the user and says what to do.

    Attributes:
        reason: one of `REFUSAL_REASONS`, or `no agent`: no agent was reachable before the timeout.
        first_kept: as in `LogRefused`.
    """

    def __init__(self, text: str, reason: str, first_kept: int = 0) -> None:
        super().__init__(text, reason)
        self.first_kept = first_kept

    def __reduce__(self) -> tuple[type[RequestFailure], tuple[object, ...]]:
        return SinkLogError, (str(self), self.reason, self.first_kept)


@dataclass(frozen=True)
class ReceivedBatch:
    """Stored batch as received.

    Attributes:
        form: `ROWS`, `BY_COLUMNS` or `LEFT_OUT`.
        parts: the rows' MessagePack array, or the requested columns; empty for a column that the batch lacks.
        at_ms: wall time of storing, milliseconds since 1970.
        stored_bytes: size of the whole batch on the agent's disk.
    """

    offset: int
    rows: int
    form: int
    parts: tuple[memoryview, ...]
    at_ms: int = 0
    stored_bytes: int = 0


@dataclass(frozen=True)
class ReceivedRows:
    """Answer to `SinkLogClient.fetch_parts`, as `Fetched`."""

    batches: tuple[ReceivedBatch, ...]
    next_offset: int
    end: int


class SinkLogClient(AgentClient[Located]):
    """A reader of sink logs; arguments as of `AgentClient`. All methods raise `SinkLogError`."""

    service = "sink_log"
    role = "reader"
    failure = SinkLogError

    # ---- requests of a reader

    def locate(self, sink: str) -> Located:
        """Return the location of the log and the schema of its rows; each call asks an agent."""
        return self._locate(sink, f"the log {sink} cannot be found")

    def logs(self, pattern: str) -> LogsListed:
        """Return the logs that fit a pattern with `*` and `?` and that this reader may read, as far as their agents answer."""

        def ask(connection: AgentConnection, number: int) -> LogsListed:
            return _asked(connection, ListLogs(number, pattern), LogsListed)

        return self._retry_until_timeout(
            lambda: self._ask_any(lambda address: self._ask(address, None, ask)), f"the logs {pattern} cannot be listed"
        )

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        """Return first, committed and latest offset of each partition; a long poll with `wait_ms` and `after`."""

        def ask(connection: AgentConnection, number: int) -> EndsReply:
            return _asked(connection, Ends(number, sink, wait_ms, dict(after or {}), uncommitted), EndsReply, wait_ms)

        return self._ask_owner(sink, ask, _away(sink))

    def fetch(
        self,
        sink: str,
        partition: int,
        offset: int,
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> Fetched:
        """Return stored batches from `offset` on; the first may begin before it (drop `offset - batch.offset` rows)."""

        def ask(connection: AgentConnection, number: int) -> Fetched:
            request = Fetch(number, sink, partition, offset, max_rows, max_bytes, wait_ms, uncommitted)
            return _asked(connection, request, Fetched, wait_ms)

        return self._ask_owner(sink, ask, _away(sink))

    def fetch_parts(
        self,
        sink: str,
        partition: int,
        offset: int,
        columns: Sequence[int],
        where: Sequence[ZoneCondition] = (),
        *,
        max_rows: int = 100_000,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        uncommitted: bool = False,
    ) -> ReceivedRows:
        """Return stored batches as `fetch`, by columns where they are stored so.

        Args:
            columns: numbers of the columns to read; one more than the last field is the time of storing.
            where: conditions; batches of which no row can match come as `LEFT_OUT`. Agents of earlier releases ignore both.
        """

        def ask(connection: AgentConnection, number: int) -> ReceivedRows:
            request = Fetch(
                number, sink, partition, offset, max_rows, max_bytes, wait_ms, uncommitted, tuple(columns), tuple(where)
            )
            answer = _answer(connection, request, wait_ms)
            if isinstance(answer, Fetched):  # of an agent of an earlier release
                batches = tuple(map(_of_rows, answer.batches))
            elif isinstance(answer, FetchedParts):
                deadline = time.monotonic() + ANSWER_SECONDS
                batches = tuple(_next_batch(connection, part, deadline) for part in answer.parts)
            else:
                raise _unexpected(answer)
            return ReceivedRows(batches, answer.next_offset, answer.end)

        return self._ask_owner(sink, ask, _away(sink))

    def _ask_location(self, connection: AgentConnection, name: str, number: int) -> Located:
        return _asked(connection, Locate(number, name), Located)


def _asked(connection: AgentConnection, request: LogRequest, expects: type[A], wait_ms: int = 0) -> A:
    """Return the answer to a request. Raises `SinkLogError` for a refusal."""
    answer = _answer(connection, request, wait_ms)
    if not isinstance(answer, expects):
        raise _unexpected(answer)
    return answer


def _answer(connection: AgentConnection, request: LogRequest, wait_ms: int) -> LogAnswer:
    """Return an answer of any kind but a refusal, for which it raises `SinkLogError`."""
    timeout = ANSWER_SECONDS + wait_ms / 1_000
    answer = connection.exchange(request.request, _REQUESTS.encode(request), _ANSWERS, timeout)
    if isinstance(answer, LogRefused):
        raise SinkLogError(answer.text, answer.reason, answer.first_kept)
    return answer


def _unexpected(answer: LogAnswer) -> SinkLogError:
    return SinkLogError(
        f"the agent answered with {type(answer).__name__}. Compare the versions of AgileDart.", UNAVAILABLE
    )


def _of_rows(stored: StoredBatch) -> ReceivedBatch:
    body = memoryview(stored.body)
    return ReceivedBatch(stored.offset, stored.rows, ROWS, (body,), stored.at_ms, len(body))


def _next_batch(connection: AgentConnection, part: StoredPart, deadline: float) -> ReceivedBatch:
    """Return the batch of a part, whose frame is the next one. Raises `ConnectionGone`."""
    kind, body = connection.next_frame(deadline) if any(part.sizes) else (int(FrameKind.DATA), bytearray())
    if kind != FrameKind.DATA or len(body) != sum(part.sizes):
        raise ConnectionGone(f"it sent a frame of kind {kind} with {len(body)} bytes in place of rows")
    view, at, cut = memoryview(body), 0, []
    for size in part.sizes:
        cut.append(view[at : at + size])
        at += size
    return ReceivedBatch(part.offset, part.rows, part.form, tuple(cut), part.at_ms, part.stored_bytes)


def _away(sink: str) -> str:
    return f"the agent that has the log {sink} is unreachable"
