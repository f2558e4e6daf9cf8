"""Sources whose data are columns already: Parquet files, and callables that yield record batches, arrays or data frames."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agiledart_connectors.codecs.lines import Closable
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.files.many_lines import files_of
from agiledart_connectors.files.unfit_values import UnfitValue, fitted_array
from agiledart_connectors.options import ReadOptions
from agiledart_dataflow.data.arrow_ipc import MAX_COLUMN_ROWS
from agiledart_dataflow.data.batch_forms import columns_of, from_arrow
from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.column_schema import ColumnSchema, schema_of
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


class Piece(NamedTuple):
    """Rows of a file, in columns.

    Attributes:
        columns: of the rows that fit.
        total: rows of the file, those that do not fit among them.
        unfit: those, in order.
        path, start: the file, and the number of its rows before these.
    """

    columns: Columns
    total: int
    unfit: Sequence[UnfitValue] = ()
    path: str = ""
    start: int = 0


class ColumnsReader:
    """Hands out columns in pieces of at most `MAX_COLUMN_ROWS`, or their rows where these are wanted.

    Args:
        pieces: of the input.
        columns: hand out columns, not rows.
    """

    stamps = True

    def __init__(self, pieces: Iterator[Piece], *, columns: bool) -> None:
        self._pieces = pieces
        self._columns = columns
        self._left: Piece | None = None
        self._at = self._unfit_before = 0
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """The next rows."""
        if self._left is None:
            piece = next(self._pieces, None)
            if piece is None:
                return Reading([], 0, {}, exhausted=True)
            self._left, self._at, self._unfit_before = piece._replace(columns=_stamped(piece.columns, wall_ns)), 0, 0
        piece, begin = self._left, self._at
        stop = min(piece.total, begin + (MAX_COLUMN_ROWS if self._columns else max_rows))
        first = begin - self._unfit_before
        malformed = self._report_before(piece, stop)
        last = stop - self._unfit_before
        held: Any = piece.columns.slice(first, last) if self._columns else piece.columns.rows()[first:last]
        self._at = stop
        if stop >= piece.total:
            self._left = None
        return Reading(held, stop - begin, malformed, notes=self._examples.take())

    def _report_before(self, piece: Piece, stop: int) -> dict[str, int]:
        """Count and describe the rows before `stop` that do not fit, and that were not reported yet."""
        malformed: dict[str, int] = {}
        while self._unfit_before < len(piece.unfit) and piece.unfit[self._unfit_before].row < stop:
            row, reason, text = piece.unfit[self._unfit_before]
            self._unfit_before += 1
            malformed[reason] = malformed.get(reason, 0) + 1
            if self._examples.wants_more((reason,)):
                self._examples.add(reason, f"{piece.path} row {piece.start + row + 1:,}:", text, text)
        return malformed

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

    def pieces() -> Iterator[Piece]:
        for made in connector.payload():
            columns = columns_of(made, row_type)
            yield Piece(columns, len(columns))

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

    def pieces() -> Iterator[Piece]:
        yield from first
        for other in paths[1:]:
            yield from _pieces_of(other, row_type, columns=columns, wanted=wanted)

    return ColumnsReader(pieces(), columns=columns)


def _pieces_of(path: str, row_type: Any, *, columns: bool, wanted: frozenset[str] | None) -> Iterator[Piece]:
    """The parts of one file, which is opened at once."""
    schema = schema_of(row_type)
    if is_dict(row_type):
        raise ConfigurationError(f"{path}: the columns of a Parquet file have types: make the rows a NamedTuple")
    try:
        file = parquet.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise OperationFailed(f"{path} cannot be read: {error}") from None
    _check_names(path, schema, file.schema_arrow.names)
    read = [
        field.name
        for field in schema.fields
        if field.type is not ReadTime and (not columns or wanted is None or field.name in wanted)
    ]

    def pieces() -> Iterator[Piece]:
        try:
            start = 0
            for batch in file.iter_batches(MAX_COLUMN_ROWS, columns=read, use_threads=False):
                yield piece(batch, start)
                start += batch.num_rows
        except (OSError, TypeError, pa.ArrowException) as error:
            raise OperationFailed(f"{path} cannot be read: {error}") from None

    def piece(batch: Any, start: int) -> Piece:
        arrays: dict[str, Any] = {}
        unfit: dict[int, UnfitValue] = {}
        for field in schema.fields:
            if field.name in read:
                arrays[field.name], faults = fitted_array(field, batch.column(field.name))
                unfit = {fault.row: fault for fault in faults} | unfit
        count, keep = batch.num_rows, None
        if unfit:
            fits = np.ones(count, bool)
            fits[list(unfit)] = False
            keep = pa.array(fits)
            arrays = {name: array.filter(keep) for name, array in arrays.items()}
        parts = [part(field, arrays, start, count, len(unfit), keep) for field in schema.fields]
        in_order = [unfit[row] for row in sorted(unfit)]
        return Piece(Columns(schema, parts, count - len(unfit)), count, in_order, path, start)

    def part(field: Any, arrays: dict[str, Any], start: int, count: int, lost: int, keep: Any) -> Any:
        if field.type is ReadTime:
            return Column("int", np.zeros(count - lost, np.int64))
        if field.name in read:
            return from_arrow(field, arrays[field.name])
        return partial(_later, path, field, start, count, keep)

    return pieces()


def _check_names(path: str, schema: ColumnSchema, names: list[str]) -> None:
    for field in schema.fields:
        if field.name not in names and field.type is not ReadTime:
            raise ConfigurationError(f"{path} has no column {field.name}; there are {', '.join(names)}")


def _later(path: str, field: Any, start: int, count: int, keep: Any) -> Column:
    """Return a column that no step was expected to use. `keep`: which of its rows; None: all."""
    whole = parquet.read_table(path, columns=[field.name], use_threads=False)
    array = whole.column(0).slice(start, count)
    return from_arrow(field, array if keep is None else array.filter(keep))
