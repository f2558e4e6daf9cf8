"""Mapping of a row type to columns: the kind of each field's array, how to read a field from a row, how to make a row again.

The kind is the usual one of a field. A batch whose values do not fit it (an int beyond 64 bits, a time with a zone) keeps that
column as `object`, a list of the values themselves; no value is rounded or lost.
"""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Literal, NewType, get_origin

from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import fields_of, is_named_tuple

ColumnKind = Literal["int", "float", "bool", "text", "bytes", "time", "span", "object"]
"""Kind of the values in a column's array; `time` and `span` are int64 microseconds (since 1970)."""

_KINDS: dict[Any, ColumnKind] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "text",
    bytes: "bytes",
    datetime: "time",
    timedelta: "span",
}

SCALAR_FIELD = "value"
"""Name of the only column of rows that have no fields (ints, texts, plain tuples)."""


@dataclass(frozen=True)
class ColumnField:
    """One column of a schema.

    Attributes:
        name, type: of the row's field.
        kind: usual kind of its values.
        optional: True when None is among them.
    """

    name: str
    type: Any
    kind: ColumnKind
    optional: bool


@dataclass(frozen=True, eq=False)  # `schema_of` gives the same object again, and a dict cannot be hashed
class ColumnSchema:
    """The columns of a row type.

    Attributes:
        row_type: type of the rows.
        fields: in the order of the row's.
        getters: row → value, by column.
        make: an iterable of values → row.
        index: name → number of the column.
    """

    row_type: Any
    fields: tuple[ColumnField, ...]
    getters: tuple[Callable[[Any], Any], ...]
    make: Callable[[Iterable[Any]], Any]
    index: dict[str, int]

    @property
    def is_scalar(self) -> bool:
        """True when a row is the value of the only column."""
        return not fields_of(self.row_type)


def column_field(name: str, kind: Any) -> ColumnField:
    """Return the column of a field of this type."""
    inner = optional_stripped(kind)
    plain = inner
    while isinstance(plain, NewType):
        plain = plain.__supertype__
    try:
        of = _KINDS.get(plain, "object")
    except TypeError:  # a type that cannot be hashed
        of = "object"
    return ColumnField(name, kind, of, inner is not kind)


@lru_cache(maxsize=1_024)
def schema_of(row_type: Any) -> ColumnSchema:
    """Return the columns of a row type; a type without fields is one column, called `value`."""
    fields = fields_of(row_type)
    origin = get_origin(row_type) or row_type
    if not fields:
        scalar = column_field(SCALAR_FIELD, row_type)
        return ColumnSchema(row_type, (scalar,), (_itself,), _first, {SCALAR_FIELD: 0})
    columns = tuple(column_field(field.name, field.type) for field in fields)
    index = {column.name: number for number, column in enumerate(columns)}
    getters: tuple[Callable[[Any], Any], ...]
    make: Callable[[Iterable[Any]], Any]
    if is_named_tuple(origin):
        getters = tuple(itemgetter(number) for number in range(len(columns)))
        make = origin._make
    else:
        assert dataclasses.is_dataclass(origin)
        getters = tuple(attrgetter(column.name) for column in columns)
        make = _dataclass_maker(origin, [column.name for column in columns])
    return ColumnSchema(row_type, columns, getters, make, index)


def _dataclass_maker(origin: Any, names: list[str]) -> Callable[[Iterable[Any]], Any]:
    by_name = any(field.kw_only for field in dataclasses.fields(origin))
    if by_name:
        return lambda values: origin(**dict(zip(names, values, strict=True)))
    return lambda values: origin(*values)


def _itself(row: Any) -> Any:
    return row


def _first(values: Iterable[Any]) -> Any:
    return next(iter(values))
