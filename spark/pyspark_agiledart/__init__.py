"""`spark.read.format("agiledart")` and `spark.readStream.format("agiledart")`: sink logs as DataFrames; writers: feeds.

Spark finds this package by its name's prefix and imports it in a process of its own, where one exception would hide every
Python source. So it imports `pyspark.sql.datasource` here and all else where it is needed. May import the kernel, the
transport's synchronous client and the agent's tokens; never `agiledart` itself.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_agiledart.batch_reader import BatchReader
    from pyspark_agiledart.feed_writers import FeedBatchWriter, FeedStreamWriter
    from pyspark_agiledart.reader_options import ReaderOptions
    from pyspark_agiledart.stream_reader import StreamReader


class DefaultSource(DataSource):
    """Spark source `agiledart`; docs/how-to/spark.md lists its options. A wrong option raises an error of one sentence."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "agiledart"

    def schema(self) -> "StructType":
        """Return the columns of the logs' rows, as agents describe them."""
        from pyspark_agiledart.arrow_columns import spark_schema
        from pyspark_agiledart.log_group import LogGroup, joined_fields
        from pyspark_agiledart.row_columns import chosen_schema
        from pyspark_agiledart.worker_garbage import leave_out_loaded_modules

        options = self._options()
        logs = LogGroup(options, min(options.agent_timeout_s, 10.0))
        try:
            fields = joined_fields(logs.schemas())
        finally:
            logs.close()
        leave_out_loaded_modules()
        return chosen_schema(spark_schema(fields), options.metadata, options.columns)

    def reader(self, schema: "StructType") -> "BatchReader":
        """Return a reader of the log as a table."""
        from pyspark_agiledart.batch_reader import BatchReader, FilteringBatchReader

        options = self._options()
        return FilteringBatchReader(options, schema) if options.push_filters else BatchReader(options, schema)

    def streamReader(self, schema: "StructType") -> "StreamReader":  # noqa: N802  Spark's name
        """Return a reader of the log as a stream."""
        from pyspark_agiledart.stream_reader import StreamReader

        return StreamReader(self._options(), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "FeedBatchWriter":
        """Return a writer of a table to a feed."""
        from pyspark_agiledart.feed_writers import FeedBatchWriter
        from pyspark_agiledart.writer_options import parse_writer_options

        given: Any = self.options
        return FeedBatchWriter(parse_writer_options(dict(given.items()), is_stream=False), schema, overwrite=overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "FeedStreamWriter":  # noqa: N802  Spark's name
        """Return a writer of a stream to a feed. In complete mode each micro-batch appends the whole table."""
        from pyspark_agiledart.feed_writers import FeedStreamWriter
        from pyspark_agiledart.writer_options import parse_writer_options

        given: Any = self.options
        return FeedStreamWriter(parse_writer_options(dict(given.items()), is_stream=True), schema)

    def _options(self) -> "ReaderOptions":
        from pyspark_agiledart.reader_options import parse_options

        given: Any = self.options
        return parse_options(dict(given.items()))
