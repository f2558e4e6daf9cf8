"""`ZoneDays`: the days of a time zone as event times, through daylight saving; and times in ISO 8601."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from agiledart_kernel.errors import TopologyError

DAY_MS: Final = 86_400_000

MONDAY_MS: Final = 4 * DAY_MS
"""Start of the first Monday after 1970 began, a Thursday, in UTC."""

_FIRST: Final = (date(2, 1, 1) - date(1970, 1, 1)).days
_LAST: Final = (date(9998, 12, 31) - date(1970, 1, 1)).days
"""Days that `datetime` can convert in every zone; beyond them days are those of UTC."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=64)
def zone_named(name: str) -> tzinfo:
    """Return a time zone of the IANA database. Raises `TopologyError` with the nearest name."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones  # few nodes need it, and it takes 1 MB

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    known = sorted(available_timezones())
    if not known:
        raise TopologyError(
            f"no time zones are known here, so {name!r} is not: install the system's tzdata, or pip install tzdata"
        )
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1) or [zone for zone in known if zone.lower().endswith(name.lower())][:1]
    meant = f"did you mean {close[0]!r}?" if close else "a zone is called as in 'Europe/Berlin'"
    raise TopologyError(f"{name!r} is no time zone: {meant}")


class ZoneDays:
    """Days of a zone, numbered from 1970-01-01.

    Args:
        zone: name in the IANA database; "": UTC.
        offset_ms: time of the day at which a day begins, by its clock.
    """

    def __init__(self, zone: str, offset_ms: int = 0) -> None:
        self._zone = zone_named(zone or "UTC")
        self._offset_ms = offset_ms
        self._offset = timedelta(milliseconds=offset_ms)
        self.start_of = lru_cache(maxsize=4_096)(self._start_of)
        """start_of(day): event time at which a day begins. A clock that jumps over this time begins the day when it jumps; one that
        shows it twice begins the day the first time."""

    def _start_of(self, day: int) -> int:
        if not _FIRST <= day <= _LAST:
            return day * DAY_MS + self._offset_ms
        clock = datetime(1970, 1, 1, tzinfo=self._zone) + timedelta(days=day) + self._offset
        return (clock.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)

    def day_of(self, time_ms: int) -> int:
        """Return the day that holds an event time."""
        day = (time_ms - self._offset_ms) // DAY_MS
        while time_ms < self.start_of(day):
            day -= 1
        while time_ms >= self.start_of(day + 1):
            day += 1
        return day

    def text(self, time_ms: int) -> str:
        """Return an event time in ISO 8601, by the zone's clock."""
        return iso_text(time_ms, self._zone)


def iso_text(time_ms: int, zone: tzinfo | None = None) -> str:
    """Return an event time in ISO 8601 with its offset from UTC (no zone: `Z`); beyond the years 2 to 9998 in milliseconds."""
    if not _FIRST * DAY_MS <= time_ms < _LAST * DAY_MS:
        return f"{time_ms} ms"
    time = _EPOCH + timedelta(milliseconds=time_ms)
    units = "milliseconds" if time_ms % 1_000 else "seconds"
    if zone is None:
        return time.replace(tzinfo=None).isoformat(timespec=units) + "Z"
    return time.astimezone(zone).isoformat(timespec=units)
