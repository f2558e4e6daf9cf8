"""Rows → text: columns of CSV, objects of JSON. Built once per row type, so that a field's type decides how it looks.

Times are `YYYY-MM-DD HH:MM:SS` (with microseconds where there are any), numbers plain decimals with at most 6 places, nested rows
and lists lie flat in CSV and nested in JSON. A `ReadTime` is written as the milliseconds since, with 3 places.
"""

import types
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Union, get_args, get_origin

from agiledart_dataflow.data.schema import ReadTime, fields_of

Columns = Callable[[Any, int, list[str]], None]
"""(value, wall time, columns): append the value's columns."""


def plain_number(value: float | Decimal) -> str:
    """A number in plain decimal notation with at most 6 places, no exponent, no trailing zeros."""
    text = format(value, ".6f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def elapsed_ms(read_at: int, now: int) -> str:
    """The milliseconds from reading to now, with 3 places; never negative."""
    micros = max(now - read_at, 0) // 1_000
    return f"{micros // 1_000}.{micros % 1_000:03}"


def _quoted(text: str) -> str:
    if "," in text or '"' in text or "\n" in text or "\r" in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def columns_of(kind: Any, null: str = "NULL") -> Columns:
    """Return a function that renders values of a type as columns; `null` stands for None."""
    if kind is ReadTime:
        return lambda value, now, columns: columns.append(elapsed_ms(value, now))
    origin, arguments = get_origin(kind), get_args(kind)
    if fields := fields_of(kind):
        parts = [(field.name, columns_of(field.type, null)) for field in fields]

        def row(value: Any, now: int, columns: list[str]) -> None:
            for name, part in parts:
                part(getattr(value, name), now, columns)

        return row
    if origin in (Union, types.UnionType):
        left = [argument for argument in arguments if argument is not type(None)]
        if len(left) == 1:
            present = columns_of(left[0], null)
            return lambda value, now, columns: columns.append(null) if value is None else present(value, now, columns)
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        element = columns_of(arguments[0], null)

        def many(value: Any, now: int, columns: list[str]) -> None:
            for item in value:
                element(item, now, columns)

        return many
    if origin is tuple:
        elements = [columns_of(argument, null) for argument in arguments]

        def fixed(value: Any, now: int, columns: list[str]) -> None:
            for item, element in zip(value, elements, strict=True):
                element(item, now, columns)

        return fixed
    renderers: dict[type, Callable[[Any], str]] = {**_SCALARS, type(None): lambda _: null}
    return lambda value, now, columns: columns.append(renderers.get(type(value), _other_scalar)(value))


_SCALARS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    int: str,
    bool: lambda value: "true" if value else "false",
    float: plain_number,
    Decimal: plain_number,
    datetime: lambda value: value.isoformat(" "),
}
"""One column, by the value's own type."""


def _other_scalar(value: Any) -> str:
    """Return the text of a value whose type is a subclass of a known type, or none of them."""
    for kind in (str, float, Decimal, datetime):
        if isinstance(value, kind):
            return _SCALARS[kind](value)
    return _quoted(str(value))


def json_of(kind: Any) -> Callable[[Any, int], Any]:
    """Return a function from values of a type to what a JSON encoder takes: rows are objects, a `ReadTime` is milliseconds."""
    if kind is ReadTime:
        return lambda value, now: max(now - value, 0) // 1_000 / 1_000
    if fields := fields_of(kind):
        parts = [(field.name, json_of(field.type)) for field in fields]
        return lambda value, now: {name: part(getattr(value, name), now) for name, part in parts}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        left = [argument for argument in arguments if argument is not type(None)]
        if len(left) == 1:
            present = json_of(left[0])
            return lambda value, now: None if value is None else present(value, now)
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        element = json_of(arguments[0])
        return lambda value, now: [element(item, now) for item in value]
    if origin is tuple:
        elements = [json_of(argument) for argument in arguments]
        return lambda value, now: [part(item, now) for item, part in zip(value, elements, strict=True)]
    return lambda value, now: value
