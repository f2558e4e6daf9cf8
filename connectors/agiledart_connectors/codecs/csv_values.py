"""Texts of CSV columns → values, the careful way: each converter raises `MalformedError` for what it does not take."""

import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple, NewType

from agiledart_connectors.codecs.decoder_options import CsvDialect
from agiledart_connectors.codecs.loose_values import formatted_time, loose_value
from agiledart_connectors.codecs.malformed_examples import NUMBER, TIME, MalformedError
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import Field, Format, is_loose
from agiledart_dataflow.data.utc_times import utc_time
from agiledart_kernel.errors import ConfigurationError

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)

LEAST, MOST = -(1 << 63), (1 << 64) - 1
"""Range of an int: other values do not fit the 64 bits of the wire."""

_MAX_DIGITS: Final = 4_300
"""Digits of the longest text that Python takes for an int."""

Read = Callable[[str], Any]


class ColumnRule(NamedTuple):
    """Rule by which a field is read.

    Attributes:
        name: of the field.
        kind: its type, without None.
        optional: it may be None.
        read: text → value; raises `MalformedError`.
        is_plain: neither its annotation nor the dialect changes how a text of its type is read.
    """

    name: str
    kind: Any
    optional: bool
    read: Read
    is_plain: bool

    def word(self, text: str) -> str:
        """Return a description of what a text should have been."""
        if self.kind is datetime:
            return "time like 2013-01-31 08:00:00" if self.is_plain else "time of the stated format"
        if self.kind is int and _INTEGER.fullmatch(text) is not None:
            return "int of 64 bits"
        return {int: "int", bool: "bool (0, 1, true, false)", float: "finite number"}.get(self.kind, "number")


def column_rule(field: Field, markers: tuple[Any, ...], dialect: CsvDialect) -> ColumnRule:
    """Return how a field is read. Raises `ConfigurationError`: no column can fill it."""
    kind = optional_stripped(field.type)
    optional = kind is not field.type
    if isinstance(kind, NewType):
        kind = kind.__supertype__
    form = next((marker for marker in markers if isinstance(marker, Format)), None)
    if kind is datetime:
        if form is not None:
            return ColumnRule(field.name, kind, optional, _as_malformed(formatted_time(form, dialect.zone)), False)
        return ColumnRule(field.name, kind, optional, time_reader(dialect.zone), True)
    if kind not in _CAREFUL:
        raise ConfigurationError(
            f"no CSV column can fill the field {field.name}: {field.type!r}; text, numbers, Decimal, bool and datetime can be read"
        )
    read, is_plain = _CAREFUL[kind], True
    if is_loose(markers) and kind is not str:
        loose = loose_value(kind)
        read, is_plain = (lambda text: loose(text.strip())), False
    if dialect.decimal != "." and kind in (float, Decimal):
        inner = read
        read, is_plain = (lambda text: inner(_with_point(text, dialect.decimal))), False
    return ColumnRule(field.name, kind, optional, read, is_plain)


def _with_point(text: str, decimal: str) -> str:
    """Return a number with a decimal point. A point of before is none of the number's: 1.234,5 is not 1.2345."""
    if "." in text:
        raise MalformedError(NUMBER)
    return text.replace(decimal, ".", 1)


def time_reader(zone: tzinfo | None) -> Callable[[str], datetime]:
    """Return a function text → time; it raises `MalformedError`."""

    def time(text: str) -> datetime:
        try:
            return utc_time(text, zone)
        except ValueError:
            raise MalformedError(TIME) from None

    return time


def _as_malformed(read: Callable[[str], datetime]) -> Callable[[str], datetime]:
    def time(text: str) -> datetime:
        try:
            return read(text)
        except ValueError:
            raise MalformedError(TIME) from None

    return time


def read_float(text: str) -> float:
    """Return a finite decimal number."""
    if _NUMBER.fullmatch(text) is None or not isfinite(value := float(text)):
        raise MalformedError(NUMBER)
    return value


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None or len(text.lstrip("+-")) > _MAX_DIGITS:
        raise MalformedError(NUMBER)
    value = int(text)
    if not LEAST <= value <= MOST:
        raise MalformedError(NUMBER)
    return value


def read_decimal(text: str) -> Decimal:
    """Return a finite decimal number, exactly."""
    read_float(text)
    return Decimal(text)


def read_boolean(text: str) -> bool:
    """Return a truth value."""
    if text not in ("0", "1", "true", "false"):
        raise MalformedError(NUMBER)
    return text in ("1", "true")


_CAREFUL: Final[dict[Any, Read]] = {
    str: str,
    float: read_float,
    int: _integer,
    Decimal: read_decimal,
    bool: read_boolean,
}
