"""Sources whose data are columns already: Parquet files, and callables that yield record batches, arrays or data frames."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from agiledart_connectors.codecs.lines import Closable
from agiledart_connectors.files.many_lines import files_of
from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.data.arrow_ipc import MAX_COLUMN_ROWS
from agiledart_dataflow.data.batch_forms import columns_of, from_arrow
from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.schema import ReadTime, is_dict
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError, OperationFailed

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")
    parquet = lazy_import("pyarrow.parquet")


class ColumnsReader:
    """Hands out columns in pieces of at most `MAX_COLUMN_ROWS`, or their rows where these are wanted.

    Args:
        pieces: columns.
        columns: hand out columns, not rows.
    """

    stamps = True

    def __init__(self, pieces: Iterator[Columns], *, columns: bool) -> None:
        self._pieces = pieces
        self._columns = columns
        self._left: Columns | None = None
        self._at = 0

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """The next rows."""
        if self._left is None:
            piece = next(self._pieces, None)
            if piece is None:
                return Reading([], 0, {}, exhausted=True)
            self._left, self._at = _stamped(piece, wall_ns), 0
        piece = self._left
        stop = min(len(piece), self._at + (MAX_COLUMN_ROWS if self._columns else max_rows))
        held: Any = piece.slice(self._at, stop) if self._columns else piece.rows()[self._at : stop]
        self._at = stop
        if stop >= len(piece):
            self._left = None
        return Reading(held, len(held))

    def close(self) -> None:
        """Let a generator end."""
        pieces: object = self._pieces
        if isinstance(pieces, Closable):
            pieces.close()


def _stamped(columns: Columns, wall_ns: int) -> Columns:
    """Return the columns with fields of type `ReadTime` filled in."""
    read = {field.name for field in columns.schema.fields if field.type is ReadTime}
    if not read:
        return columns
    now = Column("int", np.full(len(columns), wall_ns))
    return columns.replaced(
        columns.row_type, {field.name: now if field.name in read else field.name for field in columns.schema.fields}
    )


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> ColumnsReader:
    """The reader of a `parquet:` or `batches:` connector."""
    if connector.kind == "batches":
        return open_batches(connector, row_type, columns=read_options.columns)
    return open_parquet(connector.path, row_type, columns=read_options.columns, wanted=read_options.wanted)


def open_batches(connector: Connector, row_type: Any, *, columns: bool) -> ColumnsReader:
    """The batches of a callable of this process."""
    if connector.payload is None:
        raise ConfigurationError(
            f"the batches of {connector.url()} are made by another process and cannot be read here"
        )

    def pieces() -> Iterator[Columns]:
        for made in connector.payload():
            yield columns_of(made, row_type)

    return ColumnsReader(pieces(), columns=columns)


def open_parquet(path: str, row_type: Any, *, columns: bool, wanted: frozenset[str] | None) -> ColumnsReader:
    """Return a reader of a Parquet file, or of all files of a folder or pattern, in order of their names.

    It reads a part of a row group at a time, and skips fields that no step uses.

    Raises:
        OperationFailed: the file is missing, or is not Parquet; the message has the path.
        ConfigurationError: a field of the rows is no column of the file.
    """
    paths = files_of(path) or [path]  # opening reports a missing file
    first = _pieces_of(paths[0], row_type, columns=columns, wanted=wanted)

    def pieces() -> Iterator[Columns]:
        yield from first
        for other in paths[1:]:
            yield from _pieces_of(other, row_type, columns=columns, wanted=wanted)

    return ColumnsReader(pieces(), columns=columns)


def _pieces_of(path: str, row_type: Any, *, columns: bool, wanted: frozenset[str] | None) -> Iterator[Columns]:
    """The parts of one file, which is opened at once."""
    schema = schema_of(row_type)
    if is_dict(row_type):
        raise ConfigurationError(f"{path}: the columns of a Parquet file have types: make the rows a NamedTuple")
    try:
        file = parquet.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise OperationFailed(f"{path} cannot be read: {error}") from None
    names = file.schema_arrow.names
    for field in schema.fields:
        if field.name not in names and field.type is not ReadTime:
            raise ConfigurationError(f"{path} has no column {field.name}; there are {', '.join(names)}")
    read = [
        field.name
        for field in schema.fields
        if field.type is not ReadTime and (not columns or wanted is None or field.name in wanted)
    ]

    def pieces() -> Iterator[Columns]:
        try:
            start = 0
            for batch in file.iter_batches(MAX_COLUMN_ROWS, columns=read, use_threads=False):
                yield Columns(schema, [part(field, batch, start) for field in schema.fields], batch.num_rows)
                start += batch.num_rows
        except (OSError, TypeError, pa.ArrowException) as error:
            raise OperationFailed(f"{path} cannot be read: {error}") from None

    def part(field: Any, batch: Any, start: int) -> Any:
        if field.type is ReadTime:
            return Column("int", np.zeros(batch.num_rows, np.int64))
        if field.name in read:
            return from_arrow(field, batch.column(field.name))
        return partial(_later, path, field, start, batch.num_rows)

    return pieces()


def _later(path: str, field: Any, start: int, count: int) -> Column:
    """Return a column that no step was expected to use."""
    whole = parquet.read_table(path, columns=[field.name], use_threads=False)
    return from_arrow(field, whole.column(0).slice(start, count))
