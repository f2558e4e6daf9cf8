"""Streaming reader: offsets, limits and planning in one process of the query, reading on the executors.

Spark builds two instances and pickles one for the executors, so only the planned ranges pass from `latestOffset` to `read`.
Offsets are `{"sink/0": n}`: keyed by the log's name and partition, never by an address; so one query may read several logs.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.protocol import DAMAGED, MAX_FETCH_BYTES, TRIMMED, UNKNOWN_SINK
from agiledart_transport.request_reasons import NOT_ALLOWED
from pyspark_agiledart.log_group import LogGroup
from pyspark_agiledart.ranges import RangeTask, plan_tasks, read_task
from pyspark_agiledart.read_limits import RetainedRange, admitted, ends_within
from pyspark_agiledart.reader_options import LATEST, ReaderOptions, log_and_partition

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

AWAY_SECONDS: Final = 0.5
"""Time between two requests to an unreachable agent, seconds; Spark itself would retry at once."""

Offsets = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a log as a stream; with `read-latest` also of uncommitted rows.

    Args:
        pause: function that waits a number of seconds; tests pass one that does not wait.
    """

    def __init__(
        self, options: ReaderOptions, schema: "StructType", pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._options, self._schema, self._pause = options, schema, pause
        self._logs: LogGroup | None = None
        self._ends: dict[str, RetainedRange] = {}
        self._target: dict[str, int] | None = None
        self._is_warned = False
        self._refused_since: float | None = None
        self._unanswered: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_logs": None, "_unanswered": None}

    # ---- where it begins, how far it may go

    def initialOffset(self) -> Offsets:  # noqa: N802  Spark's name
        """Return the first offsets of a query without a checkpoint; retries until `agentTimeout`."""
        return _sorted(starting_offsets(self._options, self._look_with_retries()))

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802  Spark's name
        """Return the end of the next batch; `start` when there is nothing new or no agent is reachable.

        A log that appears joins with its first retained row. A query that ends at its target waits for the agent: Spark would take
        `start` for the end of all rows.
        """
        begin = self._checked(start)
        there = self._look(begin)
        if self._target is not None and ends_beyond(begin, self._target):
            there = self._look_again(begin, there)
        for key, retained in there.items():
            if retained.committed < begin.get(key, 0):
                raise OperationFailed(
                    f"The sink {key} ends at row {retained.committed}, before row {begin[key]} "
                    f"where this query stands: {self._what_happened()}. Start the query with a new checkpointLocation."
                )
        ends = {key: retained.committed for key, retained in there.items()}
        if self._target is not None:
            ends = {key: min(end, self._target[key]) for key, end in ends.items() if key in self._target}
        if not ends:
            return dict(start)
        # Rows that are gone take no part of a limit: they are reported at once, not one micro-batch after the other.
        first = {key: min(max(begin.get(key, 0), there[key].first), end) for key, end in ends.items()}
        first = {**begin, **{key: max(offset, begin.get(key, 0)) for key, offset in first.items()}}
        if isinstance(limit, ReadAllAvailable):  # a trigger that asks for all gets all
            return _sorted(admitted(first, ends))
        if self._options.max_bytes:
            ends = self._within_bytes(first, ends)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows
        return _sorted(admitted(first, ends, rows))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return the limit that Spark passes to `latestOffset`; Spark does not enforce it."""
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  Spark's name
        """Return the committed ends of the last answer; the lag in Spark's progress needs no request of its own."""
        return _sorted({key: retained.committed for key, retained in self._ends.items()}) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Store the committed ends, at which the query stops."""
        self._target = {key: retained.committed for key, retained in self._look_with_retries().items()}

    # ---- planning and reading

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the tasks of a batch, checked against the retained rows of the logs."""
        first, last = self._checked(start), self._checked(end)
        return list[InputPartition](plan_tasks(self._options, first, last, self._look_with_retries()))

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows of a task, on an executor."""
        assert isinstance(partition, RangeTask)
        return read_task(self._options, self._schema, partition)

    def commit(self, end: Offsets) -> None:
        """Do nothing: age and size limit a log, not the progress of readers."""

    def stop(self) -> None:
        """Close the connection."""
        self._hang_up()

    # ---- inside

    def _look(self, begin: Offsets) -> dict[str, RetainedRange]:
        """Return the committed ranges, after a wait for rows after `begin`; empty while no agent is reachable."""
        from agiledart_sink_log.client import SinkLogError

        wait_ms = 0 if self._target is not None else self._options.wait_ms
        try:
            if self._logs is None:
                self._logs = LogGroup(self._options, pause=self._pause)
            self._ends = self._committed(self._logs, begin, wait_ms)
        except SinkLogError as error:
            self._hang_up()
            self._unanswered = error
            self._tolerate_refusal(error.reason in (NOT_ALLOWED, UNKNOWN_SINK), error)
            self._pause(AWAY_SECONDS)
            return {}
        self._refused_since = self._unanswered = None
        is_new = ends_beyond(begin, {key: retained.committed for key, retained in self._ends.items()})
        if self._options.is_several and wait_ms and not is_new:
            self._pause(wait_ms / 1_000)  # no agent can wait for rows of all logs
        return self._ends

    def _look_again(self, begin: Offsets, there: dict[str, RetainedRange]) -> dict[str, RetainedRange]:
        """Return the committed ranges; ask an agent that has not answered again, and raise its error after `agentTimeout`."""
        deadline = time.monotonic() + self._options.agent_timeout_s
        while self._unanswered is not None:
            if time.monotonic() >= deadline:
                raise self._unanswered
            there = self._look(begin)
        return there

    def _tolerate_refusal(self, is_refusal: bool, error: Exception) -> None:
        """Tolerate refusals of a restarted agent, which may not know its logs at once; raise a refusal that persists."""
        if not is_refusal:
            return
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if now - self._refused_since > self._options.agent_timeout_s:
            raise error

    def _look_with_retries(self) -> dict[str, RetainedRange]:
        """Return the committed ranges; agents that are away are asked again until `agentTimeout`."""
        is_known = self._logs is not None and self._options.is_several
        if is_known and self._ends:
            return self._ends  # of the answer that planned this batch; a log that is away must not hold it up
        logs = LogGroup(self._options, self._options.agent_timeout_s, pause=self._pause)
        try:
            self._ends = self._committed(logs, None, 0)
        finally:
            logs.close()
        return self._ends

    def _committed(self, logs: LogGroup, after: Offsets | None, wait_ms: int) -> dict[str, RetainedRange]:
        if self._options.latest and not self._is_warned:
            sys.stderr.write(
                f"agiledart: this stream of {self._options.sink} reads rows before they are committed (isolation=read-latest). "
                f"A recovery may take such rows back: show them, but keep no results of them.\n"
            )
            self._is_warned = True
        return logs.ends(after, wait_ms)

    def _what_happened(self) -> str:
        anew = "its log was begun anew"
        return f"{anew}, or a recovery took back rows that were not committed" if self._options.latest else anew

    def _within_bytes(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Return the ends of the stored batches that fit into `maxBytesPerBatch`; other partitions keep their offset."""
        stored = {key: self._stored(key, begin[key], end) for key, end in sorted(ends.items())}
        return {**{key: begin[key] for key in ends}, **ends_within(self._options.max_bytes, stored)}

    def _stored(self, key: str, at: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (offset after it, bytes) of the stored batches from `at` to `end`; unreadable rows have no bytes."""
        from agiledart_sink_log.client import SinkLogError

        assert self._logs is not None
        sink, partition = log_and_partition(key)
        size = min(max(1, self._options.max_bytes // len(self._ends)), MAX_FETCH_BYTES)
        while at < end:
            try:
                client = self._logs.client_of(sink)
                answer = client.fetch_parts(sink, partition, at, (), max_bytes=size, uncommitted=self._options.latest)
            except SinkLogError as error:
                if error.reason not in (TRIMMED, DAMAGED) or error.first_kept <= at:
                    return
                at = min(error.first_kept, end)  # reading will say so
                yield at, 0
                continue
            if not answer.batches:
                return
            for batch in answer.batches:
                if at < end:
                    at = min(batch.offset + batch.rows, end)
                    yield at, batch.stored_bytes

    def _hang_up(self) -> None:
        if self._logs is not None:
            self._logs.close()
            self._logs = None

    def _checked(self, offsets: Offsets) -> Offsets:
        return {self._options.check_key(key): int(offset) for key, offset in offsets.items()}


def ends_beyond(begin: Offsets, ends: Offsets) -> bool:
    """Return whether there are rows between `begin` and `ends`."""
    return any(end > begin.get(key, 0) for key, end in ends.items())


def _sorted(offsets: Offsets) -> Offsets:
    return dict(sorted(offsets.items(), key=lambda item: log_and_partition(item[0])))


def starting_offsets(options: ReaderOptions, there: dict[str, RetainedRange]) -> Offsets:
    """Return key of a partition → first offset to read. Raises `ConfigurationError` for partitions that the log does not have."""
    if isinstance(options.starting, str):
        latest = options.starting == LATEST
        return {key: retained.committed if latest else retained.first for key, retained in there.items()}
    unknown = [key for key in options.starting if key not in there]
    if unknown:
        last = max((log_and_partition(key)[1] for key in there), default=0)
        raise ConfigurationError(
            f"startingOffsets names {', '.join(unknown)}; the sink has the partitions 0 to {last}."
        )
    beyond = [key for key, offset in options.starting.items() if offset > there[key].committed]
    if beyond:
        ends = ", ".join(f"{key} ends at {there[key].committed}" for key in beyond)
        raise ConfigurationError(f"startingOffsets lies beyond the log's end: {ends}.")
    return {key: options.starting.get(key, retained.first) for key, retained in there.items()}
