"""Batch reader: the log as a table, from its first retained row to the committed end when Spark plans the query."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from agiledart_kernel.errors import ConfigurationError
from pyspark_agiledart import connection
from pyspark_agiledart.ranges import LogRange, plan_ranges, read_range
from pyspark_agiledart.reader_options import LATEST, ReaderOptions
from pyspark_agiledart.stream_reader import starting_offsets

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Reader of the committed rows (with `read-latest` all written rows), one range for each partition of the log."""

    def __init__(self, options: ReaderOptions, schema: "StructType") -> None:
        if options.starting == LATEST:
            raise ConfigurationError("startingOffsets=latest reads nothing in a batch; use earliest, or a stream.")
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges with rows; planned again for each action."""
        client = connection.open_client(self._options, self._options.agent_timeout_s)
        try:
            there = connection.retained_ranges(
                client.ends(self._options.sink, uncommitted=self._options.latest), self._options.latest
            )
        finally:
            client.close()
        start = starting_offsets(self._options, there)
        end = {partition: held.committed for partition, held in there.items()}
        return plan_ranges(self._options, start, end, there)

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows of a range. For a log without rows Spark passes a partition of its own, which has none."""
        if isinstance(partition, LogRange):
            yield from read_range(self._options, self._schema, partition)
