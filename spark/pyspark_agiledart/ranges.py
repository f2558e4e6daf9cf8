"""Planned ranges of rows, and their reading on an executor. A range is fixed: the task reads all of it, or fails."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.protocol import DAMAGED, TRIMMED
from pyspark_agiledart.arrow_columns import RowReader
from pyspark_agiledart.log_group import report_to_stderr
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import SKIP, ReaderOptions, log_and_partition, offset_key
from pyspark_agiledart.row_columns import METADATA, metadata_arrays
from pyspark_agiledart.types import parse_schema

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from pyspark_agiledart.connection import LogClient

FETCH_ROWS: Final = 100_000
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
    from agiledart_sink_log.client import NO_AGENT, SinkLogError
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
            len(options.sinks) > 1,
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"The log {planned.sink}: {error}" if len(options.sinks) > 1 else str(error)) from None
    at = planned.start
    while at < planned.end:
        try:
            batches = list(_fetched(client, options, reader, planned, at, located.node))
        except SinkLogError as error:
            is_missing_range = error.reason == TRIMMED or (error.reason == DAMAGED and not options.fail_on_loss)
            if not is_missing_range or error.first_kept <= at:
                raise
            gone = min(error.first_kept, planned.end)
            _lose(options, planned.key, at, gone)
            at = gone
            continue
        for batch, rows in batches:
            at += rows
            yield batch, at


def _fetched(
    client: "LogClient", options: ReaderOptions, reader: RowReader, planned: LogRange, at: int, node: str
) -> Iterator[tuple["pyarrow.RecordBatch", int]]:
    """Yield (rows, number of rows read) of one request: stored batches, joined, and cut to the range at both ends."""
    answer = client.fetch(
        planned.sink,
        planned.partition,
        at,
        max_rows=min(FETCH_ROWS, planned.end - at),
        max_bytes=FETCH_BYTES,
        wait_ms=options.wait_ms,
        uncommitted=options.latest,
    )
    position = at
    waiting: list[Any] = []
    stored_ms: list[tuple[int, int]] = []

    def joined() -> tuple["pyarrow.RecordBatch", int]:
        first = position - len(waiting)
        added = metadata_arrays(planned.sink, node, planned.partition, first, stored_ms) if options.metadata else None
        return reader.batch(waiting, added), len(waiting)

    for stored in answer.batches:
        if stored.offset > position:
            raise OperationFailed(
                f"The log {planned.key} has no rows {position} to {stored.offset}, which it had when "
                f"this batch was planned. {_REMEDY}"
            )
        skip = position - stored.offset
        keep = min(stored.rows - skip, planned.end - position)
        if keep <= 0:
            continue
        rows = reader.rows(stored.body, skip, keep)
        if len(rows) != keep:
            raise OperationFailed(
                f"A stored batch of {planned.key} at {stored.offset} has not the {stored.rows} rows that "
                f"it names. Its log is damaged."
            )
        waiting += rows
        stored_ms.append((keep, stored.at_ms))
        position += keep
        if len(waiting) >= JOINED_ROWS:
            yield joined()
            waiting, stored_ms = [], []
    if waiting:
        yield joined()
    if position == at:
        raise OperationFailed(
            f"The log {planned.key} now ends at row {answer.end}, but rows up to {planned.end} were "
            f"planned: it was begun anew or cut. {_REMEDY}"
        )


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
