"""Text columns → typed rows: a generated loop for records that are beyond doubt, a careful one that names what is wrong.

Before the loop, many lines at once are tried with a decoder in C (`bulk_parser.py`), where the row's type allows it.

Reasons, judged from left to right after the encoding and the number of columns: `columns`, `number` (not a finite decimal number),
`time` (no time of `utc_time`, or of the field's own `Format`). The fast loop accepts nothing that the careful one would refuse.
"""

import csv
import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from agiledart_connectors.codecs.bulk_parser import FEW_LINES, LINES_AT_ONCE, BulkParser, bulk_columns
from agiledart_connectors.codecs.csv_values import column_rule
from agiledart_connectors.codecs.decoder_options import RFC4180, CsvDialect
from agiledart_connectors.codecs.encodings import bytes_of, encoding_error, has_bad_bytes
from agiledart_connectors.codecs.malformed_examples import COLUMNS, MalformedError, MalformedExamples, bounded_repr
from agiledart_connectors.codecs.quoted_records import CsvRecord
from agiledart_connectors.codecs.remembered_times import RememberedTimes
from agiledart_connectors.codecs.row_loop import Loop, compile_loop
from agiledart_dataflow.data.schema import Field, fields_of, is_dict, is_named_tuple, markers_of
from agiledart_kernel.errors import ConfigurationError

_SUSPICIOUS = re.compile(r"[^ !#-^`-~]")
"""Characters that keep a line from the fast loop: anything but printable ASCII, quotes, `_`."""


class RowParser:
    """Makes rows of a type from lines; counts malformed ones by reason.

    Attributes:
        whole_line: a row is its line, as it is.
        bulk: for many lines at once, where the row's type allows it.

    Args:
        row_type: of the rows.
        columns: of the lines, by name of field, "" for one that is passed over; None: the fields in their order.
        dialect: how the columns are written.

    Raises:
        ConfigurationError: the type has a field that no column can fill.
    """

    def __init__(self, row_type: Any, columns: Sequence[str] | None = None, dialect: CsvDialect = RFC4180) -> None:
        _no_dicts(row_type)
        self.dialect = dialect
        fields = fields_of(row_type)
        self._is_scalar = not fields
        self._fields = fields or (Field("value", row_type),)
        marks = markers_of(row_type)
        self._rules = [
            column_rule(field, marks.get(field.name, ()), dialect) for field in self._fields if not field.is_read_time
        ]
        self._names = [rule.name for rule in self._rules]
        self._width = len(self._rules if columns is None else columns)
        self._places = list(range(self._width)) if columns is None else [columns.index(name) for name in self._names]
        in_order = self._width == len(self._names) and self._places == list(range(self._width))
        self._make = _maker(row_type, scalar=self._is_scalar)
        self._row_type = row_type
        self._is_tuple = bool(fields) and is_named_tuple(row_type)
        self.whole_line = self._is_scalar and row_type is str
        self._times = [RememberedTimes(rule.read) for rule in self._rules]
        self._loop = None if self.whole_line else self._compiled(records=False)
        self._record_loop: Loop | None = None
        reads_now = len(self._rules) < len(self._fields)
        self.bulk: BulkParser | None = None
        if self._is_tuple and in_order and not reads_now and all(rule.is_plain for rule in self._rules):
            bulk = bulk_columns([(rule.kind, rule.optional) for rule in self._rules], self._times)
            self.bulk = None if bulk is None else BulkParser(row_type, bulk, dialect.delimiter.encode())

    def parse(self, lines: list[str], wall_ns: int, malformed: dict[str, int], *, plain: bool) -> list[Any]:
        """The rows of these lines; `plain` promises printable ASCII without quotes and `_`. May be the very list."""
        if self.whole_line:
            return lines if "\n".join(lines).isascii() else self._texts(lines, malformed)
        rows: list[Any] = []
        if self._loop is not None and plain:
            if self.bulk is not None and len(lines) >= FEW_LINES:
                return self._in_bulk(self.bulk, self._loop, lines, wall_ns, malformed)
            self._loop(lines, wall_ns, rows.append, malformed)
        else:
            for line in lines:
                if self._loop is not None and _SUSPICIOUS.search(line) is None:
                    self._loop((line,), wall_ns, rows.append, malformed)
                else:
                    self._parse_carefully(line, wall_ns, rows.append, malformed)
        return rows

    def parse_records(self, records: list[CsvRecord], wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        """The rows of records whose columns are cut; counts malformed ones by reason."""
        if self.whole_line:
            return self._texts([record.text for record in records], malformed)
        if self._record_loop is None:
            self._record_loop = self._compiled(records=True)
        rows: list[Any] = []
        self._record_loop(records, wall_ns, rows.append, malformed)
        return rows

    def _texts(self, lines: list[str], malformed: dict[str, int]) -> list[str]:
        """Return the lines whose bytes are texts; count the others."""
        good = [line for line in lines if not has_bad_bytes(line)]
        if len(good) < len(lines):
            reason = encoding_error("").reason
            malformed[reason] = malformed.get(reason, 0) + len(lines) - len(good)
        return good

    def _in_bulk(
        self, bulk: BulkParser, loop: Loop, lines: list[str], wall_ns: int, malformed: dict[str, int]
    ) -> list[Any]:
        """Many lines at once where none of them is in doubt, else one by one."""
        rows: list[Any] = []
        for start in range(0, len(lines), LINES_AT_ONCE):
            some = lines[start : start + LINES_AT_ONCE]
            parsed = bulk.parse("\n".join(some).encode())
            if parsed is None or len(parsed) != len(some):  # a generator's line may have a line feed in it
                loop(some, wall_ns, rows.append, malformed)
            else:
                rows += parsed
        return rows

    def _parse_carefully(self, line: str, wall_ns: int, push: Callable[[Any], None], malformed: dict[str, int]) -> None:
        """The careful way for one line."""
        try:
            push(self.row(line, wall_ns))
        except MalformedError as error:
            malformed[error.reason] = malformed.get(error.reason, 0) + 1

    def _parse_record_carefully(
        self, record: CsvRecord, wall_ns: int, push: Callable[[Any], None], malformed: dict[str, int]
    ) -> None:
        """The careful way for one record."""
        try:
            push(self.row_of(record, wall_ns))
        except MalformedError as error:
            malformed[error.reason] = malformed.get(error.reason, 0) + 1

    def row(self, line: str, wall_ns: int) -> Any:
        """The row of one line, the careful way; raises `MalformedError`."""
        return self._row(self._values(line), wall_ns)

    def row_of(self, record: CsvRecord, wall_ns: int) -> Any:
        """The row of one record, the careful way; raises `MalformedError`."""
        return self._row(self._values_of(record), wall_ns)

    def _row(self, values: list[Any], wall_ns: int) -> Any:
        given = iter(values)
        return self._make([wall_ns if field.is_read_time else next(given) for field in self._fields])

    def explain(self, lines: list[str], examples: MalformedExamples, place: Callable[[int], str]) -> None:
        """Tell of the malformed ones among these lines; `place` says where the one with an index stands."""
        for index, line in enumerate(lines):
            try:
                self._values(line)
            except MalformedError as error:
                if examples.wants_more((error.reason,)):
                    examples.add(error.reason, place(index), error.text, _as_record(line))

    def explain_records(
        self, records: list[CsvRecord], examples: MalformedExamples, place: Callable[[CsvRecord], str]
    ) -> None:
        """Tell of the malformed ones among these records; `place` says where one stands."""
        for record in records:
            try:
                self._values_of(record)
            except MalformedError as error:
                if examples.wants_more((error.reason,)):
                    examples.add(error.reason, place(record), error.text, _as_record(record.text))

    def _values(self, line: str) -> list[Any]:
        """The values of a line's columns, in order of the fields; raises `MalformedError`."""
        if not line.isascii() and has_bad_bytes(line):
            raise encoding_error(line)
        if self.whole_line:
            return [line]
        dialect = self.dialect
        texts = line.split(dialect.delimiter)
        if dialect.quote and dialect.quote in line:
            try:
                texts = next(dialect.reader([line]), [])
            except csv.Error:  # a quote that is not closed, a carriage return within, or a very long field
                texts = []
        return self._read(texts, line)

    def _values_of(self, record: CsvRecord) -> list[Any]:
        """The same of a record."""
        if not record.text.isascii() and has_bad_bytes(record.text):
            raise encoding_error(record.text)
        return [record.text] if self.whole_line else self._read(record.cells, record.text)

    def _read(self, texts: list[str], line: str) -> list[Any]:
        if len(texts) != self._width:
            actual = f"{len(texts)} column{'' if len(texts) == 1 else 's'}" if texts else "broken quotes"
            raise MalformedError(
                COLUMNS, f"{actual}, not {self._width} ({', '.join(self._names)}): {bounded_repr(line)}"
            )
        values = []
        nulls = self.dialect.nulls
        quoted: list[bool] | None = None
        for place, rule in zip(self._places, self._rules, strict=True):
            text = texts[place]
            is_null = rule.optional and text in nulls
            if is_null and rule.kind is str and self.dialect.may_be_quoted(line, text):
                quoted = quoted or self.dialect.are_quoted(line, self._width)
                is_null = not quoted[place]
            try:
                values.append(None if is_null else rule.read(text))
            except MalformedError as error:
                raise MalformedError(
                    error.reason, f"{rule.name}: {bounded_repr(text)} is no {rule.word(text)}"
                ) from None
        return values

    def _compiled(self, *, records: bool) -> Loop:
        scope: dict[str, Any] = {"make": self._make, "new": tuple.__new__, "kind": self._row_type}
        scope["judge"] = self._parse_record_carefully if records else self._parse_carefully
        scope |= {f"times{number}": times for number, times in enumerate(self._times)}
        make = "new(kind, {})" if self._is_tuple else "make({})"
        are_read_times = [field.is_read_time for field in self._fields]
        return compile_loop(
            self._rules, self._places, self._width, are_read_times, make, self.dialect, scope, records=records
        )


def _as_record(line: str) -> str | bytes:
    return bytes_of(line) if not line.isascii() and has_bad_bytes(line) else line


def _no_dicts(row_type: Any) -> None:
    if is_dict(row_type):
        raise ConfigurationError(
            "rows that are dicts come as JSON, or as CSV files whose first line names the columns; for other CSV make them a"
            " NamedTuple"
        )


def _maker(row_type: Any, *, scalar: bool) -> Callable[[Any], Any]:
    if scalar:
        return lambda values: values[0]
    if is_named_tuple(row_type):
        new = tuple.__new__
        return lambda values: new(row_type, values)
    if dataclasses.is_dataclass(row_type):
        make: Any = row_type
        return lambda values: make(*values)
    raise ConfigurationError(f"no CSV line can become a {row_type!r}")
