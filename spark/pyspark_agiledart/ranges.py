"""Planned ranges of rows, and their reading on an executor. A range is fixed: the task reads all of it, or fails."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.column_form import decoded_column
from agiledart_sink_log.protocol import BY_COLUMNS, DAMAGED, MAX_FETCH_ROWS, ROWS, TRIMMED
from pyspark_agiledart.arrow_columns import RowReader
from pyspark_agiledart.log_group import report_to_stderr
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import SKIP, ReaderOptions, log_and_partition, offset_key
from pyspark_agiledart.row_columns import METADATA, metadata_arrays, repeated_times
from pyspark_agiledart.types import parse_schema
from pyspark_agiledart.worker_garbage import leave_out_loaded_modules

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from agiledart_sink_log.client import ReceivedBatch, ReceivedRows
    from pyspark_agiledart.connection import LogClient

FETCH_BYTES: Final = 4 << 20
"""Size of one answer, bytes. It is in memory beside its Arrow batches: some tens of megabytes a task."""

JOINED_ROWS: Final = 2_048
"""Number of rows up to which stored batches are joined, because each Arrow batch has a fixed cost. Many more rows cost more,
because their Python objects exceed the processor's caches. Measured, µs a row: 1.36 with 750 rows, 1.20 with 2,250, 1.78
with 8,250."""


MAX_TASKS: Final = 64
"""Greatest number of tasks of a batch; many small ranges share one."""


@dataclass(frozen=True)
class LogRange:
    """Rows [start, end) of a partition of a log."""

    sink: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> str:
        """Return the partition's key in Spark's offsets."""
        return offset_key(self.sink, self.partition)


@dataclass
class RangeTask(InputPartition):
    """Ranges that one task reads, one after the other."""

    ranges: tuple[LogRange, ...]

    def __repr__(self) -> str:
        return f"RangeTask({', '.join(f'{part.key}: {part.start}–{part.end}' for part in self.ranges)})"


def plan_tasks(
    options: ReaderOptions, start: Mapping[str, int], end: Mapping[str, int], there: Mapping[str, RetainedRange]
) -> list[RangeTask]:
    """Return the tasks that read the rows from `start` to `end`: one for each range, or fewer with many ranges.

    A partition without a start joined the query, and begins at its first retained row. Raises as `plan_ranges`.
    """
    ranges = plan_ranges(options, start, end, there)
    if len(ranges) <= MAX_TASKS:
        return [RangeTask((part,)) for part in ranges]
    shares: list[list[LogRange]] = [[] for _ in range(MAX_TASKS)]
    rows = [0] * MAX_TASKS
    for part in sorted(ranges, key=lambda part: (part.start - part.end, part.key)):
        smallest = rows.index(min(rows))
        shares[smallest].append(part)
        rows[smallest] += part.end - part.start
    return [RangeTask(tuple(share)) for share in shares]


def plan_ranges(
    options: ReaderOptions, start: Mapping[str, int], end: Mapping[str, int], there: Mapping[str, RetainedRange]
) -> list[LogRange]:
    """Return the ranges from `start` to `end` that have rows, checked against the retained rows of the logs.

    Raises `OperationFailed` when rows were trimmed and `failOnDataLoss` is true; else prints their number on stderr.
    """
    ranges = []
    for key, stop in sorted(end.items(), key=lambda item: log_and_partition(item[0])):
        retained = there.get(key)
        begin = start.get(key)
        if begin is None:
            begin = min(retained.first, stop) if retained is not None else 0
        if retained is not None and begin < min(retained.first, stop):
            _lose(options, key, begin, retained.first if options.fail_on_loss else min(retained.first, stop))
            begin = min(retained.first, stop)
        if stop > begin:
            ranges.append(LogRange(*log_and_partition(key), begin, stop))
    return ranges


def read_task(options: ReaderOptions, schema: "StructType", task: RangeTask) -> Iterator["pyarrow.RecordBatch"]:
    """Yield the rows of a task's ranges as Arrow batches, in order.

    While the agent is unreachable the task retries (`agentTimeout`); it continues after the last row that it yielded. Then it
    raises `OperationFailed`, or with `unreachable=skip` leaves out the rest of the range and says so on stderr.
    """
    from agiledart_sink_log.client import SinkLogError
    from agiledart_transport.request_reasons import NO_AGENT
    from pyspark_agiledart import connection

    client = connection.open_client(options, options.agent_timeout_s)
    try:
        for planned in task.ranges:
            at = planned.start
            try:
                for batch, following in _read_range(client, options, schema, planned):
                    at = following
                    if batch.num_rows:
                        yield batch
            except SinkLogError as error:
                if options.unreachable != SKIP or error.reason != NO_AGENT:
                    raise
                report_to_stderr(
                    f"agiledart: rows {at} to {planned.end} of {planned.key} are skipped (unreachable=skip): {error}"
                )
    finally:
        client.close()
        leave_out_loaded_modules()


def _read_range(
    client: "LogClient", options: ReaderOptions, schema: "StructType", planned: LogRange
) -> Iterator[tuple["pyarrow.RecordBatch", int]]:
    """Yield (rows, offset after them) of a range. Raises `OperationFailed`."""
    from agiledart_sink_log.client import SinkLogError

    located = client.locate(planned.sink)
    try:
        reader = RowReader(
            parse_schema(located.schema),
            schema,
            options.where,
            METADATA if options.metadata else (),
            options.is_several,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"The log {planned.sink}: {error}" if options.is_several else str(error)) from None
    at = planned.start
    while at < planned.end:
        fetcher = _RangeFetcher(client, options, reader, planned, at, located.node)
        try:
            answer = fetcher.fetch()
        except SinkLogError as error:
            is_missing_range = error.reason == TRIMMED or (error.reason == DAMAGED and not options.fail_on_loss)
            if not is_missing_range or error.first_kept <= at:
                raise
            gone = min(error.first_kept, planned.end)
            _lose(options, planned.key, at, gone)
            at = gone
            continue
        # One after the other: a batch goes on to Spark while it lies in the processor's caches.
        for batch, rows in fetcher.batches(answer):
            at += rows
            if batch is not None:
                yield batch, at


class _RangeFetcher:
    """One request of a range: stored batches as Arrow batches, cut to the range at both ends; small ones of rows are joined.

    Args:
        at: first offset of the request.
        node: name of the node that has the log.
    """

    def __init__(
        self,
        client: "LogClient",
        options: ReaderOptions,
        reader: RowReader,
        planned: LogRange,
        at: int,
        node: str,
    ) -> None:
        self._client, self._options, self._reader = client, options, reader
        self._planned, self._node = planned, node
        self._at = self._position = at
        self._waiting: list[Any] = []
        self._stored_ms: list[tuple[int, int]] = []

    def fetch(self) -> "ReceivedRows":
        """Return the agent's answer. Raises `SinkLogError`."""
        planned, options, reader = self._planned, self._options, self._reader
        times = (reader.stored_at_column,) if options.metadata else ()
        return self._client.fetch_parts(
            planned.sink,
            planned.partition,
            self._at,
            (*reader.columns, *times),
            reader.zone_conditions(),
            max_rows=min(MAX_FETCH_ROWS, planned.end - self._at),
            max_bytes=FETCH_BYTES,
            wait_ms=options.wait_ms,
            uncommitted=options.latest,
        )

    def batches(self, answer: "ReceivedRows") -> Iterator[tuple["pyarrow.RecordBatch | None", int]]:
        """Yield (rows, number of rows read) of an answer; None for rows that the agent left out."""
        for stored in answer.batches:
            yield from self._read(stored)
        yield from self._joined()
        if self._position == self._at:
            raise OperationFailed(
                f"The log {self._planned.key} now ends at row {answer.end}, but rows up to {self._planned.end} were "
                f"planned: it was begun anew or cut. {_REMEDY}"
            )

    def _read(self, stored: "ReceivedBatch") -> Iterator[tuple["pyarrow.RecordBatch | None", int]]:
        if stored.offset > self._position:
            raise OperationFailed(
                f"The log {self._planned.key} has no rows {self._position} to {stored.offset}, which it had when "
                f"this batch was planned. {_REMEDY}"
            )
        skip = self._position - stored.offset
        keep = min(stored.rows - skip, self._planned.end - self._position)
        if keep <= 0:
            return
        if stored.form == ROWS:
            self._take_rows(stored, skip, keep)
            if len(self._waiting) >= JOINED_ROWS:
                yield from self._joined()
            return
        yield from self._joined()
        batch = self._by_columns(stored, skip, keep) if stored.form == BY_COLUMNS else None
        self._position += keep
        yield batch, keep

    def _take_rows(self, stored: "ReceivedBatch", skip: int, keep: int) -> None:
        rows = self._reader.rows(stored.parts[0], skip, keep)
        if len(rows) != keep:
            raise OperationFailed(
                f"A stored batch of {self._planned.key} at {stored.offset} has not the {stored.rows} rows that "
                f"it names. Its log is damaged."
            )
        self._waiting += rows
        self._stored_ms.append((keep, stored.at_ms))
        self._position += keep

    def _joined(self) -> Iterator[tuple["pyarrow.RecordBatch", int]]:
        """Yield the rows that wait, as one batch."""
        rows, stored_ms = self._waiting, self._stored_ms
        if rows:
            self._waiting, self._stored_ms = [], []
            times = repeated_times(stored_ms) if self._options.metadata else None
            yield self._reader.batch(rows, self._added(self._position - len(rows), times)), len(rows)

    def _by_columns(self, stored: "ReceivedBatch", skip: int, keep: int) -> "pyarrow.RecordBatch":
        reader = self._reader
        if len(stored.parts) != len(reader.columns) + self._options.metadata:
            raise OperationFailed(f"The agent sent {len(stored.parts)} columns of {self._planned.key}.")
        times = None
        if self._options.metadata:
            times = self._times(stored).slice(skip, keep)
        parts = dict(zip(reader.columns, stored.parts, strict=False))
        return reader.column_batch(parts, stored.rows, skip, keep, self._added(self._position, times))

    def _times(self, stored: "ReceivedBatch") -> "pyarrow.Array":
        """Return the time of storing of each row of a stored batch."""
        import pyarrow

        if not stored.parts[-1]:
            return repeated_times([(stored.rows, stored.at_ms)])
        try:
            return decoded_column(stored.parts[-1], pyarrow.int64(), stored.rows)
        except ValueError as error:
            raise OperationFailed(f"The times of storing of {self._planned.key} are damaged: {error}") from None

    def _added(self, first: int, times: "pyarrow.Array | None") -> "dict[str, pyarrow.Array] | None":
        if times is None:
            return None
        return metadata_arrays(self._planned.sink, self._node, self._planned.partition, first, times)


_REMEDY: Final = "Start the query with a new checkpointLocation to read the log as it is now."


def _lose(options: ReaderOptions, key: str, begin: int, end: int) -> None:
    """Report that rows [begin, end) are lost: an error that says what to do, or a line on stderr."""
    lost_rows = f"{end - begin:,} rows ({begin} to {end}) of the sink {key}"
    if options.fail_on_loss:
        raise OperationFailed(
            f"{lost_rows} were removed by the log's retention before this query read them. Start it again with "
            f".option('failOnDataLoss', 'false') to go on without them, and keep the log longer (max_bytes, max_age)."
        )
    report_to_stderr(f"agiledart: {lost_rows} are gone; reading goes on at {end} (failOnDataLoss=false)")
