"""Windows by the clock of a time zone, weeks, offsets, windows given by units, and their limits as text."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import (
    Pane,
    Topology,
    TopologyError,
    col,
    collect,
    count,
    counted,
    hopping,
    session,
    sliding,
    tumbling,
    window_end,
    window_start,
)
from agiledart.testing import run_local
from agiledart_dataflow.event_time.windows import LocalPanes, Panes, read_window

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BERLIN = ZoneInfo("Europe/Berlin")


class Row(NamedTuple):
    """A row with a time."""

    at: datetime
    key: str


def ms(time: datetime) -> int:
    """An event time."""
    return int(time.timestamp()) * 1_000


def window_of(window: Panes, time: datetime) -> tuple[str, str]:
    """The one window that holds a time, as text."""
    (end,) = window.ends(ms(time))
    return window.time_text(window.start_of(end)), window.time_text(end)


def at(day: int, hour: int, minute: int = 0, *, month: int = 3, year: int = 2026, fold: int = 0) -> datetime:
    """A time by Berlin's clock."""
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN, fold=fold)


def test_a_day_by_a_zones_clock_has_23_and_25_hours_when_the_clock_changes() -> None:
    days = tumbling(days=1, zone="Europe/Berlin")
    assert window_of(days, at(28, 23, 59)) == ("2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00")
    assert window_of(days, at(29, 0)) == ("2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00")
    assert window_of(days, at(29, 23, 59)) == ("2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00")
    assert window_of(days, at(25, 2, 30, month=10, fold=1))[1] == "2026-10-26T00:00:00+01:00"
    lengths = [
        days.ends(ms(day))[0] - days.start_of(days.ends(ms(day))[0]) for day in (at(29, 12), at(25, 12, month=10))
    ]
    assert lengths == [23 * HOUR_MS, 25 * HOUR_MS]


def test_an_offset_moves_the_hour_at_which_a_day_begins() -> None:
    shifts = tumbling(days=1, zone="Europe/Berlin", offset=timedelta(hours=6))
    assert window_of(shifts, at(29, 5, 59)) == ("2026-03-28T06:00:00+01:00", "2026-03-29T06:00:00+02:00")
    assert window_of(shifts, at(29, 6)) == ("2026-03-29T06:00:00+02:00", "2026-03-30T06:00:00+02:00")
    # 02:30 does not exist on that day: the day begins when the clock jumps over it
    nights = tumbling(days=1, zone="Europe/Berlin", offset=timedelta(hours=2, minutes=30))
    assert window_of(nights, at(29, 12))[0] == "2026-03-29T03:30:00+02:00"
    # 02:30 comes twice: the day begins the first time, and stays begun
    assert window_of(nights, at(25, 2, 15, month=10, fold=1))[0] == "2026-10-25T02:30:00+02:00"


def test_weeks_begin_on_a_monday_with_and_without_a_zone() -> None:
    for window, offset in ((tumbling(weeks=1), "Z"), (tumbling(timedelta(days=7)), "Z")):
        assert window_of(window, datetime(2026, 3, 29, 23, tzinfo=UTC)) == (
            f"2026-03-23T00:00:00{offset}",
            f"2026-03-30T00:00:00{offset}",
        )
    week = tumbling(weeks=1, zone="Europe/Berlin")
    assert window_of(week, at(29, 23, 59)) == ("2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00")
    assert window_of(week, at(30, 0)) == ("2026-03-30T00:00:00+02:00", "2026-04-06T00:00:00+02:00")
    sunday = tumbling(weeks=1, offset=timedelta(days=-1))
    assert window_of(sunday, datetime(2026, 3, 29, tzinfo=UTC))[0] == "2026-03-29T00:00:00Z"


def test_parts_of_a_day_are_equally_long_and_begin_with_the_day() -> None:
    quarters = tumbling(hours=6, zone="Europe/Berlin")
    assert window_of(quarters, at(28, 7)) == ("2026-03-28T06:00:00+01:00", "2026-03-28T12:00:00+01:00")
    assert window_of(quarters, at(29, 23)) == ("2026-03-29T19:00:00+02:00", "2026-03-30T00:00:00+02:00")
    half_hours = tumbling(minutes=30, zone="Asia/Kolkata")
    assert window_of(half_hours, datetime(2026, 1, 1, 0, 10, tzinfo=UTC))[0] == "2026-01-01T05:30:00+05:30"


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Africa/Monrovia",
]


@given(
    st.sampled_from(ZONES),
    st.one_of(st.integers(-4 * 10**12, 4 * 10**12), st.integers(-(2**62), 2**62)),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(-DAY_MS + 1, DAY_MS - 1),
)
def test_windows_of_a_zone_hold_their_times_and_follow_each_other(
    zone: str, time_ms: int, every: int, hops: int, offset_ms: int
) -> None:
    window = LocalPanes(every * hops * DAY_MS, every * DAY_MS, zone=zone, offset_ms=offset_ms)
    ends = window.ends(time_ms)
    assert len(ends) == hops == window.most_at_once
    starts = [window.start_of(end) for end in ends]
    assert all(start <= time_ms < end for start, end in zip(starts, ends, strict=True))
    assert list(ends) == sorted(set(ends))
    first, behind = window.bounds(time_ms)
    assert first <= time_ms < behind
    assert list(window.ends(first)) == list(window.ends(behind - 1)) == list(ends)
    assert window.ends(behind)[0] >= ends[0]
    single = LocalPanes(every * DAY_MS, every * DAY_MS, zone=zone, offset_ms=offset_ms)
    (end,) = single.ends(time_ms)
    assert single.start_of(single.ends(end)[0]) == end


@given(st.sampled_from(ZONES), st.integers(-4 * 10**12, 4 * 10**12), st.sampled_from([15, 60, 360, 720]))
def test_parts_of_days_follow_each_other(zone: str, time_ms: int, minutes: int) -> None:
    window = tumbling(minutes=minutes, zone=zone)
    (end,) = window.ends(time_ms)
    start = window.start_of(end)
    assert start <= time_ms < end <= start + minutes * 60_000
    assert window.bounds(time_ms) == (start, end)
    assert window.start_of(window.ends(end)[0]) == end
    assert window.ends(start - 1)[0] == start


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_days_are_those_of_the_zones_calendar(zone: str) -> None:
    window, clock = tumbling(days=1, zone=zone), ZoneInfo(zone)
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(366 * 4):
        (end,) = window.ends(ms(time))
        start = datetime.fromtimestamp(window.start_of(end) / 1_000, clock)
        assert (start.date(), start.hour) == (time.astimezone(clock).date(), 0)
        time += timedelta(hours=6, minutes=7)


@pytest.mark.parametrize(
    "window",
    [
        tumbling(days=1, zone="Europe/Berlin", offset=timedelta(hours=-3)),
        tumbling(weeks=2, zone="Asia/Kolkata", allowed_lateness=timedelta(hours=1)),
        tumbling(minutes=15, offset=timedelta(minutes=5)),
        hopping(timedelta(days=7), timedelta(days=1), zone="Europe/Berlin"),
    ],
)
def test_a_window_is_read_from_its_written_form(window: Panes) -> None:
    assert read_window(str(window)) == window


ROWS = [Row(datetime(2026, 3, 28, 12) + timedelta(hours=5 * i), "ab"[i % 2]) for i in range(40)]  # noqa: DTZ001  UTC


@pytest.mark.parametrize("by", [lambda row: row.key, col("key")])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("lateness", [timedelta(0), timedelta(hours=1)])
def test_a_topology_counts_by_local_days_with_limits_as_text(by: Any, parallelism: int, lateness: timedelta) -> None:
    topology = Topology("t")
    window = tumbling(days=1, zone="Europe/Berlin", allowed_lateness=lateness)
    rows = topology.source("rows", ROWS, event_time="at").key_by(by).window(window)
    rows.aggregate("daily", n=count(), begin=window_start(), until=window_end()).sink("out", collect)
    made: list[Any] = list(run_local(topology, parallelism=parallelism))
    assert made[1] == (
        "b",
        made[1].start_ms,
        made[1].end_ms,
        "2026-03-28T00:00:00+01:00",
        "2026-03-29T00:00:00+01:00",
        1,
    )
    wanted: dict[tuple[str, str], int] = {}
    for row in ROWS:
        midnight = row.at.replace(tzinfo=UTC).astimezone(BERLIN).replace(hour=0, minute=0, fold=0)
        wanted[row.key, midnight.isoformat()] = wanted.get((row.key, midnight.isoformat()), 0) + 1
    assert {(row[0], row.begin): row.n for row in made} == wanted
    assert all(ms(datetime.fromisoformat(row.begin)) == row.start_ms for row in made)


def test_a_pane_has_its_limits_as_times() -> None:
    pane = Pane("a", 0, 500, 1)
    assert (pane.start, pane.end.isoformat()) == (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00.500000+00:00")


def test_units_make_the_same_windows_as_a_timedelta() -> None:
    assert tumbling(minutes=5) == tumbling(timedelta(minutes=5))
    assert tumbling(hours=1, seconds=1) == tumbling(timedelta(seconds=3601))
    assert sliding(minutes=5) == sliding(timedelta(minutes=5))
    assert session(seconds=3) == session(timedelta(seconds=3))


def loose(function: Any) -> Any:
    """The function for calls that a type checker refuses."""
    return function


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: loose(tumbling)(5),
            "the size of a tumbling window is a timedelta, such as timedelta(minutes=5), or by minutes=5, not 5",
        ),
        (lambda: loose(tumbling)(), "the size of a tumbling window is missing: give a timedelta"),
        (lambda: loose(tumbling)(minute=5), "tumbling() has no argument 'minute': did you mean minutes?"),
        (lambda: loose(tumbling)(timedelta(1), days=1), "the size of a tumbling window is given twice"),
        (lambda: loose(tumbling)(minutes="5"), "by minutes must be numbers"),
        (
            lambda: loose(hopping)(5, 5),
            "the size of a hopping window is a timedelta, such as timedelta(minutes=5), not 5",
        ),
        (lambda: loose(hopping)(timedelta(1)), "hopping() needs every"),
        (lambda: loose(session)(5), "the gap of a session window is a timedelta"),
        (lambda: loose(sliding)(5), "the size of a sliding window is a timedelta"),
        (lambda: loose(counted)("5"), "a count window holds 1 to 1,000,000 rows, not '5'"),
        (lambda: loose(tumbling)(days=1, zone="Berlin"), "'Berlin' is no time zone: did you mean 'Europe/Berlin'?"),
        (
            lambda: loose(tumbling)(hours=7, zone="Europe/Berlin"),
            "whole days, or a part of a day that divides it, not 7:00:00",
        ),
        (lambda: loose(tumbling)(days=1, zone="UTC", offset=timedelta(days=1)), "is less than a day"),
        (lambda: loose(tumbling)(days=1, offset=5), "the offset of a window is a timedelta"),
        (lambda: loose(tumbling)(minutes=0.00001), "must be a whole number of milliseconds above zero"),
    ],
)
def test_a_wrong_window_names_the_line_and_the_right_form(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(TopologyError, match=rf"test_local_windows\.py:\d+  .*{re.escape(text)}"):
        make()
