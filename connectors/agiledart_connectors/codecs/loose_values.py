"""Values of fields that an annotation describes: `Annotated[float, Loose]` and `Annotated[datetime, Format("%d.%m.%Y")]`."""

import re
from collections.abc import Callable
from datetime import datetime, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from agiledart_connectors.codecs.malformed_examples import TIME, TYPE, MalformedError, bounded_repr
from agiledart_dataflow.data.schema import Format
from agiledart_dataflow.data.utc_times import utc_time
from agiledart_kernel.errors import ConfigurationError

_NUMBER: Final = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})([eE][+-]?\d{1,3})?", re.ASCII)
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False}
_SAMPLE: Final = datetime(2013, 1, 31, 8, 5, 9, 250_000)  # noqa: DTZ001


def loose_value(kind: Any) -> Callable[[Any], Any]:
    """Return a function value → value of a type, which also takes numbers as texts, and whole floats for ints.

    It raises `MalformedError`.

    Args:
        kind: int, float, Decimal, bool or str.

    Raises:
        ConfigurationError: `Loose` is not for this type.
    """
    if kind not in _READ:
        raise ConfigurationError(f"Annotated[…, Loose] is for int, float, Decimal, bool and str, not {kind!r}")
    read = _READ[kind]

    def convert(value: Any) -> Any:
        made = read(value)
        if made is None:
            raise MalformedError(TYPE, f"{bounded_repr(value)} is no {_WORDS[kind]}")
        return made

    return convert


def formatted_time(form: Format, zone: tzinfo | None) -> Callable[[Any], datetime]:
    """Return a function text → time in UTC, by a format of `datetime.strptime`; it raises ValueError.

    Raises:
        ConfigurationError: the format is none.
    """
    pattern = form.pattern
    try:
        datetime.strptime(_SAMPLE.strftime(pattern), pattern)  # noqa: DTZ007
    except (ValueError, re.error) as error:
        if "unconverted data" not in str(error) and "does not match" not in str(error):
            raise ConfigurationError(f"Format({pattern!r}) is no format of times: {error}") from None

    def time_of(text: Any) -> datetime:
        if type(text) is not str:
            raise ValueError
        try:
            return utc_time(datetime.strptime(text, pattern), zone)  # noqa: DTZ007  `zone` is what it means
        except ValueError:
            raise MalformedError(TIME, f"{bounded_repr(text)} is no time of the format {pattern}") from None

    return time_of


def _number(value: Any) -> Any:
    """Return a number as it is, or of a text; None for other values."""
    if type(value) is str:
        text = value.strip()
        if _NUMBER.fullmatch(text) is None:
            return None
        return int(text) if text.lstrip("+-").isdigit() else Decimal(text)
    return value if type(value) in (int, float, Decimal) else None


def _int(value: Any) -> int | None:
    number = _number(value)
    if number is None or (
        type(number) is not int and (not isfinite(number) or abs(number) > _MOST or number != int(number))
    ):
        return None
    whole = int(number)
    return whole if _LEAST <= whole <= _MOST else None


def _float(value: Any) -> float | None:
    if type(value) is str and _NUMBER.fullmatch(value.strip()) is None:
        return None
    if type(value) not in (str, int, float, Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def _decimal(value: Any) -> Decimal | None:
    number = _number(value)
    if number is None or not isfinite(number):
        return None
    return Decimal(str(number)) if type(number) is float else Decimal(number)


def _bool(value: Any) -> bool | None:
    if type(value) is str:
        return _TRUTHS.get(value.strip().lower())
    return bool(value) if type(value) in (bool, int, float) and value in (0, 1) else None


def _str(value: Any) -> str | None:
    if type(value) is bool:
        return "true" if value else "false"
    return value if type(value) is str else str(value) if type(value) in (int, float, Decimal) else None


_READ: Final[dict[Any, Callable[[Any], Any]]] = {
    int: _int,
    float: _float,
    Decimal: _decimal,
    bool: _bool,
    str: _str,
}
_WORDS: Final = {int: "int", float: "number", Decimal: "number", bool: "bool", str: "text"}
