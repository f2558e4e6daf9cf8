"""`utc_time`: one reading of times for all doors."""

import contextlib
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.data.utc_times import utc_time, zone_named

_NOON = datetime(2026, 6, 1, 12)  # noqa: DTZ001  rows' times have no zone
_LAST = datetime(2026, 6, 1, 23, 59, 59, 999_999)  # noqa: DTZ001
_BERLIN = zone_named("Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-06-01T12:00:00Z", _NOON),
        ("2026-06-01t12:00:00z", _NOON),
        ("2026-06-01 12:00:00", _NOON),
        ("2026-06-01T12:00", _NOON),
        ("20260601T120000Z", _NOON),
        ("2026-06-01T14:00:00+02:00", _NOON),
        ("2026-06-01T14:00:00.000000+02:00", _NOON),
        ("2026-06-01 14:00:00 +0200", _NOON),
        ("2026-06-01 12:00:00+00", _NOON),
        ("2026-06-01T12:00:00,5Z", _NOON.replace(microsecond=500_000)),
        ("2026-06-01", _NOON.replace(hour=0)),
        ("1780315200", _NOON),
        ("1780315200000", _NOON),
        ("1780315200.3", _NOON.replace(microsecond=300_000)),
        ("2026-06-01T23:59:59.9999999Z", _LAST),
        ("2026-06-01T23:59:59.9999999+00:00", _LAST),
        ("2026-06-01T23:59:59.999999999999Z", _LAST),
        ("2026-06-01T23:59:60Z", _LAST),
        ("2026-06-01T23:59:60.5Z", _LAST),
        ("1780358399.9999999", _LAST),
        ("9999-12-31T23:59:59.9999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
        (1_780_358_399_999_999_900, _LAST),
        (Decimal("1780358399.9999999"), _LAST),
        (Decimal("-0.0000001"), datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
        (1_780_315_200, _NOON),
        (1_780_315_200_000, _NOON),
        (1_780_315_201.001, _NOON.replace(second=1, microsecond=1_000)),
        (1_780_315_200_570.0, _NOON.replace(microsecond=570_000)),
        (datetime(2026, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))), _NOON),
        (date(2026, 6, 1), _NOON.replace(hour=0)),
    ],
)
def test_all_forms_become_utc(value: Any, expected: datetime) -> None:
    assert utc_time(value) == expected
    assert utc_time(value).tzinfo is None


@pytest.mark.parametrize(
    "value",
    [
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-00:01",
        "2026-02-30T12:00:00Z",
        "2026-06-01T12:00:00ZZ",
        "2026-06-01T12:00:00+02:00Z",
        "2026-06-01T12:00:00.1234567xZ",
        "2026-06-01T12:00:61Z",
        "2026-06-01T12",
        "20260601",
        "20260601120000",
        "2013",
        "",
        "soon",
        "２０26-06-01T12:00:00Z",
        True,
        None,
        [1],
        2**70,
        1e300,
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("1e400"),
    ],
)
def test_other_values_are_no_times(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        utc_time(value)


def test_a_zone_is_for_values_that_state_none() -> None:
    assert utc_time("2026-06-01 14:00:00", _BERLIN) == _NOON
    assert utc_time("2026-06-01T12:00:00Z", _BERLIN) == _NOON
    assert utc_time(datetime(2026, 6, 1, 14), _BERLIN) == _NOON  # noqa: DTZ001
    assert utc_time(1_780_315_200, _BERLIN) == _NOON
    assert utc_time("2026-06-01 14:00:00", zone_named("+02:00")) == _NOON
    # The hour that comes twice is its first pass; the one that is left out has the offset before it.
    assert utc_time("2026-10-25 02:30:00", _BERLIN) == datetime(2026, 10, 25, 0, 30)  # noqa: DTZ001
    assert utc_time("2026-03-29 02:30:00", _BERLIN) == datetime(2026, 3, 29, 1, 30)  # noqa: DTZ001


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", "+25:00", "CEST2"])
def test_an_unknown_zone_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"zone|offset"):
        zone_named(name)


@given(st.floats(-6e10, 9e10))
def test_floats_of_seconds_equal_those_of_python(seconds: float) -> None:
    assert utc_time(seconds) == datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


@given(st.datetimes(), st.sampled_from(["T", "t", " "]), st.sampled_from(["", "Z", "z", "+00:00", "-00:00"]))
def test_texts_of_python_come_back(at: datetime, between: str, zone: str) -> None:
    assert utc_time(at.isoformat(between) + zone) == at


@given(st.datetimes(), st.text("0123456789", min_size=1, max_size=12))
def test_more_digits_never_reach_the_next_microsecond(at: datetime, digits: str) -> None:
    text = at.isoformat(timespec="microseconds")
    assert utc_time(text + digits + "Z") == at


@given(st.datetimes(datetime(1974, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001
def test_numbers_of_every_unit_are_times(at: datetime) -> None:
    micros = (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    assert utc_time(micros) == utc_time(micros * 1_000 + 999) == at
    assert utc_time(str(micros)) == at
    assert utc_time(micros // 1_000) == at.replace(microsecond=at.microsecond // 1_000 * 1_000)
    assert utc_time(micros / 1_000) == at or abs(utc_time(micros / 1_000) - at) <= timedelta(microseconds=1)


@given(st.one_of(st.text(), st.floats(), st.integers(), st.decimals(), st.none(), st.binary()))
def test_any_input_is_a_time_or_a_value_error(value: Any) -> None:
    with contextlib.suppress(ValueError):
        assert utc_time(value, _BERLIN).tzinfo is None
