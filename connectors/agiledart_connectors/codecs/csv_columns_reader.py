"""Source `csv:` in columns, straight from bytes: pyarrow reads whole blocks, and accepts nothing that the row reader rejects.

Some blocks could be read in two ways: they hold a quote, a carriage return, a space beside a number, a hexadecimal int or
NaN. These go through the loop over lines, which counts all malformed lines by reason, so the result is what `CsvReader`
gives, line for line. Columns of text are read only when a step asks for them. Numbers always are, because one of them could
be malformed.

One call of pyarrow reads a megabyte, whatever the size of a batch: a call costs as much as parsing a few hundred
rows. Batches are slices of that, so their columns are views.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agiledart_connectors.codecs.ambiguity import Ambiguity
from agiledart_connectors.codecs.decoder_options import RFC4180, CsvDialect
from agiledart_connectors.codecs.encodings import BOM, text_of
from agiledart_connectors.codecs.header import HeaderColumns
from agiledart_connectors.codecs.lines import BLOCK_BYTES, Data, FileLines, LinesBlock
from agiledart_connectors.codecs.malformed_examples import COLUMNS, TOO_LONG, MalformedExamples
from agiledart_connectors.codecs.row_parser import RowParser
from agiledart_dataflow.data.arrow_ipc import MAX_COLUMN_ROWS
from agiledart_dataflow.data.batch import part_of
from agiledart_dataflow.data.column import EARLIEST_US, Column, numbers_of
from agiledart_dataflow.data.column_schema import ColumnField, schema_of
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import import_at_once, lazy_import
from agiledart_dataflow.data.schema import Format, ReadTime, is_loose, markers_of
from agiledart_dataflow.plan.connectors import Reading
from agiledart_kernel.limits import MAX_LINE_BYTES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")
    pc = lazy_import("pyarrow.compute")
    pacsv = lazy_import("pyarrow.csv")

ROWS_AT_ONCE = MAX_COLUMN_ROWS
"""Rows of one batch, as near as the length of lines allows."""

_FEW_LINES = 100
"""Fewer lines than this are read as rows: a call of pyarrow costs more."""

_LARGEST_BLOCK = 4 << 20
_BYTES_AT_ONCE = 1 << 20
"""Read and parsed in one call, at least, once the length of lines is known."""

_PARSED_BYTES = 256 << 10
"""pyarrow cuts a block into pieces of so many bytes, which stay in the processor's cache. Longer lines are read as rows."""

_TIME_LENGTH = 19


def supports_columns(row_type: Any, dialect: CsvDialect = RFC4180) -> bool:
    """Can rows of this type come as columns?"""
    fields = schema_of(row_type).fields
    has_zone = dialect.zone is not None and any(field.kind == "time" for field in fields)
    is_plain = (
        not has_zone
        and dialect.delimiter != " "
        and not any(
            is_loose(marks) or any(isinstance(mark, Format) for mark in marks)
            for marks in markers_of(row_type).values()
        )
    )
    return (
        is_plain and len(fields) > 1 and all(field.kind in ("int", "float", "bool", "text", "time") for field in fields)
    )


class CsvColumnsReader:
    """Reader of typed columns; it counts a malformed line by reason and never stops the run for one.

    Args:
        lines: the file.
        row_type: with fields that `supports_columns` allows.
        wanted, may_begin: as for `ColumnParser`.
        examples: collects texts about malformed lines.
        dialect: how the lines are written.
    """

    stamps = True

    def __init__(
        self,
        lines: FileLines,
        row_type: Any,
        wanted: frozenset[str] | None = None,
        may_begin: Callable[[], bool] = import_at_once,
        examples: MalformedExamples | None = None,
        dialect: CsvDialect = RFC4180,
    ) -> None:
        self._source = lines
        if lines.form.dialect is None:
            lines.form = replace(lines.form, dialect=dialect)
        self._dialect = dialect
        self._row_type, self._wanted, self._may_begin = row_type, wanted, may_begin
        self._examples = examples or MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        self._header = HeaderColumns(row_type, dialect, self._examples)
        self._parser = RowParser(row_type, None, dialect)
        self._columns = ColumnParser(row_type, wanted, may_begin, None, dialect)
        self._number = 0  # lines of the file that were parsed
        self._block_bytes = BLOCK_BYTES
        self._left: Columns | list[Any] = []  # parsed rows; those from `_at` on are not handed out yet
        self._at = 0

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """About `ROWS_AT_ONCE` rows as columns, or `max_rows` as a list where a block needs the careful way."""
        if self._at < len(self._left):
            return self._take_rows(max_rows, {})
        cut = self._source.cut(self._block_bytes)
        if cut is None:
            return Reading([], 0, {}, exhausted=True)
        data, overlong = cut
        malformed: dict[str, int] = {}
        self._number = self._number or self._source.skipped
        if overlong:
            self._too_long(overlong, malformed)
        self._left, self._at = [], 0
        if data:
            columns = None if overlong else self._columns.parse(data, wall_ns)
            if columns is not None:
                self._left = columns
                self._number += len(columns)
                # Learn how long lines are; a few less than whole batches, so that blocks do not spill over.
                batch = ROWS_AT_ONCE * len(data) // len(columns) * 99 // 100
                self._block_bytes = min(_LARGEST_BLOCK, max(1_024, batch * max(1, _BYTES_AT_ONCE // batch)))
            else:
                block = self._source.block_of(data, 0)
                if block.overlong:
                    self._too_long(block.overlong, malformed)
                self._left = self._parsed(block, wall_ns, malformed)
        return self._take_rows(max_rows, malformed)

    def _take_rows(self, max_rows: int, malformed: dict[str, int]) -> Reading:
        stop = min(len(self._left), self._at + (max_rows if isinstance(self._left, list) else ROWS_AT_ONCE))
        part = part_of(self._left, self._at, stop)
        self._at = stop
        for note in self._source.notices():
            self._examples.note(note)
        return Reading(part, len(part) + sum(malformed.values()), malformed, notes=self._examples.take())

    def takes_header(self, record: str, *, is_one: bool = False) -> bool:
        """Use the record as a header if it names columns, like `CsvReader.takes_header`."""
        columns, is_header = self._header.take(self._source.name, record, is_one=is_one)
        if columns is not None:
            self._parser = RowParser(self._row_type, columns, self._dialect)
            self._columns = ColumnParser(self._row_type, self._wanted, self._may_begin, columns, self._dialect)
        return is_header

    def _parsed(self, block: LinesBlock, wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        first = self._number + 1
        if block.records is not None:
            records = block.records
            rows = self._parser.parse_records(records, wall_ns, malformed)
            if len(rows) < len(records) and self._examples.wants_more(malformed):
                self._parser.explain_records(
                    records, self._examples, lambda record: f"{self._source.name}:{first + record.line}"
                )
            self._number += block.record_lines
            return rows
        lines = block.lines
        rows = self._parser.parse(lines, wall_ns, malformed, plain=block.plain)
        if len(rows) < len(lines) and self._examples.wants_more(malformed):
            self._parser.explain(lines, self._examples, lambda index: f"{self._source.name}:{first + index}")
        self._number += len(lines)
        return rows

    def _too_long(self, count: int, malformed: dict[str, int]) -> None:
        self._examples.add(COLUMNS, f"{self._source.name}:{self._number + 1}", TOO_LONG)
        self._number += count
        malformed[COLUMNS] = malformed.get(COLUMNS, 0) + count

    def close(self) -> None:
        self._source.close()


class ColumnParser:
    """Parser of whole lines → columns; it parses only lines that can be read in one way.

    Args:
        row_type: with fields that `supports_columns` allows.
        wanted: fields that steps will ask for, as far as is known; None: all of them.
        may_begin: says whether NumPy and pyarrow may be used now; until then the loop over lines reads.
        columns: name of the field for each column of a line, "" for a column to pass over; None: the fields in their order.
        dialect: how the lines are written.
    """

    def __init__(
        self,
        row_type: Any,
        wanted: frozenset[str] | None = None,
        may_begin: Callable[[], bool] = import_at_once,
        columns: Sequence[str] | None = None,
        dialect: CsvDialect = RFC4180,
    ) -> None:
        self._may_begin, self._dialect = may_begin, dialect
        self._schema = schema_of(row_type)
        self._columns = [field for field in self._schema.fields if not _is_read_time(field)]
        self._names = [field.name for field in self._columns] if columns is None else columns
        self._eager = [
            field for field in self._columns if field.kind != "text" or wanted is None or field.name in wanted
        ] or self._columns[:1]  # without any column nothing would count the lines' fields
        # pyarrow leaves all columns of an empty line empty; only a column that may not be empty would show it
        self._empty_line_passes = len(self._columns) > 1 and all(
            field.kind == "text" or field.optional for field in self._columns
        )
        self._ambiguity = Ambiguity(
            ints=any(field.kind == "int" for field in self._columns), delimiter=dialect.delimiter, quote=dialect.quote
        )
        self._readers: dict[tuple[str, ...], Callable[[Data], Any]] = {}

    def parse(self, data: Data, wall_ns: int) -> Columns | None:
        """The columns of lines, each with its end; None when there are few, or when they need a closer look."""
        if len(data) < _FEW_LINES * 64 and data.count(b"\n") < _FEW_LINES:  # first, and without NumPy: they may be all
            return None
        if not self._may_begin():
            return None
        if data.startswith(BOM):  # pyarrow would pass over it
            return None
        if not _are_lines_short(data) or self._ambiguity.has_ambiguous_bytes(data):
            return None
        if self._empty_line_passes and _has_empty_line(data):
            return None
        if not data.isascii() and text_of(data)[1]:
            return None
        try:
            batch = self._reader(self._eager)(data)
        except pa.ArrowException:
            return None
        rows = batch.num_rows
        made: dict[str, Any] = {}
        for field, array in zip(self._eager, batch.columns, strict=True):
            column = self._checked(field, array)
            if column is None:
                return None
            made[field.name] = column
        later = _Later(self, data, [field for field in self._columns if field.name not in made])
        parts: list[Any] = []
        for field in self._schema.fields:
            if _is_read_time(field):
                parts.append(Column("int", np.full(rows, wall_ns)))
            else:
                parts.append(made[field.name] if field.name in made else later.maker(field))
        return Columns(self._schema, parts, rows)

    def texts(self, fields: list[ColumnField], data: Data) -> dict[str, Column]:
        """Columns of text, of a block that was read before."""
        batch = self._reader(fields)(data)
        has_nulls = _finds_nulls(fields)
        arrays = zip(fields, batch.columns, strict=True)
        return {
            field.name: Column("text", self._text_array(array, field, has_nulls=has_nulls)) for field, array in arrays
        }

    def _reader(self, fields: list[ColumnField]) -> Callable[[Data], Any]:
        """A function of a block that reads these fields."""
        names = tuple(field.name for field in fields)
        if names not in self._readers:
            reading = pacsv.ReadOptions(
                column_names=[name or f"column {number}" for number, name in enumerate(self._names)],
                use_threads=False,
                block_size=_PARSED_BYTES,
            )
            parsing = pacsv.ParseOptions(delimiter=self._dialect.delimiter, quote_char=False, ignore_empty_lines=False)
            converting = pacsv.ConvertOptions(
                column_types={field.name: _arrow_type(field) for field in fields},
                include_columns=list(names),
                null_values=sorted(self._dialect.nulls),
                decimal_point=self._dialect.decimal,
                strings_can_be_null=_finds_nulls(fields),
                true_values=["1", "true"],
                false_values=["0", "false"],
            )

            def read(data: Data) -> Any:
                table = pacsv.read_csv(
                    pa.BufferReader(data), read_options=reading, parse_options=parsing, convert_options=converting
                )
                return table.combine_chunks().to_batches()[0]

            self._readers[names] = read
        return self._readers[names]

    def _checked(self, field: ColumnField, array: Any) -> Column | None:
        """The column of a field that holds nothing that the loop over lines would refuse; else None."""
        if field.kind == "text":
            return Column("text", self._text_array(array, field, has_nulls=_finds_nulls(self._eager)))
        if array.null_count and not field.optional:
            return None
        valid = numbers_of(array.is_valid()) if array.null_count else None
        if field.kind == "time":
            values = _microseconds(array)
            return None if values is None else Column("time", values, valid)
        if array.null_count:
            array = array.fill_null(False if field.kind == "bool" else 0)
        values = numbers_of(array)
        if field.kind == "float":
            total = float(np.add.reduce(values))
            if total - total != 0.0:  # NaN or an infinity
                return None
        return Column(field.kind, values, valid)

    def _text_array(self, array: Any, field: ColumnField, *, has_nulls: bool) -> Any:
        """Return texts with None for those that stand for it; `has_nulls`: pyarrow has seen to that."""
        if field.optional and not has_nulls:
            nulls = pa.array(sorted(self._dialect.nulls), pa.string())
            array = pc.if_else(pc.is_in(array, nulls), pa.scalar(None, pa.string()), array)
        return array


class _Later:
    """Text columns of a block, read together when the first of them is asked for."""

    def __init__(self, reader: ColumnParser, data: Data, fields: list[ColumnField]) -> None:
        self._reader = reader
        self._data = data
        self._fields = fields
        self._made: dict[str, Column] | None = None

    def maker(self, field: ColumnField) -> Callable[[], Column]:
        def make() -> Column:
            if self._made is None:
                self._made = self._reader.texts(self._fields, self._data)
                self._data = b""
            return self._made[field.name]

        return make


def _finds_nulls(fields: Sequence[ColumnField]) -> bool:
    """Return whether pyarrow may look for texts that stand for None: it does so in all columns of texts, or in none."""
    return all(field.optional for field in fields if field.kind == "text")


def _has_empty_line(data: Data) -> bool:
    """Return whether pyarrow would take an empty line for empty fields, whatever the number of columns."""
    return data.startswith(b"\n") or data.find(b"\n\n") >= 0


def _is_read_time(field: ColumnField) -> bool:
    return field.type is ReadTime


def _arrow_type(field: ColumnField) -> Any:
    types: dict[str, Any] = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "text": pa.string()}
    return types[field.kind] if field.kind in types else pa.binary(_TIME_LENGTH)


def _are_lines_short(data: Data) -> bool:
    """False when a line might be longer than the longest one allowed; then somewhere half of that has no line end."""
    half = MAX_LINE_BYTES // 2
    return len(data) <= MAX_LINE_BYTES or all(
        data.find(b"\n", start, start + half) >= 0 for start in range(0, len(data) - half, half)
    )


def _microseconds(array: Any) -> Any:
    """Texts of 19 characters as times; None when one is not exactly `YYYY-MM-DD HH:MM:SS`."""
    if array.null_count:
        array = pc.if_else(array.is_valid(), array, pa.scalar(b"1970-01-01 00:00:00", array.type))
    characters = np.frombuffer(array.buffers()[1], np.uint8)
    characters = characters[array.offset * _TIME_LENGTH : (array.offset + len(array)) * _TIME_LENGTH]
    by_line = characters.reshape(-1, _TIME_LENGTH)
    if (by_line[:, 10] != 32).any() or (by_line[:, 16] != 58).any():
        return None
    try:
        times = array.cast(pa.binary()).cast(pa.string()).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
    except pa.ArrowException:
        return None
    values = numbers_of(times.view(pa.int64()))
    return None if len(values) and values.min() < EARLIEST_US else values
