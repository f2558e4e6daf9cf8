"""Values of a table's columns → rows."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
import sqlalchemy as sa

from agiledart_connectors.codecs.malformed_examples import NUMBER, TIME, TYPE, MalformedError, bounded_repr
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.plain_values import check_plain
from agiledart_dataflow.data.schema import aliases_of, fields_of, is_dict, is_named_tuple
from agiledart_dataflow.data.utc_times import utc_time
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""Range of an int: other values do not fit the 64 bits of the wire."""

MakeRow = Callable[[Any, int], Any]
"""(values of the columns, wall time) → row. Raises `MalformedError`; its text begins with the field."""

_KINDS: Final = {int: "int", float: "number", bool: "bool", datetime: "time", str: "text"}


def row_maker(table: sa.Table, row_type: Any, connector: Connector) -> tuple[MakeRow, list[Any]]:
    """Return the function that makes rows, and the columns of which it takes the values.

    Raises:
        ConfigurationError: there is no column for a field, or rows of this type cannot be made.
    """
    if is_dict(row_type):
        return _dict_maker(table), list(table.columns)
    fields = fields_of(row_type)
    if not is_named_tuple(row_type):
        raise ConfigurationError(f"{connector.url()}: rows are a NamedTuple or dict[str, Any], not {row_type!r}")
    aliases = aliases_of(row_type)
    known = {column.name: column for column in table.columns}
    columns, kinds = [], []
    for field in fields:
        if field.is_read_time:
            continue
        column_name = next((name for name in (field.name, *aliases.get(field.name, ())) if name in known), "")
        if not column_name:
            raise ConfigurationError(
                f"{connector.url()}: the table has no column {field.name}; there are {', '.join(known)}"
            )
        columns.append(known[column_name])
        kinds.append((field.name, optional_stripped(field.type), optional_stripped(field.type) is not field.type))
    places = [field.is_read_time for field in fields]

    def make(values: Any, wall_ns: int) -> Any:
        given = iter(zip(values, kinds, strict=True))
        return row_type(*(wall_ns if is_read else _converted(*next(given)) for is_read in places))

    return make, columns


def _dict_maker(table: sa.Table) -> MakeRow:
    names = [str(column.name) for column in table.columns]  # SQLAlchemy has a kind of texts of its own
    times = [isinstance(column.type, sa.DateTime) for column in table.columns]

    def make(values: Any, _: int) -> Any:
        row = {}
        for name, value, is_time in zip(names, values, times, strict=True):
            row[name] = _as_json(name, _time(name, value) if is_time and value is not None else value)
        return row

    return make


def _converted(value: Any, of_field: tuple[str, Any, bool]) -> Any:
    """Return a value as its field (name, type, may be None) wants it. Raises `MalformedError`."""
    name, kind, is_optional = of_field
    if value is None:
        if is_optional:
            return None
        raise MalformedError(TYPE, f"{name} is NULL")
    if kind is datetime:
        return _time(name, value)
    if type(value) is not kind:
        try:
            value = (
                float(value)
                if kind is float and isinstance(value, Decimal | int)
                else msgspec.convert(value, kind, strict=False)
            )
        except (msgspec.ValidationError, ValueError, TypeError, ArithmeticError):
            word = _KINDS.get(kind, kind.__name__ if isinstance(kind, type) else str(kind))
            raise MalformedError(TYPE, f"{name}: {bounded_repr(value)} is no {word}") from None
    if type(value) is int and not _LEAST <= value <= _MOST:
        raise MalformedError(NUMBER, f"{name}: {bounded_repr(value)} does not fit 64 bits")
    return value


def _time(name: str, value: Any) -> datetime:
    """Return a time in UTC, without a zone. Raises `MalformedError`."""
    try:
        return utc_time(value)
    except ValueError:
        raise MalformedError(TIME, f"{name}: {bounded_repr(value)} is no time") from None


def _as_json(name: str, value: Any) -> Any:
    """Return a value as JSON can hold it, for rows without types. Raises `MalformedError`."""
    if isinstance(value, datetime):
        return _time(name, value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if type(value) is int and not _LEAST <= value <= _MOST:
        raise MalformedError(NUMBER, f"{name}: {bounded_repr(value)} does not fit 64 bits")
    try:
        check_plain(value)
    except TypeError as error:
        raise MalformedError(TYPE, f"{name}: {error}") from None
    return value
