"""`Pacer`: release of rows at the speed of their event times, or at once. And stamps with the time at which rows were read."""

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any

from agiledart_dataflow.data.schema import is_named_tuple, read_time_index
from agiledart_kernel.errors import ConfigurationError


class Pacer:
    """Limiter of the queued rows that may go now.

    Args:
        source: its name, for messages.
        speed: factor by which event time passes faster than real time; "": rows go as fast as they can.

    Raises:
        ConfigurationError: the speed is not a number above zero.

    Attributes:
        reached: (wall time in ns, event time in ms) at the last call: part of a source's position in its input. A pacer that gets
            this from an earlier one continues as if no time had been lost: rows that were due meanwhile go at once. A clock that
            was set back meanwhile loses only that.
    """

    def __init__(self, source: str, speed: str) -> None:
        self._speed = _speed(source, speed)
        self._base: tuple[int, int] | None = None
        self.reached: tuple[int, int] | None = None

    @property
    def paces(self) -> bool:
        """True when rows wait for their time."""
        return self._speed is not None

    @property
    def has_begun(self) -> bool:
        """True when a row has gone, here or in the pacer whose position this one got: event times have instants since then."""
        return self._base is not None or self.reached is not None

    def stop(self) -> None:
        """Let rows go as fast as they can from now on."""
        self._speed = None

    def ready(self, due: deque[tuple[int, Any]], now_ns: int, wall_ns: int, max_rows: int) -> tuple[int, int | None]:
        """Return (number of these rows that may go now, time when the next may); `now_ns` is monotonic, `wall_ns` since 1970."""
        if self._speed is None or not due:
            return min(len(due), max_rows), None
        if self._base is None:
            self._base = self._begun(now_ns, wall_ns, due[0][0])
        start_ns, start_ms = self._base
        self.reached = (wall_ns, start_ms + int((now_ns - start_ns) * self._speed / 1_000_000))
        count = 0
        for time_ms, _ in due:
            due_ns = self.due_ns(time_ms, now_ns, wall_ns)
            if due_ns > now_ns:
                return count, due_ns
            count += 1
            if count >= max_rows:
                break
        return count, None

    def due_ns(self, time_ms: int, now_ns: int, wall_ns: int) -> int:
        """Return the monotonic instant at which a row of this event time may go; `now_ns` when nothing waits for its time."""
        if self._speed is None:
            return now_ns
        if self._base is None:
            self._base = self._begun(now_ns, wall_ns, time_ms)
        start_ns, start_ms = self._base
        return start_ns + int((time_ms - start_ms) * 1_000_000 / self._speed)

    def _begun(self, now_ns: int, wall_ns: int, first_ms: int) -> tuple[int, int]:
        """Return (monotonic time, event time) to count from."""
        if self.reached is None:
            return now_ns, first_ms
        then_ns, reached_ms = self.reached
        return now_ns - max(0, wall_ns - then_ns), reached_ms


def _speed(name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise ConfigurationError(
            f"source {name}: speed={text} must be a number above zero (60: a minute of data per second)"
        )
    return speed


def stamper(row_type: Any) -> Callable[[Any, int], Any] | None:
    """Return the function (row, wall time) → the row with its `ReadTime` filled in; None for rows without one."""
    index = read_time_index(row_type)
    if index is None:
        return None
    if is_named_tuple(row_type):
        make = row_type._make
        return lambda row, wall_ns: make((*row[:index], wall_ns, *row[index + 1 :]))
    name = dataclasses.fields(row_type)[index].name
    return lambda row, wall_ns: dataclasses.replace(row, **{name: wall_ns})
