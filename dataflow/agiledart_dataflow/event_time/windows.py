"""Windows in event time. Pure: they compute the windows that a time belongs to.

Source: spec of the dataflow, section 1. All lengths are whole milliseconds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from math import gcd
from typing import ClassVar

from agiledart_dataflow.event_time.zone_days import DAY_MS, MONDAY_MS, ZoneDays, iso_text, zone_named
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_dataflow.user_code.explained_calls import explained_function
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.instants import milliseconds


@dataclass(frozen=True)
class Sliding:
    """Window that holds at every time t the rows of (t − size, t]; a row entering and a row leaving are both changes."""

    size_ms: int
    closes_by_time: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"sliding({self.size_ms} ms)"


@dataclass(frozen=True)
class Panes:
    """Windows [start, start + size) that begin every `every_ms`; equal lengths: tumbling.

    Attributes:
        size_ms, every_ms: lengths.
        lateness_ms: late rows renew the result of a window until so long after its end.
        origin_ms: event time at which one of them begins.
    """

    size_ms: int
    every_ms: int
    lateness_ms: int = 0
    origin_ms: int = 0
    closes_by_time: ClassVar[bool] = True

    def __str__(self) -> str:
        begin = f", from {self.origin_ms} ms" if self.origin_ms else ""
        return f"hopping({self.size_ms} ms, every {self.every_ms} ms{begin}{late_text(self.lateness_ms)})"

    def ends(self, time_ms: int) -> Sequence[int]:
        """Return the ends of all windows that hold a time, earliest first."""
        since = (time_ms - self.origin_ms) % self.every_ms
        last_start = time_ms - since
        first_start = last_start - (self.size_ms - 1 - since) // self.every_ms * self.every_ms
        return range(first_start + self.size_ms, last_start + self.size_ms + 1, self.every_ms)

    def start_of(self, end_ms: int) -> int:
        """Return the start of the window that ends then."""
        return end_ms - self.size_ms

    def bounds(self, time_ms: int) -> tuple[int, int]:
        """Return (first, behind the last) of the times around this one that the same windows hold."""
        step_ms = gcd(self.size_ms, self.every_ms)
        first = time_ms - (time_ms - self.origin_ms) % step_ms
        return first, first + step_ms

    def time_text(self, time_ms: int) -> str:
        """Return a start or an end in ISO 8601."""
        return iso_text(time_ms)

    @property
    def most_at_once(self) -> int:
        """Most windows that a row may be in."""
        return -(-self.size_ms // self.every_ms)


@dataclass(frozen=True)
class LocalPanes(Panes):
    """Windows of whole days by the clock of a zone, or of an equal part of a day.

    `size_ms` and `every_ms` are nominal: a day at which the clock changes is longer or shorter. Windows of several days begin at
    a day whose number since 1970 they divide; whole weeks begin on a Monday. Parts of a day are equally long and begin with it;
    the last one ends with it.

    Attributes:
        zone: name in the IANA database.
        offset_ms: time by the clock at which a day begins.
    """

    zone: str = "UTC"
    offset_ms: int = 0

    def __str__(self) -> str:
        begin = f", from {self.offset_ms} ms" if self.offset_ms else ""
        return (
            f"local({self.size_ms} ms, every {self.every_ms} ms, zone {self.zone}{begin}{late_text(self.lateness_ms)})"
        )

    @cached_property
    def _days(self) -> ZoneDays:
        return ZoneDays(self.zone, self.offset_ms)

    @property
    def _first_day(self) -> int:
        """A day at which a window begins."""
        return MONDAY_MS // DAY_MS if self.every_ms % (7 * DAY_MS) == 0 else 0

    def ends(self, time_ms: int) -> Sequence[int]:
        day = self._days.day_of(time_ms)
        if self.size_ms < DAY_MS:
            return (self._part_of_day(day, time_ms)[1],)
        size, every = self.size_ms // DAY_MS, self.every_ms // DAY_MS
        since = (day - self._first_day) % every
        first_start = day - since - (size - 1 - since) // every * every
        return [self._days.start_of(start + size) for start in range(first_start, day - since + 1, every)]

    def start_of(self, end_ms: int) -> int:
        if self.size_ms < DAY_MS:
            return self._part_of_day(self._days.day_of(end_ms - 1), end_ms - 1)[0]
        return self._days.start_of(self._days.day_of(end_ms) - self.size_ms // DAY_MS)

    def bounds(self, time_ms: int) -> tuple[int, int]:
        day = self._days.day_of(time_ms)
        if self.size_ms < DAY_MS:
            return self._part_of_day(day, time_ms)
        return self._days.start_of(day), self._days.start_of(day + 1)

    def _part_of_day(self, day: int, time_ms: int) -> tuple[int, int]:
        """Return (start, end) of the part of a day that holds a time of it."""
        first, following = self._days.start_of(day), self._days.start_of(day + 1)
        start = time_ms - (time_ms - first) % self.size_ms
        return start, min(start + self.size_ms, following)

    def time_text(self, time_ms: int) -> str:
        return self._days.text(time_ms)


@dataclass(frozen=True)
class Session:
    """Window of a key's rows until none comes for `gap_ms`: [first, last + gap)."""

    gap_ms: int
    closes_by_time: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"session(gap {self.gap_ms} ms)"

    def time_text(self, time_ms: int) -> str:
        """Return a start or an end in ISO 8601."""
        return iso_text(time_ms)


@dataclass(frozen=True)
class Counted:
    """Window of `size` rows of a key, a new window every `every` rows."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"counted({self.size} rows, every {self.every})"

    def time_text(self, time_ms: int) -> str:
        """Return a start or an end in ISO 8601."""
        return iso_text(time_ms)


ClosingWindow = Panes | Session | Counted
"""Window that ends, and then has its result."""

Window = Sliding | ClosingWindow
"""Any window. Its text is its written form in specifications; `read_window` reads it."""

Reader = Callable[["re.Match[str]"], Window]

_WRITTEN: list[tuple[re.Pattern[str], Reader]] = [
    (re.compile(r"sliding\((\d+) ms\)"), lambda match: Sliding(int(match[1]))),
    (
        re.compile(r"hopping\((\d+) ms, every (\d+) ms(?:, from (\d+) ms)?(?:, late by (\d+) ms)?\)"),
        lambda match: Panes(int(match[1]), int(match[2]), int(match[4] or 0), int(match[3] or 0)),
    ),
    (
        re.compile(r"local\((\d+) ms, every (\d+) ms, zone ([^ ,]+)(?:, from (-?\d+) ms)?(?:, late by (\d+) ms)?\)"),
        lambda match: LocalPanes(
            int(match[1]), int(match[2]), int(match[5] or 0), zone=match[3], offset_ms=int(match[4] or 0)
        ),
    ),
    (re.compile(r"session\(gap (\d+) ms\)"), lambda match: Session(int(match[1]))),
    (re.compile(r"counted\((\d+) rows, every (\d+)\)"), lambda match: Counted(int(match[1]), int(match[2]))),
]


def read_window(written: str) -> Window:
    """Return the window that `str` wrote. Raises `TopologyError` for a text that no window of this version has."""
    for form, read in _WRITTEN:
        if match := form.fullmatch(written):
            return read(match)
    raise TopologyError(f"this version of AgileDart knows no window {written!r}")


def late_text(lateness_ms: int) -> str:
    """Return the part of a window's written form that states its lateness."""
    return f", late by {lateness_ms} ms" if lateness_ms else ""


MAX_COUNTED = 1_000_000
"""Most rows of one count window."""


_ZERO = timedelta(0)


def _length(name: str, span: object) -> int:
    if not isinstance(span, timedelta):
        raise call_site().error(f"{name} is a timedelta, such as timedelta(minutes=5), not {span!r}")
    length = milliseconds(span)
    if length <= 0 or timedelta(milliseconds=length) != span:
        raise call_site().error(f"{name} must be a whole number of milliseconds above zero, not {span}")
    return length


def _size(name: str, size: object, units: Mapping[str, float]) -> int:
    """Return a length that is given as a timedelta, or by units."""
    given = {unit: number for unit, number in units.items() if number != 0}
    example = f"timedelta(minutes=5), or by minutes=5{'' if size is None else f', not {size!r}'}"
    if size is None and not given:
        raise call_site().error(f"{name} is missing: give a timedelta, such as {example}")
    if given and size is not None:
        raise call_site().error(f"{name} is given twice, as {size!r} and by {', '.join(given)}")
    if size is not None and not isinstance(size, timedelta):
        raise call_site().error(f"{name} is a timedelta, such as {example}")
    try:
        return _length(name, timedelta(**given) if size is None else size)
    except (TypeError, OverflowError):
        raise call_site().error(f"{name} by {', '.join(given)} must be numbers, not {given!r}") from None


@explained_function
def sliding(
    size: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> Sliding:
    """Return a window of the last `size` before each event: (t − size, t]. Results change when a row enters or leaves.

    The size is a timedelta, or the sum of the units.
    """
    units = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    return Sliding(_size("the size of a sliding window", size, units))


@explained_function
def hopping(
    size: timedelta,
    every: timedelta,
    *,
    zone: str | None = None,
    offset: timedelta = _ZERO,
    allowed_lateness: timedelta = _ZERO,
) -> Panes:
    """Return windows of `size` that begin every `every`; results come when a window closes.

    With `allowed_lateness` a result comes again for each row that is late by no more than that, for its source; without
    it, and beyond it, late rows are left to the source's side output `late`. `zone` and `offset`: as of `tumbling`; with a
    zone both lengths are whole days.
    """
    size_ms, every_ms = _length("the size of a hopping window", size), _length("the hop of a window", every)
    if every_ms > size_ms:
        raise call_site().error(f"windows of {size} that begin every {every} would lose rows between them")
    return _panes(size_ms, every_ms, zone, offset, allowed_lateness)


@explained_function
def tumbling(
    size: timedelta | None = None,
    *,
    weeks: float = 0,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    zone: str | None = None,
    offset: timedelta = _ZERO,
    allowed_lateness: timedelta = _ZERO,
) -> Panes:
    """Return successive windows of `size`; results come when a window closes.

    Windows are counted from 1970 in UTC; whole weeks begin on a Monday.

    Args:
        size: a timedelta; or the sum of `weeks`, `days`, `hours`, `minutes` and `seconds`.
        weeks, days, hours, minutes, seconds: parts of the size.
        zone: count days by the clock of this time zone, such as `Europe/Berlin`, through daylight saving. The size is then whole
            days, or a part of a day that divides it; parts are equally long, and the last one ends with its day.
        offset: windows begin so much later: `timedelta(hours=6)` with a day: from six to six.
        allowed_lateness: as of `hopping`.
    """
    units = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    length = _size("the size of a tumbling window", size, units)
    return _panes(length, length, zone, offset, allowed_lateness)


def _panes(size_ms: int, every_ms: int, zone: str | None, offset: object, allowed_lateness: timedelta) -> Panes:
    lateness = 0 if allowed_lateness == _ZERO else _length("the allowed lateness of a window", allowed_lateness)
    if not isinstance(offset, timedelta) or timedelta(milliseconds=milliseconds(offset)) != offset:
        raise call_site().error(f"the offset of a window is a timedelta of whole milliseconds, not {offset!r}")
    offset_ms = milliseconds(offset)
    if zone is None:
        monday = MONDAY_MS if every_ms % (7 * DAY_MS) == 0 else 0
        return Panes(size_ms, every_ms, lateness, (monday + offset_ms) % every_ms)
    if not isinstance(zone, str):
        raise call_site().error(f"a zone is a text such as 'Europe/Berlin', not {zone!r}")
    try:
        zone_named(zone)
    except TopologyError as error:
        raise call_site().error(str(error)) from None
    is_part = size_ms == every_ms and DAY_MS % size_ms == 0
    if (size_ms % DAY_MS or every_ms % DAY_MS) and not is_part:
        raise call_site().error(
            f"windows by the clock of a zone are whole days, or a part of a day that divides it, not"
            f" {timedelta(milliseconds=size_ms)}"
        )
    if abs(offset_ms) >= DAY_MS:
        raise call_site().error(f"the offset of a window in a zone is less than a day, not {offset}")
    return LocalPanes(size_ms, every_ms, lateness, zone=zone, offset_ms=offset_ms)


@explained_function
def session(
    gap: timedelta | None = None, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> Session:
    """Return a window of the rows of a key until none comes for `gap`; the result comes then.

    The gap is a timedelta, or the sum of the units.
    """
    units = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    return Session(_size("the gap of a session window", gap, units))


@explained_function
def counted(size: int, every: int | None = None) -> Counted:
    """Return windows of `size` rows of a key, a new one every `every` rows (left out: one after the other).

    A window that is not full when the input ends has no result.
    """
    every = size if every is None else every
    if not isinstance(size, int) or not 1 <= size <= MAX_COUNTED:
        raise call_site().error(f"a count window holds 1 to {MAX_COUNTED:,} rows, not {size!r}")
    if not isinstance(every, int) or not 1 <= every <= size:
        raise call_site().error(f"count windows of {size} rows begin every 1 to {size} rows, not {every!r}")
    return Counted(size, every)
