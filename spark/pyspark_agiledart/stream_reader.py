"""Streaming reader: offsets, limits and planning in one process of the query, reading on the executors.

Spark builds two instances and pickles one for the executors, so only the planned ranges pass from `latestOffset` to `read`.
Offsets are `{"sink/0": n}`: keyed by the log's name and partition, never by an address.
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
from agiledart_sink_log.protocol import DAMAGED, MAX_FETCH_BYTES, NOT_ALLOWED, TRIMMED, UNKNOWN_SINK
from pyspark_agiledart import connection
from pyspark_agiledart.ranges import LogRange, plan_ranges, read_range
from pyspark_agiledart.read_limits import RetainedRange, admitted, ends_within
from pyspark_agiledart.reader_options import LATEST, ReaderOptions

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
        self._client: connection.LogClient | None = None
        self._ends: dict[int, RetainedRange] = {}
        self._target: dict[int, int] | None = None
        self._is_warned = False
        self._refused_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    # ---- where it begins, how far it may go

    def initialOffset(self) -> Offsets:  # noqa: N802  Spark's name
        """Return the first offsets of a query without a checkpoint; retries until `agentTimeout`."""
        return self._keyed(starting_offsets(self._options, self._look_with_retries()))

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802  Spark's name
        """Return the end of the next batch; `start` when there is nothing new or the agent is unreachable."""
        begin = self._plain(start)
        there = self._look(begin)
        for partition, held in there.items():
            if held.committed < begin.get(partition, 0):
                raise OperationFailed(
                    f"The sink {self._options.key(partition)} ends at row {held.committed}, before row {begin[partition]} "
                    f"where this query stands: {self._what_happened()}. Start the query with a new checkpointLocation."
                )
        ends = {partition: held.committed for partition, held in there.items()}
        if self._target is not None:
            ends = {partition: min(end, self._target.get(partition, 0)) for partition, end in ends.items()}
        if not ends:
            return dict(start)
        # Rows that are gone take no part of a limit: they are told at once, not one micro-batch after the other.
        first = {
            partition: min(max(begin.get(partition, 0), there[partition].first), end) for partition, end in ends.items()
        }
        first = {**begin, **{partition: max(offset, begin.get(partition, 0)) for partition, offset in first.items()}}
        if isinstance(limit, ReadAllAvailable):  # a trigger that asks for all gets all
            return self._keyed(admitted(first, ends))
        if self._options.max_bytes:
            ends = self._within_bytes(first, ends)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows
        return self._keyed(admitted(first, ends, rows))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Return the limit that Spark passes to `latestOffset`; Spark does not enforce it."""
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        return ReadMaxBytes(self._options.max_bytes) if self._options.max_bytes else ReadAllAvailable()

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802  Spark's name
        """Return the committed ends of the last answer; the lag in Spark's progress needs no request of its own."""
        return self._keyed({partition: held.committed for partition, held in self._ends.items()}) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Store the committed ends, at which the query stops."""
        self._target = {partition: held.committed for partition, held in self._look_with_retries().items()}

    # ---- planning and reading

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the ranges of a batch, checked against the retained rows of the log."""
        first, last = self._plain(start), self._plain(end)
        ranges = plan_ranges(self._options, first, last, self._look_with_retries())
        return list[InputPartition](ranges)

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows of a range, on an executor."""
        assert isinstance(partition, LogRange)
        return read_range(self._options, self._schema, partition)

    def commit(self, end: Offsets) -> None:
        """Do nothing: age and size limit a log, not the progress of readers."""

    def stop(self) -> None:
        """Close the connection."""
        self._hang_up()

    # ---- inside

    def _look(self, begin: dict[int, int]) -> dict[int, RetainedRange]:
        """Return the committed ranges, after a wait at the agent for rows after `begin`; empty while the agent is unreachable."""
        from agiledart_sink_log.client import SinkLogError

        wait_ms = 0 if self._target is not None else self._options.wait_ms
        try:
            if self._client is None:
                self._client = connection.open_client(self._options, 0.0)
            self._ends = self._kept(self._client, wait_ms, begin)
        except SinkLogError as error:
            self._hang_up()
            self._tolerate_refusal(error.reason in (NOT_ALLOWED, UNKNOWN_SINK), error)
            self._pause(AWAY_SECONDS)
            return {}
        self._refused_since = None
        return self._ends

    def _tolerate_refusal(self, is_refusal: bool, error: Exception) -> None:
        """Tolerate refusals of a restarted agent, which may not know its logs at once; raise a refusal that persists."""
        if not is_refusal:
            return
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if now - self._refused_since > self._options.agent_timeout_s:
            raise error

    def _look_with_retries(self) -> dict[int, RetainedRange]:
        client = connection.open_client(self._options, self._options.agent_timeout_s)
        try:
            self._ends = self._kept(client)
        finally:
            client.close()
        return self._ends

    def _kept(
        self, client: connection.LogClient, wait_ms: int = 0, after: dict[int, int] | None = None
    ) -> dict[int, RetainedRange]:
        latest = self._options.latest
        if latest and not self._is_warned:
            sys.stderr.write(
                f"agiledart: this stream of {self._options.sink} reads rows before they are committed (isolation=read-latest). "
                f"A recovery may take such rows back: show them, but keep no results of them.\n"
            )
            self._is_warned = True
        return connection.retained_ranges(client.ends(self._options.sink, wait_ms, after, uncommitted=latest), latest)

    def _what_happened(self) -> str:
        anew = "its log was begun anew"
        return f"{anew}, or a recovery took back rows that were not committed" if self._options.latest else anew

    def _within_bytes(self, begin: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
        """Return the ends of the stored batches that fit into `maxBytesPerBatch`; other partitions keep their offset."""
        stored = {partition: self._stored(partition, begin[partition], end) for partition, end in sorted(ends.items())}
        return {**{partition: begin[partition] for partition in ends}, **ends_within(self._options.max_bytes, stored)}

    def _stored(self, partition: int, at: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (offset after it, bytes) of the stored batches from `at` to `end`; unreadable rows have no bytes."""
        from agiledart_sink_log.client import SinkLogError

        assert self._client is not None
        size = min(max(1, self._options.max_bytes // len(self._ends)), MAX_FETCH_BYTES)
        while at < end:
            try:
                answer = self._client.fetch(
                    self._options.sink, partition, at, max_bytes=size, uncommitted=self._options.latest
                )
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
                    yield at, len(batch.body)

    def _hang_up(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _keyed(self, offsets: dict[int, int]) -> Offsets:
        return {self._options.key(partition): offset for partition, offset in sorted(offsets.items())}

    def _plain(self, offsets: Offsets) -> dict[int, int]:
        return {self._options.partition(key): int(offset) for key, offset in offsets.items()}


def starting_offsets(options: ReaderOptions, there: dict[int, RetainedRange]) -> dict[int, int]:
    """Return partition → first offset to read. Raises `ConfigurationError` for partitions that the log does not have."""
    if isinstance(options.starting, str):
        latest = options.starting == LATEST
        return {partition: held.committed if latest else held.first for partition, held in there.items()}
    unknown = [options.key(partition) for partition in options.starting if partition not in there]
    if unknown:
        raise ConfigurationError(
            f"startingOffsets names {', '.join(unknown)}; the sink has the partitions 0 to {len(there) - 1}."
        )
    beyond = [partition for partition, offset in options.starting.items() if offset > there[partition].committed]
    if beyond:
        ends = ", ".join(f"{options.key(partition)} ends at {there[partition].committed}" for partition in beyond)
        raise ConfigurationError(f"startingOffsets lies beyond the log's end: {ends}.")
    return {partition: options.starting.get(partition, held.first) for partition, held in there.items()}
