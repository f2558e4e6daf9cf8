"""Batch reader: logs as a table, from their first retained row to the committed end when Spark plans the query."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from agiledart_kernel.errors import ConfigurationError
from agiledart_sink_log.column_index import IN, IS_NOT_NULL, IS_NULL, STARTS_WITH
from pyspark_agiledart.log_group import LogGroup
from pyspark_agiledart.ranges import RangeTask, plan_tasks, read_task
from pyspark_agiledart.reader_options import LATEST, SKIP, ReaderOptions
from pyspark_agiledart.row_columns import METADATA
from pyspark_agiledart.row_filter import COMPARISONS, Condition, Literal
from pyspark_agiledart.stream_reader import starting_offsets
from pyspark_agiledart.worker_garbage import leave_out_loaded_modules

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Reader of the committed rows (with `read-latest` all written rows), one range for each partition of a log."""

    def __init__(self, options: ReaderOptions, schema: "StructType") -> None:
        if options.starting == LATEST:
            raise ConfigurationError("startingOffsets=latest reads nothing in a batch; use earliest, or a stream.")
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges with rows; planned again for each action.

        Raises `OperationFailed` when one of several logs is away, except with `unreachable=skip`.
        """
        logs = LogGroup(self._options, self._options.agent_timeout_s)
        try:
            there = logs.ends()
            if self._options.unreachable != SKIP:
                logs.check_missing(0.0)
        finally:
            logs.close()
        start = starting_offsets(self._options, there)
        end = {key: retained.committed for key, retained in there.items()}
        leave_out_loaded_modules()
        return plan_tasks(self._options, start, end, there)

    def read(self, partition: InputPartition) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows of a task. For a log without rows Spark passes a partition of its own, which has none."""
        if isinstance(partition, RangeTask):
            yield from read_task(self._options, self._schema, partition)


class FilteringBatchReader(BatchReader):
    """Batch reader that also applies Spark's filters; Spark applies them again.

    A class of its own, because Spark refuses each read of a reader with `pushFilters` while its setting is off.
    """

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802  Spark's name
        """Take the filters that a reader can apply, and return all of them, so that Spark's own meaning holds."""
        names = {field.name for field in self._schema.fields if field.name not in METADATA}
        conditions = [condition for part in filters if (condition := _condition(part)) and condition.field in names]
        self._options = replace(self._options, where=(*self._options.where, *conditions))
        return filters


def _condition(part: "Filter") -> Condition | None:
    """Return a filter of Spark as a condition; None for one that is not applied here."""
    operators: dict[type, str] = {
        datasource.EqualTo: COMPARISONS[0],
        datasource.LessThan: "<",
        datasource.LessThanOrEqual: "<=",
        datasource.GreaterThan: ">",
        datasource.GreaterThanOrEqual: ">=",
    }
    match part:
        case datasource.IsNull(attribute=(name,)):
            return Condition(name, IS_NULL)
        case datasource.IsNotNull(attribute=(name,)):
            return Condition(name, IS_NOT_NULL)
        case datasource.StringStartsWith(attribute=(name,), value=value):
            return Condition(name, STARTS_WITH, (value,))
        case datasource.In(attribute=(name,), value=values) if all(_is_plain(value) for value in values):
            return Condition(name, IN, tuple(values))
        case (
            datasource.EqualTo(attribute=(name,), value=value)
            | datasource.LessThan(attribute=(name,), value=value)
            | datasource.LessThanOrEqual(attribute=(name,), value=value)
            | datasource.GreaterThan(attribute=(name,), value=value)
            | datasource.GreaterThanOrEqual(attribute=(name,), value=value)
        ) if _is_plain(value):
            return Condition(name, operators[type(part)], (value,))
        case _:
            return None


def _is_plain(value: object) -> bool:
    """Return whether a value of a filter is a literal of the same meaning here; NaN is not."""
    return isinstance(value, Literal) and value == value
