"""Sink `parquet:`: rows → Parquet files with a column for each field, in row groups; a file is whole when it has its name."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from agiledart_connectors.codecs.dict_lines import reject_dict_rows
from agiledart_connectors.files.pending_files import pending_files
from agiledart_connectors.files.pending_parquet_writer import PendingParquetWriter
from agiledart_connectors.files.rolled_files import RolledFiles
from agiledart_connectors.files.row_batches import fitted
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import SIZES, SPANS_MS, quantity
from agiledart_connectors.rejections import RejectsRows
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.schema import is_dict
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from agiledart_connectors.sink_origin import SinkOrigin
else:
    pa = lazy_import("pyarrow")
    parquet = lazy_import("pyarrow.parquet")

GROUP_ROWS: Final = 1 << 16
"""Rows of one row group, at most: they wait in memory."""


class ParquetWriter(RejectsRows):
    """Gathers rows for a row group and writes it.

    A crash loses what had not become a whole file; files that have their names can be read.

    Raises:
        OperationFailed: the file cannot be written, or rows do not fit its columns; the message has the path.
    """

    def __init__(self, files: RolledFiles, row_type: Any, times: LatencyRecorder) -> None:
        super().__init__()
        self._files = files
        self._row_type = row_type
        self._times = times
        self._rows: list[Any] = []
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._schema: Any = None
        self._ended = False

    def write(self, rows: list[Any]) -> None:
        self._times.count(rows)
        if self._writer is None and rows:
            self._begin(self._batch([]))  # now, because its age counts from its first row
        self._rows += rows
        if len(self._rows) >= GROUP_ROWS:
            self._write_group()

    def flush(self) -> None:
        """Rows wait for their group, unless the file is old enough to be ended."""
        if self._file is not None and self._files.is_whole(max(1, self._file.tell())):
            self._end()

    def close(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._writer is None and not self._rows and not self._files.rolls:
            self._begin(self._batch([]))  # no rows are a result, too
        self._end()

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to writing."""
        return self._times.histogram

    def _batch(self, rows: list[Any]) -> Any:
        return fitted(rows, self._row_type, self.rejections)[1]

    def _begin(self, batch: Any) -> None:
        self._file = self._files.begin()
        self._schema = self._schema or batch.schema
        self._writer = parquet.ParquetWriter(self._file, self._schema)

    def _write_group(self) -> None:
        rows, self._rows = self._rows, []
        batch = self._batch(rows)
        try:
            self._writer.write_batch(batch if batch.schema.equals(self._schema) else batch.cast(self._schema))
        except (OSError, pa.ArrowException) as error:
            raise OperationFailed(f"{self._files.current} cannot be written: {error}") from None
        if self._file is not None and self._files.is_whole(self._file.tell()):
            self._end()

    def _end(self) -> None:
        if self._rows:
            self._write_group()
        writer, self._writer = self._writer, None
        if writer is None or self._file is None:
            return
        try:
            writer.close()
        except (OSError, pa.ArrowException) as error:
            raise OperationFailed(f"{self._files.current} cannot be written: {error}") from None
        self._files.end(self._file)
        self._file = None


def open_sink(
    connector: Connector, row_type: Any, clock: Callable[[], int], origin: "SinkOrigin | None"
) -> ParquetWriter | PendingParquetWriter:
    """The writer of a `parquet:` connector."""
    if not connector.path:
        raise ConfigurationError("a parquet sink needs a path: parquet:FILE")
    if is_dict(row_type):
        reject_dict_rows("Parquet")
    schema_of(row_type)
    max_bytes = quantity(connector, "roll_bytes", SIZES, "64MiB")
    max_age_ns = quantity(connector, "roll_age", SPANS_MS, "1h") * 1_000_000
    if origin is not None and origin.by_epoch:
        pending = pending_files(connector.path, max_bytes, max_age_ns, origin)
        return PendingParquetWriter(pending, row_type, LatencyRecorder(row_type, clock), GROUP_ROWS)
    files = RolledFiles(connector.path, max_bytes, max_age_ns, time.monotonic_ns)
    return ParquetWriter(files, row_type, LatencyRecorder(row_type, clock))
