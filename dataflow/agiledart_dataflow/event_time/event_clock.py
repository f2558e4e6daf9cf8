"""`EventClock`: event time of a source. It sorts rows within a tolerance, detects late rows, and promises completeness.

A row is late when it happened before the newest seen minus `disorder_ms`. Late rows are counted and left out; put aside, when a
side output takes them; or let in, up to `lateness_ms`, when a window of the topology still accepts them. Rows that are put
aside or let in get the time up to which the source was complete when they came, so that time never runs backwards.

Time advances by the rows that are read. A source can request that it advances by its node's clock: always (`wall`), or while it
reads nothing (`idle_timeout_ms`), so that a silent source does not hold others back.
Source: spec of the dataflow, section 1; decision 0003.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple

from agiledart_dataflow.data.position import END, EXPIRY, Position

Clock = Literal["events", "wall"]

PROMISE_STEP_MS: Final = 20
"""Time between two promises of a source that reads nothing: often enough for people, seldom enough to cost nothing."""

MAX_EARLY: Final = 10_000
"""Most rows from clocks that are too fast that may wait for their time."""


class Late(NamedTuple):
    """Late row among those that are due: its lateness, and whether it goes to the side output."""

    row: Any
    by_ms: int
    aside: bool


class EventClock:
    """Event time of one source.

    Args:
        disorder_ms: rows are sorted within this time.
        lateness_ms: later rows that are let in.
        keeps_late: a side output takes the rows that are too late.
        clock: source that advances time, rows or the node's clock.
        idle_timeout_ms: after so long without a reading, time advances by the clock (0: never).
        max_ahead_ms: a row may advance time at most so far beyond the node's clock (0: no limit).

    Attributes:
        newest: the greatest event time so far, None before the first.
        due: (time, row or `Late`) in order, ready to go.
        sorting: a heap of (time, number, row) that other rows may still precede.
        late: rows left out so far; `early`: rows that wait because their clock is too fast.
        log_time_passed: called before the clock advances time, where that must be logged; while it returns False, time stands
            still.
        replays: the rows were read before: time advances by `reach` only, and by no clock.
    """

    def __init__(
        self,
        disorder_ms: int = 0,
        *,
        lateness_ms: int = 0,
        keeps_late: bool = False,
        clock: Clock = "events",
        idle_timeout_ms: int = 0,
        max_ahead_ms: int = 0,
    ) -> None:
        self.disorder_ms, self.lateness_ms, self.max_ahead_ms = disorder_ms, lateness_ms, max_ahead_ms
        self.newest: int | None = None
        self.due: deque[tuple[int, Any]] = deque()
        self.sorting: list[tuple[int, int, Any]] = []
        self.arrivals = 0
        self.late = self.early = 0
        self.keeps_late = keeps_late
        self.log_time_passed: Callable[[int], bool] | None = None
        self.replays = False
        self._wall = clock == "wall"
        self._idle_timeout_ns = idle_timeout_ms * 1_000_000
        self._last_reading_ns: int | None = None
        self._newest_read: int | None = None

    @property
    def sorts(self) -> bool:
        """True when rows may have to wait for others."""
        return bool(self.disorder_ms or self.max_ahead_ms)

    @property
    def advances_by_clock(self) -> bool:
        """True when time may advance while nothing is read."""
        return self._wall or self._idle_timeout_ns > 0

    def accept(self, time_ms: int, row: Any, wall_ms: int) -> str | None:
        """Queue a row in order of event time. Returns the reason when the row is malformed, else None."""
        newest = self.newest
        if newest is not None and time_ms < (complete := newest - self.disorder_ms):
            by_ms = complete - time_ms
            if by_ms > self.lateness_ms:
                if not self.keeps_late:
                    self.late += 1
                    return None
                self.due.append((complete, Late(row, by_ms, aside=True)))
            else:
                self.due.append((complete, Late(row, by_ms, aside=False)))
            return None
        # A clock that is too fast must not advance time for all other rows, so its advance is capped.
        advance_to = time_ms
        if self.max_ahead_ms and time_ms > wall_ms + self.max_ahead_ms:
            if len(self.sorting) >= MAX_EARLY:
                return "too far ahead"
            advance_to = wall_ms + self.max_ahead_ms
            self.early += 1
        if newest is None or advance_to > newest:
            self.newest = advance_to
        # Without a tolerance no later row can come before this one, so it is due at once.
        if not self.sorts:
            self.due.append((time_ms, row))
            return None
        heappush(self.sorting, (time_ms, self.arrivals, row))
        self.arrivals += 1
        assert self.newest is not None
        self.release(self.newest - self.disorder_ms)
        return None

    def release(self, until_ms: int) -> None:
        """Move sorted rows to `due` that no later row can precede any more."""
        while self.sorting and self.sorting[0][0] <= until_ms:
            time_ms, _, row = heappop(self.sorting)
            self.due.append((time_ms, row))

    def pass_time(self, now_ns: int, wall_ms: int, *, has_read: bool) -> None:
        """Advance time by the clock, where the source requested it."""
        if has_read or self._last_reading_ns is None or self.replays:
            self._last_reading_ns = now_ns
            self._newest_read = self.newest
        if self.replays:
            return
        if self._wall:
            reached = wall_ms
        else:
            silent_ns = now_ns - self._last_reading_ns
            if not self._idle_timeout_ns or silent_ns < self._idle_timeout_ns:
                return
            before = self._newest_read
            reached = wall_ms if before is None else before + silent_ns // 1_000_000
        is_due = self.newest is None or reached >= self.newest + PROMISE_STEP_MS
        if is_due and (self.log_time_passed is None or self.log_time_passed(reached)):
            self.reach(reached)

    def reach(self, newest: int) -> None:
        """Advance time to `newest`; it never goes back."""
        if self.newest is None or newest > self.newest:
            self.newest = newest
            self.release(newest - self.disorder_ms)

    def promise(self) -> Position | None:
        """Return the watermark that holds while nothing is due: rows at that time may still come, none before it."""
        if self.due or self.newest is None:
            return None
        return (self.newest - self.disorder_ms, EXPIRY, END)


def separated(rows: list[Any], order: Any) -> tuple[list[Any], Any, list[Any], list[Any]]:
    """Split late rows from others: (rows, their places, rows that go aside, their places).

    The position of a row that is let in states its lateness.
    """
    main: list[Any] = []
    main_places: list[Any] = []
    aside: list[Any] = []
    aside_places: list[Any] = []
    for row, place in zip(rows, repeat(None) if order is None else order, strict=False):
        if type(row) is not Late:
            main.append(row)
            main_places.append(place)
        elif row.aside:
            aside.append(row.row)
            aside_places.append(place)
        else:
            main.append(row.row)
            main_places.append((*place[:-1], row.by_ms) if type(place) is tuple else place)
    return main, None if order is None else main_places, aside, aside_places
