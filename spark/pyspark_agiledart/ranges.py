"""Planned ranges of rows, and their reading on an executor. A range is fixed: the task reads all of it, or fails."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import InputPartition

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.protocol import DAMAGED, TRIMMED
from pyspark_agiledart.arrow_columns import RowReader
from pyspark_agiledart.read_limits import RetainedRange
from pyspark_agiledart.reader_options import ReaderOptions
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


@dataclass
class LogRange(InputPartition):
    """Rows [start, end) of a partition of the log."""

    partition: int
    start: int
    end: int

    def __repr__(self) -> str:
        return f"LogRange({self.partition}: {self.start}–{self.end})"


def plan_ranges(
    options: ReaderOptions, start: Mapping[int, int], end: Mapping[int, int], there: Mapping[int, RetainedRange]
) -> list[LogRange]:
    """Return the ranges from `start` to `end` that have rows, checked against the retained rows of the log.

    Raises `OperationFailed` when rows were trimmed and `failOnDataLoss` is true; else prints their number on stderr.
    """
    ranges = []
    for partition, stop in sorted(end.items()):
        begin = start.get(partition, 0)
        held = there.get(partition)
        if held is not None and begin < min(held.first, stop):
            _lose(options, partition, begin, held.first if options.fail_on_loss else min(held.first, stop))
            begin = min(held.first, stop)
        if stop > begin:
            ranges.append(LogRange(partition, begin, stop))
    return ranges


def read_range(options: ReaderOptions, schema: "StructType", planned: LogRange) -> Iterator["pyarrow.RecordBatch"]:
    """Yield the rows of a range as Arrow batches, in order.

    While the agent is unreachable the task retries (`agentTimeout`); it continues after the last row that it yielded. Raises
    `OperationFailed`.
    """
    from agiledart_sink_log.client import SinkLogError
    from pyspark_agiledart import connection

    client = connection.open_client(options, options.agent_timeout_s)
    try:
        reader = RowReader(parse_schema(client.locate(options.sink).schema), schema)
        at = planned.start
        while at < planned.end:
            try:
                batches = list(_fetched(client, options, reader, planned, at))
            except SinkLogError as error:
                is_gap = error.reason == TRIMMED or (error.reason == DAMAGED and not options.fail_on_loss)
                if not is_gap or error.first_kept <= at:
                    raise
                gone = min(error.first_kept, planned.end)
                _lose(options, planned.partition, at, gone)
                at = gone
                continue
            for batch in batches:
                at += batch.num_rows
                yield batch
    finally:
        client.close()


def _fetched(
    client: "LogClient", options: ReaderOptions, reader: RowReader, planned: LogRange, at: int
) -> Iterator["pyarrow.RecordBatch"]:
    """Yield the rows of one request: stored batches, joined, and cut to the range at both ends."""
    answer = client.fetch(
        options.sink,
        planned.partition,
        at,
        max_rows=min(FETCH_ROWS, planned.end - at),
        max_bytes=FETCH_BYTES,
        wait_ms=options.wait_ms,
        uncommitted=options.latest,
    )
    position = at
    waiting: list[Any] = []
    for stored in answer.batches:
        if stored.offset > position:
            raise OperationFailed(
                f"The log {options.key(planned.partition)} has no rows {position} to {stored.offset}, which it had when "
                f"this batch was planned. {_REMEDY}"
            )
        skip = position - stored.offset
        keep = min(stored.rows - skip, planned.end - position)
        if keep <= 0:
            continue
        rows = reader.rows(stored.body, skip, keep)
        if len(rows) != keep:
            raise OperationFailed(
                f"A stored batch of {options.key(planned.partition)} at {stored.offset} has not the {stored.rows} rows that "
                f"it names. Its log is damaged."
            )
        waiting += rows
        position += keep
        if len(waiting) >= JOINED_ROWS:
            yield reader.batch(waiting)
            waiting = []
    if waiting:
        yield reader.batch(waiting)
    if position == at:
        raise OperationFailed(
            f"The log {options.key(planned.partition)} now ends at row {answer.end}, but rows up to {planned.end} were "
            f"planned: it was begun anew or cut. {_REMEDY}"
        )


_REMEDY: Final = "Start the query with a new checkpointLocation to read the log as it is now."


def _lose(options: ReaderOptions, partition: int, begin: int, end: int) -> None:
    """Report that rows [begin, end) are lost: an error that says what to do, or a line on stderr."""
    lost_rows = f"{end - begin:,} rows ({begin} to {end}) of the sink {options.key(partition)}"
    if options.fail_on_loss:
        raise OperationFailed(
            f"{lost_rows} were removed by the log's retention before this query read them. Start it again with "
            f".option('failOnDataLoss', 'false') to go on without them, and keep the log longer (max_bytes, max_age)."
        )
    sys.stderr.write(f"agiledart: {lost_rows} are gone; reading goes on at {end} (failOnDataLoss=false)\n")
