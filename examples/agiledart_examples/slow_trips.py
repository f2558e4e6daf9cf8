"""Topology that flags trips which take longer than usual. Spark learns the usual durations and sends them back by a feed.

    agiledart feed create usual-durations
    agiledart submit agiledart_examples.slow_trips:slow_trips --set "trips=jsonl:trips.jsonl?follow=1"

The log `timed-trips` holds all trips, for Spark to learn from; `slow-trips` those that take more than 1.5 times the usual time
of their route. Each new model replaces the last one while trips flow. `agiledart pipeline demo` runs it.
"""

from typing import Any, NamedTuple

from agiledart import BroadcastOperator, Context, ReadTime, Sink, Source, Topology, feed, log

SLOW_FACTOR = 1.5
FEED = "usual-durations"
TIMED, SLOW = "timed-trips", "slow-trips"


class TimedTrip(NamedTuple):
    """A trip that has just ended. `seconds`: its duration."""

    route: str
    seconds: float
    read_at: ReadTime


class UsualDuration(NamedTuple):
    """Usual duration of a route, as Spark has learned it from trips before `learned_until` (milliseconds since 1970)."""

    route: str
    usual_seconds: float
    trips: int
    learned_until: int
    read_at: ReadTime


class SlowTrip(NamedTuple):
    """A trip that took too long, and the model that says so."""

    route: str
    seconds: float
    usual_seconds: float
    learned_until: int
    read_at: ReadTime


class Usual(NamedTuple):
    """Usual duration of a route, and the end of the time from which it was learned."""

    seconds: float
    learned_until: int


class CompareWithUsual(BroadcastOperator[str, TimedTrip, int, SlowTrip, UsualDuration, dict[str, Usual]]):
    """Compares each trip with the newest model of its route."""

    def initial(self, key: str) -> int:
        """Return the state of a route: it has none of its own."""
        return 0

    def initial_shared(self) -> dict[str, Usual]:
        """Begin without a model; trips then pass unflagged."""
        return {}

    def on_broadcast(self, record: UsualDuration, shared: dict[str, Usual]) -> None:
        """Replace the model of a route by a newer one; models of one batch come in any order."""
        usual = shared.get(record.route)
        if usual is None or record.learned_until > usual.learned_until:
            shared[record.route] = Usual(record.usual_seconds, record.learned_until)

    def on_record(self, key: str, record: TimedTrip, state: int, context: Context[SlowTrip]) -> None:
        """Flag a trip that takes too long."""
        usual = context.shared.get(key)
        if usual is not None and record.seconds > SLOW_FACTOR * usual.seconds:
            context.emit(SlowTrip(key, record.seconds, usual.seconds, usual.learned_until, record.read_at))


def read_ms(row: Any) -> int:
    """Return the time at which a row was read, milliseconds since 1970."""
    return int(row.read_at) // 1_000_000


def slow_trips(
    trips: Source[TimedTrip],
    usual: Source[UsualDuration] = feed(FEED),  # noqa: B008  a connector is a value; nothing is opened by naming it
    timed: Sink[TimedTrip] = log(TIMED),  # noqa: B008  as above
    slow: Sink[SlowTrip] = log(SLOW),  # noqa: B008  as above
) -> Topology:
    """Write all trips to one log and slow ones to another. Both sources follow the clock, so neither waits for the other."""
    topology = Topology("slow-trips")
    durations = topology.source("usual", usual, rows=UsualDuration, event_time=read_ms, clock="wall")
    read = topology.source("trips", trips, rows=TimedTrip, event_time=read_ms, clock="wall")
    read.sink("timed", timed)
    compared = read.key_by(lambda trip: trip.route).connect(durations)
    compared.stateful("compare", CompareWithUsual()).sink("slow", slow)
    return topology
