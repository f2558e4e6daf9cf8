"""`ReadAheadLimiter`: reading into the log of a source's reader while no row can be sent, no faster than the rows are due."""

from dataclasses import dataclass

from agiledart_dataflow.event_time.pacer import Pacer
from agiledart_dataflow.plan.connector_abilities import ReadsAhead
from agiledart_dataflow.runtime.source_validator import SourceValidator

IDLE_NS = 5_000_000
"""Pause before the next poll of a reader without data."""

MAX_ROWS_AHEAD = 128
"""Rows that a paced source reads ahead of their time."""


@dataclass(slots=True)
class ReadAheadLimiter:
    """Pace of a source's reading ahead: the next rows are read when the last one is due.

    One row is read at a time, so that the rate of the input can be measured; twice as many after a row that was late already.
    Rows whose event times are known only behind steps at the source are read at once.
    """

    pacer: Pacer
    validator: SourceValidator
    _newest_ms: int | None = None
    _rows: int = 1

    def read(self, ahead: ReadsAhead, newest_ms: int | None, now_ns: int, wall_ns: int, max_rows: int) -> int | None:
        """Read on; return the instant before which there is nothing to read, None: at once.

        Args:
            newest_ms: newest event time of the rows that were handed out.
        """
        if self.pacer.paces:
            if newest_ms is None or not self.pacer.has_begun:
                return now_ns + IDLE_NS  # the first row that goes sets the pace
            newest_ms = max(newest_ms, self._newest_ms or newest_ms)
            due_ns = self.pacer.due_ns(newest_ms, now_ns, wall_ns)
            if due_ns > now_ns:
                self._rows = 1
                return due_ns
            max_rows, self._rows = min(max_rows, self._rows), min(MAX_ROWS_AHEAD, 2 * self._rows)
        reading = ahead.read_ahead(max_rows, wall_ns)
        if reading is None:
            return now_ns + IDLE_NS
        newest = self.validator.time_of_last(reading.rows)
        self._newest_ms = self._newest_ms if newest is None else newest
        return None
