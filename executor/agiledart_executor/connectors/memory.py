"""Sources and sinks whose data are objects of this process: lists, callables, `collect`, and `null`, which only counts."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.schema import fields_of, read_time_index
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_executor.connectors.options import SourceWish
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


def open_source(connector: Connector, row_type: Any, wish: SourceWish) -> MemoryReader:
    """The reader of a `list:` or `call:` connector."""
    return MemoryReader(connector)


class ReadTimes:
    """Counts read-to-write latencies of rows of one type."""

    def __init__(self, row_type: Any, clock: Callable[[], int]) -> None:
        self.histogram = LatencyHistogram()
        self._clock = clock
        index = read_time_index(row_type)
        self._name = "" if index is None else fields_of(row_type)[index].name
        self._read_at = attrgetter(self._name) if self._name else None

    def count(self, rows: list[Any]) -> int:
        """Count rows that are being written; returns the wall time at which that happens."""
        now = self._clock()
        if self._read_at is not None:
            for read_at, times in Counter(map(self._read_at, rows)).items():  # rows of one reading have one time
                self.histogram.add(now - read_at, times)
        return now

    def count_columns(self, columns: Any) -> None:
        """The same for rows that are columns."""
        read_at = columns.named(self._name)
        if read_at.kind == "int" and read_at.valid is None:
            self.histogram.add_array(self._clock() - read_at.values)
        else:
            self.count(columns.rows())


class MemoryWriter:
    """Keeps rows in the list that is the connector's payload; `null` drops them."""

    def __init__(self, connector: Connector, row_type: Any, clock: Callable[[], int] = time.time_ns) -> None:
        self.rows: list[Any] | None = None
        if connector.kind == "collect":
            self.rows = connector.payload if isinstance(connector.payload, list) else []
        self._times = ReadTimes(row_type, clock)
        self._has_times = read_time_index(row_type) is not None

    def write(self, rows: list[Any]) -> None:
        if self._has_times:
            self._times.count(rows)
        if self.rows is not None:
            self.rows += rows

    def write_columns(self, columns: Any) -> None:
        """Rows that nobody keeps need not be made; a list that says that it `takes_columns` gets them as they are."""
        if self._has_times:
            self._times.count_columns(columns)
        if self.rows is not None:
            self.rows += columns if getattr(self.rows, "takes_columns", False) else columns.rows()

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
