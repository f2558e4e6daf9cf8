"""Text columns → typed rows: a generated loop for lines that are beyond doubt, a careful one that names what is wrong.

Before the loop, many lines at once are tried with a decoder in C (`bulk_parser.py`), where the row's type allows it.

Reasons, judged from left to right after the number of columns: `columns`, `number` (not a finite decimal number), `time` (not
exactly `YYYY-MM-DD HH:MM:SS`, or no such day). The fast loop accepts nothing that the careful one would refuse.
"""

import csv
import dataclasses
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, NewType

from agiledart_connectors.codecs.bulk_parser import FEW_LINES, LINES_AT_ONCE, BulkParser, bulk_columns
from agiledart_connectors.codecs.malformed_examples import (
    COLUMNS,
    NUMBER,
    TIME,
    MalformedError,
    MalformedExamples,
    bounded_repr,
)
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import Field, fields_of, is_dict, is_named_tuple
from agiledart_kernel.errors import ConfigurationError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)
_SUSPICIOUS = re.compile(r"[^ !#-^`-~]")
"""Characters that keep a line from the fast loop: anything but printable ASCII, quotes, `_`."""

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""Range of an int: other values do not fit the 64 bits of the wire."""

_MAX_DIGITS = 4_300
"""Digits of the longest text that Python takes for an int."""


class _Times(dict[str, datetime]):
    """Text → datetime, remembered: event times repeat, and equal texts give the very same object.

    Those that repeat lie close together: two hours of them, second by second, take a megabyte. (Eighteen took ten, and came and
    went every two minutes in a replay at 600 times real time, among rows that stayed: memory that no one could give back.)
    """

    _REMEMBERED = 1 << 13

    def __missing__(self, text: str) -> datetime:
        if len(self) >= self._REMEMBERED:
            self.clear()
        value = self[text] = _time(text)
        return value


def _time(text: str) -> datetime:
    if _TIME.fullmatch(text) is None:
        raise MalformedError(TIME)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise MalformedError(TIME) from None


def _float(text: str) -> float:
    if _NUMBER.fullmatch(text) is None or not isfinite(value := float(text)):
        raise MalformedError(NUMBER)
    return value


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None or len(text.lstrip("+-")) > _MAX_DIGITS:
        raise MalformedError(NUMBER)
    value = int(text)
    if not _LEAST <= value <= _MOST:
        raise MalformedError(NUMBER)
    return value


def _decimal(text: str) -> Decimal:
    _float(text)
    return Decimal(text)


def _boolean(text: str) -> bool:
    if text not in ("0", "1", "true", "false"):
        raise MalformedError(NUMBER)
    return text in ("1", "true")


_CAREFUL: dict[Any, Callable[[str], Any]] = {
    str: str,
    float: _float,
    int: _integer,
    Decimal: _decimal,
    bool: _boolean,
    datetime: _time,
}
_FAST = {
    str: "{}",
    float: "float({})",
    int: "int({})",
    Decimal: "decimal({})",
    bool: "boolean({})",
    datetime: "times[{}]",
}


class RowParser:
    """Makes rows of a type from lines; counts malformed ones by reason.

    Attributes:
        whole_line: a row is its line, as it is.
        bulk: for many lines at once, where the row's type allows it.

    Args:
        row_type: of the rows.
        columns: of the lines, by name of field, "" for one that is passed over; None: the fields in their order.

    Raises:
        ConfigurationError: the type has a field that no column can fill.
    """

    def __init__(self, row_type: Any, columns: Sequence[str] | None = None) -> None:
        _no_dicts(row_type)
        fields = fields_of(row_type)
        self._is_scalar = not fields
        self._fields = fields or (Field("value", row_type),)
        self._read_fields = [field for field in self._fields if not field.is_read_time]
        self._columns = [_column(field) for field in self._read_fields]
        self._names = [field.name for field in self._read_fields]
        self._width = len(self._columns if columns is None else columns)
        self._places = list(range(self._width)) if columns is None else [columns.index(name) for name in self._names]
        in_order = self._width == len(self._names) and self._places == list(range(self._width))
        self._make = _maker(row_type, scalar=self._is_scalar)
        self._row_type = row_type
        self._is_tuple = bool(fields) and is_named_tuple(row_type)
        self.whole_line = self._is_scalar and row_type is str
        self._careful = [(_CAREFUL[kind], optional) for kind, optional in self._columns]
        self._times = _Times()
        self._fast = None if self.whole_line else self._compiled()
        reads_now = len(self._columns) < len(self._fields)
        bulk = (
            bulk_columns(self._columns, self._times.__getitem__)
            if self._is_tuple and in_order and not reads_now
            else None
        )
        self.bulk = None if bulk is None else BulkParser(row_type, bulk)

    def parse(self, lines: list[str], wall_ns: int, malformed: dict[str, int], *, plain: bool) -> list[Any]:
        """The rows of these lines; `plain` promises printable ASCII without quotes and `_`. May be the very list."""
        if self.whole_line:
            return lines
        rows: list[Any] = []
        if self._fast is not None and plain:
            if self.bulk is not None and len(lines) >= FEW_LINES:
                return self._in_bulk(self.bulk, self._fast, lines, wall_ns, malformed)
            self._fast(lines, wall_ns, rows.append, malformed)
        else:
            for line in lines:
                if self._fast is not None and _SUSPICIOUS.search(line) is None:
                    self._fast((line,), wall_ns, rows.append, malformed)
                else:
                    self._parse_carefully(line, wall_ns, rows.append, malformed)
        return rows

    def _in_bulk(
        self, bulk: BulkParser, fast: Callable[..., None], lines: list[str], wall_ns: int, malformed: dict[str, int]
    ) -> list[Any]:
        """Many lines at once where none of them is in doubt, else one by one."""
        rows: list[Any] = []
        for start in range(0, len(lines), LINES_AT_ONCE):
            some = lines[start : start + LINES_AT_ONCE]
            parsed = bulk.parse("\n".join(some).encode())
            if parsed is None or len(parsed) != len(some):  # a generator's line may have a line feed in it
                fast(some, wall_ns, rows.append, malformed)
            else:
                rows += parsed
        return rows

    def _parse_carefully(self, line: str, wall_ns: int, push: Callable[[Any], None], malformed: dict[str, int]) -> None:
        """The careful way for one line."""
        try:
            push(self.row(line, wall_ns))
        except MalformedError as error:
            malformed[error.reason] = malformed.get(error.reason, 0) + 1

    def row(self, line: str, wall_ns: int) -> Any:
        """The row of one line, the careful way; raises `MalformedError`."""
        values = iter(self._values(line))
        return self._make([wall_ns if field.is_read_time else next(values) for field in self._fields])

    def explain(self, lines: list[str], examples: MalformedExamples, place: Callable[[int], str]) -> None:
        """Tell of the malformed ones among these lines; `place` says where the one with an index stands."""
        for index, line in enumerate(lines):
            try:
                self._values(line)
            except MalformedError as error:
                if examples.wants_more((error.reason,)):
                    examples.add(error.reason, place(index), error.text, line)

    def _values(self, line: str) -> list[Any]:
        """The values of a line's columns, in order of the fields; raises `MalformedError`."""
        texts = line.split(",")
        if '"' in line:
            try:
                quoted = next(csv.reader([line]), [])
            except csv.Error:  # a carriage return within, or a very long field
                quoted = texts = []  # cut at its commas, the line would keep its quotes
            if len(quoted) == self._width or len(texts) != self._width:
                texts = quoted
        if len(texts) != self._width:
            actual = f"{len(texts)} column{'' if len(texts) == 1 else 's'}" if texts else "broken quotes"
            raise MalformedError(
                COLUMNS, f"{actual}, not {self._width} ({', '.join(self._names)}): {bounded_repr(line)}"
            )
        values = []
        for place, field, (kind, optional), (read, _) in zip(
            self._places, self._read_fields, self._columns, self._careful, strict=True
        ):
            text = texts[place]
            try:
                values.append(None if optional and not text else read(text))
            except MalformedError as error:
                raise MalformedError(
                    error.reason, f"{field.name}: {bounded_repr(text)} is no {_word(kind, text)}"
                ) from None
        return values

    def _compiled(self) -> Callable[..., None]:
        """The fast loop as a function of (lines, wall_ns, push, malformed).

        Of printable ASCII without `_`, Python's own number syntax is wider than ours only by spaces and by what is not finite:
        such lines are left to the careful way. Spaces inside texts are no doubt.
        """
        read = [f"a{i}" for i in range(self._width)]
        names = [read[place] for place in self._places]
        sums: list[str] = []
        conversions: list[str] = []
        numbers = ""
        for name, (kind, optional) in zip(names, self._columns, strict=True):
            text = _FAST[kind].format(name)
            if kind in (float, int, Decimal):
                numbers += f"{{{name}}}"
            if kind in (float, Decimal) and not optional:
                sums.append(name if kind is float else f"float({name})")
            elif kind in (float, Decimal):
                text = f"careful_{kind.__name__.lower()}({name})"
            if optional:
                conversions.append(f"   {name} = None if not {name} else {text}")
            elif text != name:
                conversions.append(f"   {name} = {text}")
            if kind is int:
                there = f"{name} is not None and " if optional else ""
                conversions.append(f"   if {there}not {_LEAST} <= {name} <= {_MOST}: raise ValueError")
        columns = iter(names)
        made = ", ".join("wall_ns" if field.is_read_time else next(columns) for field in self._fields)
        push = f"push(new(kind, ({made},)))" if self._is_tuple else f"push(make(({made},)))"
        total = " + ".join(sums)
        lines = [
            "def parse(lines, wall_ns, push, malformed):",
            " for line in lines:",
            "  try:",
            f"   {', '.join(read)}, = line.split(',')",
            *([f"   if ' ' in f'{numbers}': raise ValueError"] if numbers else []),
            *conversions,
            *(
                [f"   total = {total}", f"   if total - total == 0.0: {push}; continue"]
                if total
                else [f"   {push}; continue"]
            ),
            "  except (ValueError, ArithmeticError):",  # of Decimal the latter
            "   pass",
            "  judge(line, wall_ns, push, malformed)",
        ]
        scope: dict[str, Any] = {
            "make": self._make,
            "new": tuple.__new__,
            "kind": self._row_type,
            "judge": self._parse_carefully,
            "times": self._times,
            "decimal": Decimal,
            "boolean": _boolean,
            "careful_float": _float,
            "careful_decimal": _decimal,
        }
        exec("\n".join(lines), scope)  # our own text: field names do not appear in it
        parse: Callable[..., None] = scope["parse"]
        return parse


def _word(kind: Any, text: str) -> str:
    """Return a description of what a text should have been."""
    if kind is datetime:
        return "time like 2013-01-31 08:00:00"
    if kind is int and _INTEGER.fullmatch(text) is not None:
        return "int of 64 bits"
    return {int: "int", bool: "bool (0, 1, true, false)", float: "finite number"}.get(kind, "number")


def _no_dicts(row_type: Any) -> None:
    if is_dict(row_type):
        raise ConfigurationError(
            "rows that are dicts come as JSON, or as CSV files whose first line names the columns; for other CSV make them a"
            " NamedTuple"
        )


def _column(field: Field) -> tuple[Any, bool]:
    """(type, may be empty) of a field's column."""
    kind = optional_stripped(field.type)
    if isinstance(kind, NewType):
        kind = kind.__supertype__
    if kind not in _CAREFUL:
        raise ConfigurationError(
            f"no CSV column can fill the field {field.name}: {field.type!r}; text, numbers, Decimal, bool and datetime can be read"
        )
    return kind, optional_stripped(field.type) is not field.type


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
