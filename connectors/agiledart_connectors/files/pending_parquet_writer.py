"""Sink `parquet:` of a run that is saved by epochs: files are never torn, and no row is in two of them.

A Parquet file cannot be gone on with, so its rows are kept beside it until it has its name: each epoch adds those that came since
to a file of record batches, which can be cut back. A run that is brought back makes the Parquet file anew from that, and so does a
writer whose disk was full for a while.
"""

import contextlib
import io
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from agiledart_connectors.files.appended_file import AppendedFile
from agiledart_connectors.files.pending_files import PendingFiles
from agiledart_connectors.files.rolled_files import reason_of
from agiledart_connectors.files.row_batches import fitted
from agiledart_connectors.files.seals import OutputFileChangedError
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.rejections import RejectsRows
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_kernel.errors import OperationFailed

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet
else:
    pa = lazy_import("pyarrow")
    parquet = lazy_import("pyarrow.parquet")

MAX_GROUPS: Final = 4
"""So many row groups wait while a disk is full. Beyond it the run ends."""

_LENGTH: Final = struct.Struct("<I")


class PendingParquetWriter(RejectsRows):
    """Gathers rows for row groups, and keeps them until their file has its name.

    Args:
        group_rows: rows of one row group, at most: they wait in memory, too.

    Raises:
        OperationFailed: a file cannot be written, or rows do not fit its columns; the message has the path.
    """

    def __init__(self, files: PendingFiles, row_type: Any, times: LatencyRecorder, group_rows: int) -> None:
        super().__init__()
        self._files, self._row_type, self._times, self._group_rows = files, row_type, times, group_rows
        self._rows: list[Any] = []
        self._kept = 0  # so many of them are in the file of rows
        self._journal: io.FileIO | None = None
        self._kept_end: AppendedFile | None = None
        self._length = 0  # of the file of rows, without what a full disk has torn
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._schema: Any = None
        self._is_torn = False  # the Parquet file: the rows that are kept are more than it has
        if files.kept_bytes:
            self._begin()
            self._make_anew()

    def write(self, rows: list[Any]) -> None:
        self._times.count(rows)
        if rows and self._journal is None:
            self._begin()
        self._rows += rows
        if len(self._rows) >= self._group_rows:
            with contextlib.suppress(OperationFailed):  # `prepare` says it
                self._write_group()
        if len(self._rows) > MAX_GROUPS * self._group_rows:
            self._write_group()

    def flush(self) -> None:
        """Rows wait for their group, unless the file is old enough to be ended."""
        size = 1 if self._file is None else max(1, self._file.tell())
        if self._journal is not None and self._files.is_whole(size):
            with contextlib.suppress(OperationFailed):
                self._close_file()

    def prepare(self) -> tuple[int, ...]:
        """An epoch ends here: all rows taken so far are on the disk; the number of the file, and the length of its rows."""
        if self._journal is None:
            return (self._files.number, 0)
        self._keep_rows()
        self._files.sync(self._journal)
        self._look()
        self._files.seal(self._journal, self._files.rows, self._length)
        return (self._files.number, self._length)

    @property
    def place(self) -> str:
        """Return the place of the files and the last one's seal, for the node that finishes them after the run."""
        return self._files.place("parquet")

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """Files before that one get their names."""
        self._files.finish_before(ends[0])

    def at_end_of_input(self) -> None:
        """No row follows: the last file is whole."""
        if self._journal is None and not self._files.rolls and self._files.number == 1:
            self._begin()  # no rows are a result, too
            self._writer_for(self._batch([]))
        self._close_file()

    def close(self) -> None:
        """Close the files; leave unfinished ones as they are."""
        self._drop_parquet()
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to writing."""
        return self._times.histogram

    # ----

    def _begin(self) -> None:
        self._journal, self._length = self._files.open_current(self._files.rows), self._files.kept_bytes
        self._kept_end = AppendedFile(self._journal, str(self._files.rows(self._files.number)))

    def _look(self) -> None:
        """See that the rows that are kept are still there."""
        if self._kept_end is not None:
            self._files.check(self._kept_end)

    def _make_anew(self) -> None:
        """Make the Parquet file from the rows that are kept of it."""
        waiting: list[Any] = []
        self._is_torn = True
        try:
            for batch in self._kept_batches():
                waiting.append(batch)
                if sum(part.num_rows for part in waiting) >= self._group_rows:
                    self._write_table(waiting)
                    waiting = []
            if waiting:
                self._write_table(waiting)
        except (OSError, pa.ArrowException, struct.error) as error:
            failed = self._torn(error)
            is_disk = isinstance(error, OSError) and error.errno is not None  # Arrow's own are of what it reads
            raise (failed if is_disk else OutputFileChangedError(str(failed))) from None
        self._is_torn = False

    def _kept_batches(self) -> Iterator[Any]:
        assert self._journal is not None
        self._journal.seek(0)
        with open(self._journal.fileno(), "rb", closefd=False) as file:
            while file.tell() < self._length:
                data = file.read(_LENGTH.unpack(file.read(_LENGTH.size))[0])
                with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
                    yield from stream

    def _write_table(self, batches: list[Any]) -> None:
        table = pa.Table.from_batches([batch.cast(batches[0].schema) for batch in batches])
        writer = self._writer_for(batches[0])
        writer.write_table(table.cast(self._schema), row_group_size=self._group_rows)

    def _batch(self, rows: list[Any]) -> Any:
        return fitted(rows, self._row_type, self.rejections)[1]

    def _writer_for(self, batch: Any) -> Any:
        if self._writer is None:
            self._schema = self._schema or batch.schema
            part = self._files.part(self._files.number)
            try:
                part.unlink(missing_ok=True)  # so that no dying process writes into this file
                self._file = open(part, "wb")  # noqa: SIM115  held open
                self._writer = parquet.ParquetWriter(self._file, self._schema)
            except OSError as error:
                raise self._failed(error) from None
        return self._writer

    def _keep_rows(self) -> None:
        """Append rows that are not in the file of rows yet; rows that a full disk cut off do not count."""
        rows = self._rows[self._kept :]
        if not rows or self._journal is None:
            return
        rows, batch = fitted(rows, self._row_type, self.rejections)
        self._rows[self._kept :] = rows
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        data = sink.getvalue().to_pybytes()
        data = _LENGTH.pack(len(data)) + data
        self._look()
        try:
            self._journal.seek(self._length)
            done = 0
            while done < len(data):
                done += self._journal.write(data[done:])
        except OSError as error:
            raise self._failed(error) from None
        self._length += len(data)
        if self._kept_end is not None:
            self._kept_end.add_written(data)
        self._kept = len(self._rows)

    def _write_group(self) -> None:
        self._keep_rows()
        if self._is_torn:
            self._make_anew()
        elif self._rows:
            batch = self._batch(self._rows)
            writer = self._writer_for(batch)
            try:
                writer.write_batch(batch if batch.schema.equals(self._schema) else batch.cast(self._schema))
            except (OSError, pa.ArrowException) as error:
                raise self._torn(error) from None
        self._rows, self._kept = [], 0
        if self._file is not None and self._files.is_whole(self._file.tell()):
            self._close_file()

    def _close_file(self) -> None:
        """It is whole: on the disk, until its epoch is committed."""
        if self._rows or self._is_torn:
            self._write_group()
        journal, writer, file = self._journal, self._writer, self._file
        if journal is None or writer is None or file is None:
            return
        try:
            writer.close()
            file.flush()
            os.fsync(file.fileno())
            self._files.sync(journal)  # until then an epoch may end in it
            file.close()
            self._files.sync_folder()
        except (OSError, pa.ArrowException) as error:
            raise self._torn(error) from None
        journal.close()
        self._journal = self._writer = self._file = None
        self._files.next()

    def _torn(self, error: Exception) -> OperationFailed:
        """The Parquet file cannot be gone on with: it is made anew when there is room."""
        self._is_torn = True
        self._drop_parquet()
        return self._failed(error)

    def _drop_parquet(self) -> None:
        writer, file, self._writer, self._file = self._writer, self._file, None, None
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            if writer is not None:
                writer.close()
        with contextlib.suppress(OSError, ValueError):
            if file is not None:
                file.close()
        if writer is not None:
            writer.is_open = False  # else it would be closed again when it is forgotten

    def _failed(self, error: Exception) -> OperationFailed:
        return OperationFailed(f"{self._files.final(self._files.number)} cannot be written: {reason_of(error)}")


def row_count(path: Path) -> int:
    """Return the number of rows of a finished file, from its footer. Raises OperationFailed."""
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise OperationFailed(f"{path} cannot be read: {reason_of(error)}") from None
