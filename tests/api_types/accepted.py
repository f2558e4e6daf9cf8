"""Must type-check under mypy strict: types flow through every step and lambda."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from agiledart import (
    BroadcastOperator,
    Change,
    Context,
    DeadLetter,
    Joined,
    KeyedOperator,
    Match,
    Pane,
    Ranking,
    Sink,
    Source,
    Stream,
    Topology,
    counted,
    csv,
    hopping,
    mean_of,
    never,
    records,
    session,
    sliding,
    stdout,
    sum_of,
    tumbling,
)

HOUR = timedelta(hours=1)


class Reading(NamedTuple):
    """A row."""

    at: datetime
    room: str
    celsius: float


class Alarm(NamedTuple):
    """Another row."""

    room: str


def alarm_of(reading: Reading) -> Alarm | None:
    """One or none."""
    return Alarm(reading.room) if reading.celsius > 60 else None


def alarms_of(reading: Reading) -> Iterator[Alarm]:
    """Any number."""
    yield Alarm(reading.room)


class Watch(KeyedOperator[str, Reading, list[float], Alarm]):
    """State by key."""

    def initial(self, key: str) -> list[float]:
        return []

    def on_record(self, key: str, record: Reading, state: list[float], context: Context[Alarm]) -> None:
        state.append(record.celsius)
        context.timer_at(record.at + HOUR)
        context.emit(Alarm(key))


def build(readings: Source[Reading] = csv("readings.csv"), report: Sink[Alarm] = stdout()) -> Topology:  # noqa: B008  values
    """Every step once."""
    topology = Topology("types")
    stream: Stream[Reading] = topology.source(
        "readings", readings, event_time=lambda reading: reading.at, check=lambda reading: reading.room or None
    )
    alarms: Stream[Alarm] = stream.flat_map(alarm_of)
    many: Stream[Alarm] = stream.flat_map(alarms_of)
    alarms.union(many, name="alarms").filter(lambda alarm: alarm.room, name="named").sink("report", report)

    by_room = stream.key_by(lambda reading: reading.room)
    counts: Stream[Change[str, int, Reading]] = by_room.window(sliding(HOUR)).count("count")
    top: Stream[Ranking[Reading, str, int]] = counts.top("top", n=3)
    always: Stream[Ranking[Reading | None, str, int]] = counts.top("always", n=3, emit="on_change")
    rooms: Stream[str] = top.map(lambda ranking: ranking.cause.room, name="room")
    best: Stream[list[str]] = always.map(
        lambda ranking: [entry.key for entry in ranking.entries], name="best", returns=list[str]
    )
    means: Stream[Pane[str, float]] = by_room.window(tumbling(HOUR)).aggregate("mean", mean_of(lambda r: r.celsius))
    sums: Stream[Pane[str, float]] = by_room.window(hopping(2 * HOUR, HOUR)).aggregate(
        "sum", sum_of(lambda r: r.celsius)
    )
    watched: Stream[Alarm] = by_room.stateful("watch", Watch())
    money: Stream[Ranking[Reading, str, int]] = counts.top("money", n=1, rank=lambda value: Decimal(value))
    rooms.sink("sink-1", stdout())
    best.sink("sink-2", stdout())
    means.sink("sink-3", stdout())
    sums.sink("sink-4", stdout())
    watched.sink("sink-5", stdout())
    money.sink("sink-6", stdout())
    return topology


class Bounds(BroadcastOperator[str, Reading, list[float], Alarm, Alarm, list[str]]):
    """A keyed step that receives a broadcast stream."""

    def initial(self, key: str) -> list[float]:
        return []

    def initial_shared(self) -> list[str]:
        return []

    def on_broadcast(self, record: Alarm, shared: list[str]) -> None:
        shared.append(record.room)

    def on_record(self, key: str, record: Reading, state: list[float], context: Context[Alarm]) -> None:
        context.emit(Alarm(key))
        context.emit_to("other", record)


def operators(readings: Source[Reading], alarms: Source[Alarm]) -> Topology:
    """Operators with state."""
    topology = Topology("operators")
    stream = topology.source("readings", readings, event_time=lambda r: r.at, idle_timeout=HOUR, max_ahead=HOUR)
    table = topology.reference("alarms", alarms, rows=Alarm)
    by_room, known = stream.key_by(lambda r: r.room), table.key_by(lambda alarm: alarm.room)
    sessions: Stream[Pane[str, int]] = by_room.window(session(HOUR)).count("sessions")
    tens: Stream[Pane[str, float]] = by_room.window(counted(10)).aggregate("tens", mean_of(lambda r: r.celsius))
    hottest: Stream[Pane[str, Reading]] = by_room.window(tumbling(HOUR)).reduce("hottest", max_reading)
    latest: Stream[Change[str, Reading, Reading]] = by_room.reduce("latest", max_reading)
    most: Stream[Ranking[Reading, str, int]] = by_room.running_count("counts").top("most", n=3)
    once: Stream[Reading] = stream.deduplicate("once", by=lambda r: r.room, time_to_live=HOUR)
    pairs: Stream[Joined[str, Reading, Alarm]] = by_room.window_join("pairs", known, tumbling(HOUR))
    maybe: Stream[Joined[str, Reading, Alarm | None]] = by_room.lookup("maybe", known, how="left")
    near: Stream[Joined[str, Reading, Alarm]] = by_room.interval_join("near", known, earliest=-HOUR, latest=HOUR)
    rises: Stream[Match[str, Reading]] = by_room.pattern(
        "rises", lambda r: r.celsius < 20, never(lambda r: r.room == ""), lambda r: r.celsius > 30, within=HOUR
    )
    bounds = by_room.connect(table).stateful("bounds", Bounds(), on_error="dead_letter")
    rooms: Stream[str] = bounds.map(lambda alarm: alarm.room, name="rooms")
    others: Stream[Reading] = bounds.side("others", "other", rows=Reading)
    late: Stream[Any] = stream.late("late")
    broken: Stream[DeadLetter[Any]] = bounds.errors("broken")
    every: list[Stream[Any]] = [
        sessions, tens, hottest, latest, most, once, pairs, maybe, near, rises, rooms, others, late, broken
    ]  # fmt: skip
    for number, one in enumerate(every):
        one.sink(f"sink-{number}", stdout())
    return topology


def max_reading(before: Reading, reading: Reading) -> Reading:
    """A reduction."""
    return max(before, reading, key=lambda r: r.celsius)


def lists() -> Topology:
    """Lists and callables are sources."""
    topology = Topology("lists")
    topology.source("list", [Alarm("a")], event_time=lambda alarm: len(alarm.room)).sink("a", stdout())
    topology.source("call", lambda: [Alarm("a")], rows=Alarm, event_time=lambda alarm: 0).sink("b", stdout())
    topology.source("records", records([Alarm("a")]), event_time=lambda alarm: 0).sink("c", stdout())
    return topology
