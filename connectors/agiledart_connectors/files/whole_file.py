"""Source `file:`: a whole file as a single record of bytes, such as a model."""

from pathlib import Path
from typing import Any

from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.plan.connectors import Connector, Reading, SourceReader
from agiledart_kernel.errors import ConfigurationError, OperationFailed, system_text
from agiledart_kernel.limits import MAX_COLUMN_BATCH_BYTES


class WholeFileReader:
    """Reader of one record."""

    stamps = False

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        data, self._data = self._data, None
        rows = [] if data is None else [data]
        return Reading(rows, len(rows), {}, exhausted=True)

    def close(self) -> None:
        self._data = None


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> SourceReader:
    """The reader of a file. Raises `OperationFailed`: it cannot be read, or does not fit into a frame."""
    if row_type is not bytes:
        raise ConfigurationError(f"{connector.url()}: the record of a whole file is bytes: write rows=bytes")
    try:
        with Path(connector.path).open("rb") as file:
            data = file.read(MAX_COLUMN_BATCH_BYTES + 1)
    except OSError as error:
        raise OperationFailed(f"{connector.path} cannot be read: {system_text(error)}") from None
    if len(data) > MAX_COLUMN_BATCH_BYTES:
        raise OperationFailed(
            f"{connector.path} is larger than the {MAX_COLUMN_BATCH_BYTES:,} bytes that a record may have"
        )
    return WholeFileReader(data)
