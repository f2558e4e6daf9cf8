"""Count of rows that a sink without abort has emitted, kept where the death of its process does not lose it.

    opened/STAGE.INDEX.shown    rows given to the sink; rows of them given again since the start; the last attempts and their shares

A restarted run writes again the rows that its sink got after the last committed epoch. A row is counted before the sink gets it,
so no emitted row is missing from the count; rows lost in the buffers of a dying process count, too. The file is mapped into
memory: the kernel keeps it when the process is killed.
A power failure may lose the last seconds of a count.
"""

import mmap
import os
import struct
from pathlib import Path
from typing import Any, Final

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.counts.statistics import DuplicateCounts
from agiledart_dataflow.plan.connector_abilities import WriterAbilities
from agiledart_dataflow.plan.connectors import SinkWriter

MAX_ATTEMPTS_COUNTED: Final = 16
"""Attempts with a count of their own; the sum includes rows that earlier attempts emitted again."""

_GIVEN: Final = struct.Struct("<Q")
_REST: Final = struct.Struct(f"<Q{2 * MAX_ATTEMPTS_COUNTED}Q")
_SIZE: Final = _GIVEN.size + _REST.size


class EmittedRowCount:
    """Count of one sink.

    Args:
        path: of its file; its folder is made if need be.
        begins: the run begins; else an earlier attempt of it has written the file.

    Attributes:
        counts: rows emitted again since the run began.

    Raises:
        OSError: the disk refuses.
    """

    def __init__(self, path: Path, *, begins: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = b"" if begins else os.pread(descriptor, _SIZE, 0)
            is_there = len(before) == _SIZE
            self._given = _GIVEN.unpack_from(before)[0] if is_there else 0
            rows, *pairs = _REST.unpack_from(before, _GIVEN.size) if is_there else (0,)
            attempts = [(attempt, again) for attempt, again in zip(pairs[::2], pairs[1::2], strict=True) if attempt]
            self.counts = DuplicateCounts(rows, attempts, begins or is_there)
            # Written once, so that the disk has given its room: a full one shows here, and not in the middle of a row.
            os.pwrite(descriptor, self._content(), 0)
            self._file = mmap.mmap(descriptor, _SIZE)
        finally:
            os.close(descriptor)

    def _content(self) -> bytes:
        pairs = [number for pair in self.counts.attempts for number in pair]
        return _GIVEN.pack(self._given) + _REST.pack(
            self.counts.rows, *pairs, *(0,) * (2 * MAX_ATTEMPTS_COUNTED - len(pairs))
        )

    def resume_at(self, given: int, attempt: int) -> None:
        """Count rows to be emitted again: this attempt resumes the sink where it had been given `given` rows."""
        if (again := self._given - given) > 0:
            self.counts.rows += again
            self.counts.attempts = [*self.counts.attempts, (attempt, again)][-MAX_ATTEMPTS_COUNTED:]
        self._given = given
        self._file[:] = self._content()

    def count(self, rows: int) -> None:
        """So many more are about to be given to it."""
        self._given += rows
        _GIVEN.pack_into(self._file, 0, self._given)


class CountedSink:
    """A sink whose rows are counted before it has them."""

    def __init__(self, writer: SinkWriter, emitted_rows: EmittedRowCount) -> None:
        self._writer, self._emitted_rows = writer, emitted_rows
        self.flush, self.close = writer.flush, writer.close
        abilities = WriterAbilities.of(writer)
        if (columns := abilities.columns) is not None:
            self._write_columns = columns.write_columns
            self.write_columns = self._counted_columns
        if abilities.rejecting is not None:
            self.take_rejected = abilities.rejecting.take_rejected

    def write(self, rows: list[Any]) -> None:
        """Count rows and write them to the sink."""
        self._emitted_rows.count(len(rows))
        self._writer.write(rows)

    def _counted_columns(self, columns: Any) -> None:
        self._emitted_rows.count(len(columns))
        self._write_columns(columns)

    @property
    def latency(self) -> LatencyHistogram:
        """Return the sink's latencies."""
        return self._writer.latency
