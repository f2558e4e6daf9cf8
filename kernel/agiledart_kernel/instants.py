"""Two kinds of time that must never be mixed: when something happens on this node, and when it happened in the world.

This module reads no clock. Drivers do, and pass the value in.
"""

from datetime import UTC, datetime, timedelta
from typing import NewType

Instant = NewType("Instant", int)
"""Monotonic nanoseconds of one node. They mean nothing on another node."""

Duration = NewType("Duration", int)
"""Nanoseconds between two instants of the same node."""

EventTime = NewType("EventTime", int)
"""Milliseconds since 1970-01-01 UTC at which something happened in the world. Wall times without a zone are read as UTC."""

MICROSECOND = Duration(1_000)
MILLISECOND = Duration(1_000_000)
SECOND = Duration(1_000_000_000)

_EPOCH_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001  times without a zone are UTC by definition
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


def seconds(value: float) -> Duration:
    """Return a duration from seconds, rounded to the nanosecond."""
    return Duration(round(value * SECOND))


def after(start: Instant, delay: Duration) -> Instant:
    """Return the instant `delay` after `start`."""
    return Instant(start + delay)


def event_time(at: datetime | int) -> EventTime:
    """Return the event time of a datetime (no zone: UTC) or of integer milliseconds."""
    if isinstance(at, int):
        return EventTime(at)
    return EventTime((at - (_EPOCH_NAIVE if at.tzinfo is None else _EPOCH)) // _MS)


def milliseconds(span: timedelta) -> int:
    """Return the whole milliseconds of a time span."""
    return span // _MS
