"""`utc_time`: the one function that makes times of what comes in, whatever the door: texts, numbers since 1970, datetimes.

Rows hold times in UTC, without a zone, to the microsecond. The rules are the same for JSON, CSV, SenML, SQL and rows without types:

* A time with a zone is converted to UTC. One without is a time of `zone`, by default UTC. When clocks are set back, an hour comes
  twice, and its first pass is meant. A time that they leave out is read with the offset before the change (PEP 495).
* A number counts s, ms, µs or ns since 1970, by its size. A float of s or ms is taken to the nearest microsecond, as
  `datetime.fromtimestamp` has it. Digits beyond the microsecond are cut off towards the past in all other forms, so no time
  reaches the next second or day.
* A text is a time of ISO 8601 and RFC 3339: `2026-06-01T12:00:00.5+02:00`, with `T`, `t` or a space, the seconds, the fraction
  and the zone optional; or a date; or a number since 1970 of 9 to 19 digits.
* A leap second (`23:59:60`) is the last microsecond of its minute: it stays in its day, and in order.

Sources: RFC 3339, sections 5.6 and 5.7; PEP 495.
"""

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, Final

_S_BELOW, _MS_BELOW, _US_BELOW = 10**11, 10**14, 10**17
"""Sizes below which numbers count s, ms and µs; others count ns.

A number of seconds since 1970 is below 1e11 until the year 5138, one of milliseconds is above it since March 1973; and so on.
"""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  rows' times have no zone
_SHORTEST, _LONGEST = 19, 26
"""Lengths of `YYYY-MM-DD HH:MM:SS` without and with microseconds: Python reads such texts at once."""

_TEXT: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d|\d{8}(?=[Tt ])|\d{4}-?W\d\d-?\d)"
    r"(?:[Tt ](?P<minutes>\d\d:?\d\d)(?::?(?P<seconds>\d\d)(?:[.,](?P<fraction>\d+))?)?"
    r" ?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_NUMBER_TEXT: Final = re.compile(r"-?(?:\d{9,10}|\d{12,13}|\d{15,16}|\d{18,19})(?:\.\d*)?", re.ASCII)
"""A number since 1970 as a text. `20260601` and `20260601120000` are left out: they look like dates."""

_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)", re.ASCII)


def utc_time(value: Any, zone: tzinfo | None = None) -> datetime:
    """Return the time, in UTC and without a zone, that a text, a number since 1970, a datetime or a date means.

    Args:
        value: from a door: JSON, a cell of CSV, a column of a database.
        zone: of values that state none; None: UTC. See `zone_named`.

    Raises:
        ValueError: the value is no time, or one outside of the years 1 to 9999.
    """
    kind = type(value)
    try:
        if kind is str:
            return _of_text(value, zone)
        if isinstance(value, datetime):
            return _in_utc(value, zone)
        if kind is int:
            return _of_whole(value)
        if kind is float:
            return _of_float(value)
        if kind is Decimal and value.is_finite():
            return _of_decimal(value)
        if isinstance(value, date):
            return _in_utc(datetime(value.year, value.month, value.day), zone)  # noqa: DTZ001
    except (ValueError, ArithmeticError, OSError):
        pass
    raise ValueError(f"{value!r} is not a time")


@lru_cache(maxsize=64)
def zone_named(name: str) -> tzinfo:
    """Return the zone of a name: `Europe/Berlin`, `UTC`, or an offset such as `+02:00`. Raises ValueError."""
    if offset := _OFFSET.fullmatch(name):
        span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-span if offset[1] == "-" else span)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # the last: ZoneInfoNotFoundError
        raise ValueError(f"{name!r} is no time zone; write one such as Europe/Berlin, UTC or +02:00") from None


def _of_text(text: str, zone: tzinfo | None) -> datetime:
    size = len(text)
    if _SHORTEST <= size <= _LONGEST + 1 and text[10] in "T t":
        is_utc = text[-1] in "Zz"
        try:
            value = datetime.fromisoformat(text[:-1] if is_utc else text)
        except ValueError:  # perhaps a leap second
            return _of_any_text(text, zone)
        if value.tzinfo is None:
            return value if is_utc or zone is None else _in_utc(value, zone)
        if not is_utc and size < _LONGEST:  # Python passes over what follows a long fraction
            return _in_utc(value, zone)
    return _of_any_text(text, zone)


def _of_any_text(text: str, zone: tzinfo | None) -> datetime:
    match = _TEXT.fullmatch(text)
    if match is None:
        if _NUMBER_TEXT.fullmatch(text) is None:
            raise ValueError
        return _of_decimal(Decimal(text)) if "." in text else _of_whole(int(text))
    seconds, fraction = match["seconds"] or "00", (match["fraction"] or "")[:6]
    if seconds == "60":
        seconds, fraction = "59", "999999"
    minutes = (match["minutes"] or "0000").replace(":", "")
    value = datetime.fromisoformat(match["date"]).replace(
        hour=int(minutes[:2]), minute=int(minutes[2:]), second=int(seconds), microsecond=int(fraction.ljust(6, "0"))
    )
    return _in_utc(value, zone if match["zone"] is None else _offset(match["zone"]))


def _offset(text: str) -> tzinfo:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:]) if len(text) > 3 else 0
    if minutes > 59:
        raise ValueError
    span = timedelta(hours=hours, minutes=minutes)
    return timezone(-span if text[0] == "-" else span)


def _in_utc(value: datetime, zone: tzinfo | None) -> datetime:
    own = value.tzinfo
    if own is None:
        if zone is None:
            return value
        own = zone
    elif own is UTC:
        return value.replace(tzinfo=None)
    offset = own.utcoffset(value.replace(tzinfo=own))  # quicker than `astimezone`
    naive = value.replace(tzinfo=None)
    return naive - offset if offset else naive


def _of_whole(value: int) -> datetime:
    size = abs(value)
    if size < _S_BELOW:
        micros = value * 1_000_000
    elif size < _MS_BELOW:
        micros = value * 1_000
    else:
        micros = value if size < _US_BELOW else value // 1_000
    return _EPOCH + timedelta(0, 0, micros)


def _of_float(value: float) -> datetime:
    if not isfinite(value):
        raise ValueError
    size = abs(value)
    if size < _S_BELOW:
        return datetime.fromtimestamp(value, UTC).replace(tzinfo=None)
    if size < _MS_BELOW:
        whole, part = divmod(value, 1_000)
        return _EPOCH + timedelta(seconds=whole, microseconds=round(part * 1_000))
    return _of_whole(int(value // 1))


def _of_decimal(value: Decimal) -> datetime:
    size = abs(value)
    places = 6 if size < _S_BELOW else 3 if size < _MS_BELOW else 0 if size < _US_BELOW else -3
    return _EPOCH + timedelta(0, 0, int(value.scaleb(places).to_integral_value(ROUND_FLOOR)))
