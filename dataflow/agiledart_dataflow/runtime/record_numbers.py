"""`RecordNumbers`: sequence numbers of a source's records, and what goes with its rows."""

from itertools import repeat
from typing import Any

from agiledart_dataflow.data.batch import Held, listed
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.position import RECORD
from agiledart_dataflow.data.position_arrays import record_positions


class RecordNumbers:
    """Numbers of one source's records.

    Args:
        carries: data that goes with its rows.
        source: number of the source.
        has_lateness: positions state how late a row is.

    Attributes:
        sequence: number of the next record.
    """

    def __init__(self, carries: Carries, source: int, *, has_lateness: bool) -> None:
        self._carries, self._source, self._has_lateness = carries, source, has_lateness
        self.sequence = 0

    def of(self, times: Any, held: Held) -> Any:
        """Return what goes with the next rows; they get the next sequence numbers."""
        first = self.sequence
        self.sequence = last = first + len(held)
        if self._carries == "rows":
            return None
        if self._carries == "times":
            return times
        if type(held) is not list and not self._has_lateness:
            return record_positions(times, self._source, first, len(held))
        times = times if type(times) is list else listed(times)
        columns = times, repeat(RECORD), repeat(self._source), range(first, last)
        return list(zip(*columns, repeat(0), strict=False) if self._has_lateness else zip(*columns, strict=False))
