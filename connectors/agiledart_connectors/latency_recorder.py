"""Latencies from reading to writing, as sinks count them."""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.schema import fields_of, read_time_index


class LatencyRecorder:
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
