"""When rows happened, and whether they come in order: for many rows at once, in C where nothing is unusual."""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.instants import event_time


def no_time(row: Any) -> int:
    """The event time of rows that have none: all happen at once, so nothing is ever late."""
    return 0


def times_of(rows: list[Any], time_of: Callable[[Any], Any]) -> list[int]:
    """Event times (ms) of rows, at least one; raises what `time_of` raises."""
    if time_of is no_time:
        return [0] * len(rows)
    times = list(map(time_of, rows))
    if len(times) < len(rows):
        raise StopIteration  # `time_of` raised it; for `map` that is only its end
    if type(times[0]) is int:
        try:
            if type(sum(times)) is int:
                return times
        except TypeError:  # not all of them are numbers
            pass
    return [event_time(time) for time in times]


def is_ascending(times: list[int]) -> bool:
    """Is no time before the one in front of it? Sorting what is sorted is the fastest way to see it."""
    return times == sorted(times)
