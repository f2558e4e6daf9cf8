"""Form of rows for readers: a schema as plain data, and rows as arrays of plain values.

| Python | type | in the body (MessagePack) |
|---|---|---|
| str, int, float, bool, bytes | `string`, `int`, `float`, `bool`, `bytes` | itself |
| datetime | `datetime` | text `YYYY-MM-DDTHH:MM:SS.ffffff`, UTC without a zone; or timestamp extension with a zone |
| date, time, timedelta, Decimal | `date`, `time`, `timedelta`, `decimal` | text, as msgspec writes it |
| ReadTime | `read_time` | integer, nanoseconds since 1970 |
| Enum, Literal | the type of its values | the value |
| NamedTuple, dataclass | `{"struct": [field, …]}` | array in the order of the fields |
| list, set, tuple[T, ...] | `{"list": {"type", "nullable"}}` | array |
| tuple[A, B] | `{"struct": …}` with fields `_1`, `_2` | array |
| dict | `{"map": [{"type", "nullable"}, {"type", "nullable"}]}` | map |
| X or None | the type of X, `nullable` true | nil |
| anything else | `json` | text, a JSON document |
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NewType, Union, get_args, get_origin

import msgspec

from agiledart_dataflow.data.schema import ReadTime, fields_of, is_named_tuple, type_text
from agiledart_sink_log.protocol import MAX_STORED_BYTES

_SCALARS: dict[Any, str] = {
    str: "string", int: "int", float: "float", bool: "bool", bytes: "bytes", datetime: "datetime", date: "date",
    time: "time", timedelta: "timedelta", Decimal: "decimal",
}  # fmt: skip

Plain = Callable[[Any], Any]
"""Conversion of a value to the form in which it is encoded."""


@dataclasses.dataclass(frozen=True)
class RowForm:
    """Schema and encoding of rows of one type.

    Attributes:
        text: the type as text; equal on all nodes and runs.
        fields: `[{"name", "type", "nullable"}, …]`.
        plain: conversion of a row to an array; None when the row is an array already.
    """

    text: str
    fields: list[dict[str, object]]
    plain: Plain | None


def row_form(row_type: Any) -> RowForm:
    """Return the form of rows of a type; a row that is not a record has one field, `value`. Raises `SchemaError`."""
    text = type_text(row_type)
    kind, _, plain = _described(row_type)
    if isinstance(kind, dict) and "struct" in kind:
        return RowForm(text, kind["struct"], plain)
    field = {"name": "value", "type": kind, "nullable": _described(row_type)[1]}
    return RowForm(text, [field], (lambda row: (row,)) if plain is None else (lambda row: (plain(row),)))


def _described(kind: Any) -> tuple[Any, bool, Plain | None]:
    """Return (type as plain data, whether None is allowed, conversion; None for a value that is encoded unchanged)."""
    if kind is ReadTime:
        return "read_time", False, None
    if isinstance(kind, NewType):
        return _described(kind.__supertype__)
    if kind in _SCALARS:
        return _SCALARS[kind], False, None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is typing.Literal:
        return _of_values(arguments)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _of_values([argument.value for argument in kind])
    if fields := fields_of(kind):
        named = origin or kind
        return _struct(
            [(field.name, field.type) for field in fields],
            None if is_named_tuple(named) else [field.name for field in fields],
        )
    if origin in (list, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
        return _list(arguments[0])
    if origin is tuple:
        return _struct([(f"_{number}", part) for number, part in enumerate(arguments, 1)], None)
    if origin is dict:
        keys, values = _described(arguments[0]), _described(arguments[1])
        if keys[2] is None and values[2] is None:
            return {"map": [_type(keys), _type(values)]}, False, None
    return "json", False, _as_json


def _type(described: tuple[Any, bool, Plain | None]) -> dict[str, object]:
    return {"type": described[0], "nullable": described[1]}


def _union(arguments: tuple[Any, ...]) -> tuple[Any, bool, Plain | None]:
    rest = [argument for argument in arguments if argument is not type(None)]
    if len(rest) == len(arguments):
        return ("float", False, None) if set(rest) == {int, float} else ("json", False, _as_json)
    kind, _, plain = _described(rest[0]) if len(rest) == 1 else _union(tuple(rest))
    if plain is None:
        return kind, True, None
    return kind, True, lambda value: None if value is None else plain(value)


def _of_values(values: typing.Sequence[Any]) -> tuple[Any, bool, Plain | None]:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (kind := kinds.pop()) in (str, int):
        return _SCALARS[kind], False, None
    return "json", False, _as_json


def _list(part: Any) -> tuple[Any, bool, Plain | None]:
    described = _described(part)
    plain = described[2]
    kind = {"list": _type(described)}
    return (kind, False, None) if plain is None else (kind, False, lambda value: [plain(item) for item in value])


def _struct(parts: list[tuple[str, Any]], attributes: list[str] | None) -> tuple[Any, bool, Plain | None]:
    """Return the description of a struct. `attributes`: names of a dataclass's fields; None for a tuple."""
    described = [_described(kind) for _, kind in parts]
    kind = {"struct": [{"name": name, **_type(part)} for (name, _), part in zip(parts, described, strict=True)]}
    plains = [part[2] for part in described]
    if attributes is None and not any(plains):
        return kind, False, None

    def plain(value: Any) -> Any:
        values = value if attributes is None else [getattr(value, name) for name in attributes]
        return [part if convert is None else convert(part) for part, convert in zip(values, plains, strict=True)]

    return kind, False, plain


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


_ENCODER = msgspec.msgpack.Encoder()


def encoded(rows: list[Any], limit: int = MAX_STORED_BYTES) -> typing.Iterator[tuple[bytes, int]]:
    """Yield (body, rows) of one or more stored batches, each within `limit` bytes.

    Raises:
        ValueError: a single row is larger; TypeError, OverflowError: a value cannot be encoded.
    """
    waiting = [rows]
    while waiting:
        piece = waiting.pop()
        body = _ENCODER.encode(piece)
        if len(body) <= limit:
            yield body, len(piece)
        elif len(piece) == 1:
            raise ValueError(f"a row of {len(body):,} bytes; a log accepts at most {limit:,}")
        else:
            half = len(piece) // 2
            waiting += [piece[half:], piece[:half]]
