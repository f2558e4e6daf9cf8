"""Rows → text: columns of CSV, objects of JSON. Built once per row type, so that a field's type decides how it looks.

Times are `YYYY-MM-DD HH:MM:SS` (with microseconds where there are any), numbers plain decimals with all their places. Nested rows
and lists lie flat in CSV and nested in JSON. A `ReadTime` is written as the milliseconds since, with 3 places.
"""

import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Union, get_args, get_origin

from agiledart_dataflow.data.schema import ReadTime, fields_of

Columns = Callable[[Any, int, list[str]], None]
"""(value, wall time, columns): append the value's columns."""


@dataclass(frozen=True)
class CsvForm:
    """Form in which columns are written; `csv:` reads the default back to equal values.

    Attributes:
        null: text for None; an equal text in such a field is quoted.
        places: most decimal places of numbers; None: as many as the number has.
        delimiter: character between columns.
        decimal: character before the places.
    """

    null: str = "NULL"
    places: int | None = None
    delimiter: str = ","
    decimal: str = "."


DEFAULT_FORM: Final = CsvForm()

_MAX_ZEROS: Final = 40
"""Zeros of a plain number; one beyond is written with an exponent."""


def plain_number(value: float | Decimal, places: int | None = None) -> str:
    """Return a number in plain decimal notation, which is read back as an equal one.

    Args:
        value: of a column.
        places: most decimal places; None: as many as it has.
    """
    if places is not None:
        text = format(value, f".{places}f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = str(value)
        if "e" in text or "E" in text:
            number = Decimal(text)
            text = format(number, "f") if abs(number.adjusted()) <= _MAX_ZEROS else text
        text = text.removesuffix(".0")
    return "0" if text == "-0" else text


def elapsed_ms(read_at: int, now: int) -> str:
    """The milliseconds from reading to now, with 3 places; never negative."""
    micros = max(now - read_at, 0) // 1_000
    return f"{micros // 1_000}.{micros % 1_000:03}"


def _quoted(text: str, delimiter: str = ",") -> str:
    if delimiter in text or '"' in text or "\n" in text or "\r" in text or text[:1] == "\ufeff":
        return f'"{text.replace(chr(34), chr(34) * 2)}"'
    return text


def columns_of(kind: Any, null: str = "NULL", form: CsvForm | None = None) -> Columns:
    """Return a function that renders values of a type as columns.

    Args:
        kind: the type.
        null: text for None, where `form` does not say it.
        form: in which the columns are written.
    """
    return _columns_of(kind, form or CsvForm(null))


def _columns_of(kind: Any, form: CsvForm) -> Columns:
    if kind is ReadTime:
        return lambda value, now, columns: columns.append(elapsed_ms(value, now))
    origin, arguments = get_origin(kind), get_args(kind)
    if fields := fields_of(kind):
        parts = [(field.name, _columns_of(field.type, form)) for field in fields]

        def row(value: Any, now: int, columns: list[str]) -> None:
            for name, part in parts:
                part(getattr(value, name), now, columns)

        return row
    if origin in (Union, types.UnionType):
        left = [argument for argument in arguments if argument is not type(None)]
        if len(left) == 1:
            return _optional(_columns_of(left[0], form), form)
    if origin is list or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        element = _columns_of(arguments[0], form)

        def many(value: Any, now: int, columns: list[str]) -> None:
            for item in value:
                element(item, now, columns)

        return many
    if origin is tuple:
        elements = [_columns_of(argument, form) for argument in arguments]

        def fixed(value: Any, now: int, columns: list[str]) -> None:
            for item, element in zip(value, elements, strict=True):
                element(item, now, columns)

        return fixed
    scalars = _scalars(form)
    scalar_of = scalars.get

    def scalar(value: Any, now: int, columns: list[str]) -> None:
        render = scalar_of(type(value))
        columns.append(_other_scalar(value, scalars, form) if render is None else render(value))

    return scalar


def _optional(present: Columns, form: CsvForm) -> Columns:
    """Return the renderer of a field that may be None: a text that would be read as None is quoted."""
    alike = ("", form.null)

    def column(value: Any, now: int, columns: list[str]) -> None:
        if value is None:
            columns.append(form.null)
            return
        present(value, now, columns)
        if type(value) is str and value in alike:
            columns[-1] = f'"{value}"'

    return column


def _scalars(form: CsvForm) -> dict[type, Callable[[Any], str]]:
    """Return the renderers of one column, by the value's own type."""
    number: Callable[[Any], str] = plain_number
    if form.places is not None or form.decimal != ".":
        number = lambda value: plain_number(value, form.places).replace(".", form.decimal)  # noqa: E731
    text: Callable[[Any], str] = _quoted
    if form.delimiter != ",":
        text = lambda value: _quoted(value, form.delimiter)  # noqa: E731
    return {
        str: text,
        int: str,
        bool: lambda value: "true" if value else "false",
        float: number,
        Decimal: number,
        datetime: lambda value: value.isoformat(" "),
        type(None): lambda _: form.null,
    }


def _other_scalar(value: Any, scalars: dict[type, Callable[[Any], str]], form: CsvForm) -> str:
    """Return the text of a value whose type is a subclass of a known type, or none of them."""
    for kind in (str, float, Decimal, datetime):
        if isinstance(value, kind):
            return scalars[kind](value)
    return _quoted(str(value), form.delimiter)


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
