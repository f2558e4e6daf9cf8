"""Source `file:`: a whole file as a single record of bytes, such as a model; with `parts=1` a larger one in parts, for `score`."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from agiledart_connectors.options import ReadOptions, flag
from agiledart_dataflow.operators.model_parts import model_parts
from agiledart_dataflow.plan.connectors import Connector, Reading, SourceReader
from agiledart_kernel.errors import ConfigurationError, OperationFailed, system_text
from agiledart_kernel.limits import MAX_COLUMN_BATCH_BYTES, MAX_MODEL_BYTES


class WholeFileReader:
    """Reader of the record, or of the parts, of a file.

    Args:
        rows: the record or the parts.
        digest: of the file, to which a position belongs.
    """

    stamps = False

    def __init__(self, rows: list[bytes], digest: bytes) -> None:
        self._rows, self._digest, self._next = rows, digest, 0

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        rows = self._rows[self._next : self._next + 1]
        self._next += len(rows)
        return Reading(rows, len(rows), {}, exhausted=self._next >= len(self._rows))

    def position(self) -> bytes:
        """Return how many rows of how many were read, of which file."""
        return msgspec.msgpack.encode((self._digest, self._next, len(self._rows)))

    def seek(self, position: bytes) -> None:
        """Go on behind a position. A file that was read to its end may be another one by now: nothing of it is read."""
        digest, following, count = msgspec.msgpack.decode(position, type=tuple[bytes, int, int])
        if following >= count:
            self._next = len(self._rows)
        elif digest == self._digest:
            self._next = following
        else:
            raise OperationFailed(f"the file has changed since {following} of its {count} parts were read")

    def close(self) -> None:
        self._rows = []


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> SourceReader:
    """The reader of a file. Raises `OperationFailed`: it cannot be read, or is too large."""
    if row_type is not bytes:
        raise ConfigurationError(f"{connector.url()}: the record of a whole file is bytes: write rows=bytes")
    has_parts = flag(connector, "parts")
    limit = MAX_MODEL_BYTES if has_parts else MAX_COLUMN_BATCH_BYTES
    try:
        with Path(connector.path).open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise OperationFailed(f"{connector.path} cannot be read: {system_text(error)}") from None
    if len(data) > limit:
        what = "model" if has_parts else "record"
        advice = "" if has_parts else "; a model may be larger with ?parts=1"
        raise OperationFailed(f"{connector.path} is larger than the {limit:,} bytes that a {what} may have{advice}")
    return WholeFileReader(model_parts(data) if has_parts else [data], sha256(data).digest())
