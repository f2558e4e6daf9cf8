"""Windows in event time. Pure: they compute the windows that a time belongs to.

Source: spec of the dataflow, section 1. All lengths are whole milliseconds.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

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
    """Windows [start, start + size) that begin every `every_ms`, counted from 1970; equal lengths: tumbling.

    Late rows renew the result of a window until `lateness_ms` after its end.
    """

    size_ms: int
    every_ms: int
    lateness_ms: int = 0
    closes_by_time: ClassVar[bool] = True

    def __str__(self) -> str:
        late = f", late by {self.lateness_ms} ms" if self.lateness_ms else ""
        return f"hopping({self.size_ms} ms, every {self.every_ms} ms{late})"

    def ends(self, time_ms: int) -> range:
        """Return the ends of all windows that hold a time, earliest first."""
        last_start = time_ms - time_ms % self.every_ms
        first_start = last_start - (self.size_ms - 1 - time_ms % self.every_ms) // self.every_ms * self.every_ms
        return range(first_start + self.size_ms, last_start + self.size_ms + 1, self.every_ms)

    @property
    def most_at_once(self) -> int:
        """Most windows that a row may be in."""
        return -(-self.size_ms // self.every_ms)


@dataclass(frozen=True)
class Session:
    """Window of a key's rows until none comes for `gap_ms`: [first, last + gap)."""

    gap_ms: int
    closes_by_time: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"session(gap {self.gap_ms} ms)"


@dataclass(frozen=True)
class Counted:
    """Window of `size` rows of a key, a new window every `every` rows."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"counted({self.size} rows, every {self.every})"


ClosingWindow = Panes | Session | Counted
"""Window that ends, and then has its result."""

Window = Sliding | ClosingWindow
"""Any window. Its text is its written form in specifications; `read_window` reads it."""

_WRITTEN: tuple[tuple[re.Pattern[str], type[Window]], ...] = (
    (re.compile(r"sliding\((\d+) ms\)"), Sliding),
    (re.compile(r"hopping\((\d+) ms, every (\d+) ms(?:, late by (\d+) ms)?\)"), Panes),
    (re.compile(r"session\(gap (\d+) ms\)"), Session),
    (re.compile(r"counted\((\d+) rows, every (\d+)\)"), Counted),
)


def read_window(written: str) -> Window:
    """Return the window that `str` wrote. Raises `TopologyError` for a text that no window of this version has."""
    for form, kind in _WRITTEN:
        if match := form.fullmatch(written):
            return kind(*(int(number) for number in match.groups() if number is not None))
    raise TopologyError(f"this version of AgileDart knows no window {written!r}")


MAX_COUNTED = 1_000_000
"""Most rows of one count window."""

_NO_LATENESS = timedelta(0)


def _length(name: str, span: timedelta) -> int:
    length = milliseconds(span)
    if length <= 0 or timedelta(milliseconds=length) != span:
        raise TopologyError(f"{name} must be a whole number of milliseconds above zero, not {span}")
    return length


def sliding(size: timedelta) -> Sliding:
    """Return a window of the last `size` before each event: (t − size, t]. Results change when a row enters or leaves."""
    return Sliding(_length("the size of a sliding window", size))


def hopping(size: timedelta, every: timedelta, *, allowed_lateness: timedelta = _NO_LATENESS) -> Panes:
    """Return windows of `size` that begin every `every`; results come when a window closes.

    With `allowed_lateness` a result comes again for each row that is late by no more than that, for its source; without
    it, and beyond it, late rows are left to the source's side output `late`.
    """
    window = Panes(
        _length("the size of a hopping window", size),
        _length("the hop of a window", every),
        _lateness(allowed_lateness),
    )
    if window.every_ms > window.size_ms:
        raise TopologyError(f"windows of {size} that begin every {every} would lose rows between them")
    return window


def tumbling(size: timedelta, *, allowed_lateness: timedelta = _NO_LATENESS) -> Panes:
    """Return successive windows of `size`; results come when a window closes. `allowed_lateness`: as of `hopping`."""
    length = _length("the size of a tumbling window", size)
    return Panes(length, length, _lateness(allowed_lateness))


def session(gap: timedelta) -> Session:
    """Return a window of the rows of a key until none comes for `gap`; the result comes then."""
    return Session(_length("the gap of a session window", gap))


def counted(size: int, every: int | None = None) -> Counted:
    """Return windows of `size` rows of a key, a new one every `every` rows (left out: one after the other).

    A window that is not full when the input ends has no result.
    """
    every = size if every is None else every
    if not isinstance(size, int) or not 1 <= size <= MAX_COUNTED:
        raise TopologyError(f"a count window holds 1 to {MAX_COUNTED:,} rows, not {size!r}")
    if not isinstance(every, int) or not 1 <= every <= size:
        raise TopologyError(f"count windows of {size} rows begin every 1 to {size} rows, not {every!r}")
    return Counted(size, every)


def _lateness(span: timedelta) -> int:
    return 0 if span == _NO_LATENESS else _length("the allowed lateness of a window", span)
