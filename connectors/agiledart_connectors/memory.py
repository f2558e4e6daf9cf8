"""Sources and sinks whose data are objects of this process: lists, callables, `collect`, and `null`, which only counts."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.schema import read_time_index
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError


class MemoryReader:
    """Rows of a list, or of the iterable that a callable returns."""

    stamps = False

    def __init__(self, connector: Connector) -> None:
        if connector.payload is None:
            raise ConfigurationError(
                f"the rows of {connector.url()} are objects of another process and cannot be read here"
            )
        rows = connector.payload() if connector.kind == "call" else connector.payload
        self._rows: Iterator[Any] = iter(rows)

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        rows = list(islice(self._rows, max_rows))
        return Reading(rows, len(rows), {}, len(rows) < max_rows)

    def close(self) -> None:
        self._rows = iter(())


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> MemoryReader:
    """The reader of a `list:` or `call:` connector."""
    return MemoryReader(connector)


@runtime_checkable
class TakesColumns(Protocol):
    """List that can take a batch in columns as it is.

    Attributes:
        takes_columns: it does so.
    """

    takes_columns: bool


class MemoryWriter:
    """Keeps rows in the list that is the connector's payload; `null` drops them."""

    def __init__(self, connector: Connector, row_type: Any, clock: Callable[[], int] = time.time_ns) -> None:
        self.rows: list[Any] | None = None
        if connector.kind == "collect":
            self.rows = connector.payload if isinstance(connector.payload, list) else []
        self._times = LatencyRecorder(row_type, clock)
        self._has_times = read_time_index(row_type) is not None

    def write(self, rows: list[Any]) -> None:
        if self._has_times:
            self._times.count(rows)
        if self.rows is not None:
            self.rows += rows

    def write_columns(self, columns: Any) -> None:
        """Count rows without making them when no list keeps them; a list with `takes_columns` gets columns as they are."""
        if self._has_times:
            self._times.count_columns(columns)
        if self.rows is not None:
            self.rows += (
                columns if (isinstance(self.rows, TakesColumns) and self.rows.takes_columns) else columns.rows()
            )

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is held."""

    @property
    def latency(self) -> LatencyHistogram:
        return self._times.histogram


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: object) -> MemoryWriter:
    """The writer of a `collect` or `null` connector."""
    return MemoryWriter(connector, row_type, clock)
