"""Writers of `format("agiledart")`: rows of a query or of one write go to a feed, each batch once.

Tasks stage their rows at the feed's agent; Spark's driver publishes them together. Tasks and driver are different processes and
share only the commit messages. So a message names the query, which Spark tells to tasks and not to the driver.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_sink_log.feed_protocol import StagePart
from pyspark_agiledart.idle_clients import IdleClients, client_identity, client_key
from pyspark_agiledart.log_group import report_to_stderr
from pyspark_agiledart.worker_garbage import leave_out_loaded_modules
from pyspark_agiledart.writer_options import WriterOptions
from pyspark_agiledart.written_rows import RowWriter

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType

    from agiledart_sink_log.feed_client import FeedClient

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Properties of a task of a stream; Spark sets them for each micro-batch, and keeps the query's id in its checkpoint."""

MAX_ATTEMPT_BITS: Final = 62

_IDLE: "Final[IdleClients[FeedClient]]" = IdleClients()


@dataclass(frozen=True)
class StagedTask(WriterCommitMessage):
    """Result of one task: its stage, and the query whose batch it belongs to."""

    query: str
    part: StagePart


class FeedStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream. Each micro-batch is published as one, and once, also when Spark repeats it after a crash."""

    def __init__(self, options: WriterOptions, schema: "StructType") -> None:
        self._options, self._schema = options, schema
        self._rows_schema = RowWriter(schema).schema  # fails here for a type that a feed does not have

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> StagedTask:
        """Stage the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if context is None or not query or batch is None:
            raise OperationFailed(
                "Spark does not tell this task its query and batch, so its rows cannot be published once."
            )
        part = _stage(self._options, self._schema, (query, int(batch)), context.partitionId(), iterator)
        return StagedTask(query, part)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Publish what the tasks of a micro-batch have staged."""
        staged = _staged(messages)
        if staged:
            _publish(self._options, (staged[0].query, batchId), self._rows_schema, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Drop what the tasks of a micro-batch have staged."""
        staged = _staged(messages)
        if staged:
            _drop(self._options, (staged[0].query, batchId))


class FeedBatchWriter(DataSourceArrowWriter):
    """Writer of `df.write`: with `writeId` published once, else at least once."""

    def __init__(self, options: WriterOptions, schema: "StructType", *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError("A feed is appended to, never overwritten: .mode('append')")
        self._options, self._schema = options, schema
        self._rows_schema = RowWriter(schema).schema
        self._batch = (f"write:{options.write_id or secrets.token_hex(16)}", 0)

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> StagedTask:
        """Stage the rows of one task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        return StagedTask(self._batch[0], _stage(self._options, self._schema, self._batch, partition, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks have staged."""
        if not self._options.write_id:
            report_to_stderr(
                f"agiledart: this write to the feed {self._options.feed} has no writeId: when the job is run again, its rows are "
                f"there twice"
            )
        _publish(self._options, self._batch, self._rows_schema, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks have staged."""
        _drop(self._options, self._batch)


def _stage(
    options: WriterOptions,
    schema: "StructType",
    batch: tuple[str, int],
    partition: int,
    iterator: "Iterator[pyarrow.RecordBatch]",
) -> StagePart:
    """Stage the rows of one task, and return its stage."""
    rows_of, attempt = RowWriter(schema), secrets.randbits(MAX_ATTEMPT_BITS)
    pieces = total = 0
    with feed_client(options) as client:
        for arrow in iterator:
            for body, rows in rows_of.pieces(arrow):
                client.stage(options.feed, batch, (partition, attempt), pieces, rows_of.schema, body, rows)
                pieces, total = pieces + 1, total + rows
    return StagePart(partition, attempt, pieces, total)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    return [message for message in messages if isinstance(message, StagedTask)]


def _publish(options: WriterOptions, batch: tuple[str, int], schema: bytes, staged: Sequence[StagedTask]) -> None:
    with feed_client(options) as client:
        client.publish(options.feed, batch, schema, tuple(task.part for task in staged))


def _drop(options: WriterOptions, batch: tuple[str, int]) -> None:
    """Drop the stages of a batch that failed. Stages that cannot be dropped now expire at the agent."""
    try:
        with feed_client(options, 1.0) as client:
            client.drop(options.feed, batch)
    except AgileDartError as error:
        report_to_stderr(f"agiledart: staged rows of {options.feed} stay for a day: {error}")


@contextmanager
def feed_client(options: WriterOptions, agent_timeout_s: float | None = None) -> "Iterator[FeedClient]":
    """Lend a client for the feed of these options: one that an earlier task has released, or a new one, which connects later.

    Raises `ConfigurationError` without a token, `OperationFailed` for an invalid one.
    """
    from agiledart_sink_log.feed_client import FeedClient

    key = client_key(options)
    client = _IDLE.take(key)
    if client is None:
        purpose = f"Writing to the feed {options.feed}"
        identity, bootstrap = client_identity(options, purpose, "writer", f"feed:{options.feed}")
        client = FeedClient(bootstrap, identity, report=report_to_stderr)
    client.agent_timeout_s = options.agent_timeout_s if agent_timeout_s is None else agent_timeout_s
    try:
        yield client
    finally:
        _IDLE.give(key, client)
        leave_out_loaded_modules()
