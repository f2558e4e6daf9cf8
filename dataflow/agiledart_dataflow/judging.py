"""When rows happened, and which of them come too late: many rows at once where nothing is out of order."""

from collections.abc import Callable
from itertools import islice
from operator import le
from typing import Any

from agiledart_kernel.instants import event_time


def times_of(rows: list[Any], time_of: Callable[[Any], Any]) -> list[int]:
    """Event times (ms) of rows; raises what `time_of` raises."""
    times = list(map(time_of, rows))
    kinds = set(map(type, times))
    if len(kinds) == 1 and int in kinds:
        return times
    return [event_time(time) for time in times]


def is_ascending(times: list[int]) -> bool:
    """Is no time before the one in front of it?"""
    return all(map(le, times, islice(times, 1, None)))
