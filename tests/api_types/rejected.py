"""Must not type-check: mypy has to report an error in exactly the lines that end in `# wrong`."""

from datetime import datetime, timedelta
from typing import NamedTuple

from agiledart import Context, KeyedOperator, Sink, Source, Topology, mean_of, sliding, tumbling


class Reading(NamedTuple):
    """A row."""

    at: datetime
    room: str
    celsius: float


class Watch(KeyedOperator[str, Reading, list[float], int]):
    """State by key."""

    def initial(self, key: str) -> list[float]:
        return []

    def on_record(self, key: str, record: Reading, state: list[float], context: Context[int]) -> None:
        context.emit("text")  # wrong
        state.append(record.room)  # wrong


def build(readings: Source[Reading], words: Sink[str]) -> Topology:
    """Mistakes."""
    topology = Topology("mistakes")
    stream = topology.source("a", readings, event_time=lambda reading: reading.when)  # wrong
    topology.source("b", readings, event_time=lambda reading: reading.room)  # wrong
    stream.map(lambda reading: reading.fahrenheit, name="m")  # wrong
    stream.map(lambda reading: reading.celsius, name="m").sink("s", words)  # wrong
    stream.top("t", n=3)  # wrong
    stream.map("m", lambda reading: reading.celsius)  # wrong
    stream.window(sliding(timedelta(minutes=1)))  # wrong
    stream.count("c")  # wrong
    stream.key_by(lambda reading: reading.room).filter(lambda reading: True, name="f")  # wrong
    stream.key_by(lambda reading: reading.room).window(sliding(timedelta(minutes=1))).map(len)  # wrong
    by_floor = stream.map(lambda reading: len(reading.room), name="n").key_by(lambda number: number)
    by_floor.stateful("w", Watch())  # wrong
    stream.key_by(lambda reading: reading.room).count("c")  # wrong
    stream.key_by(lambda reading: reading.room).window(tumbling(60))  # wrong
    panes = stream.key_by(lambda reading: reading.room).window(tumbling(timedelta(minutes=1)))
    panes.aggregate("m", mean_of(lambda reading: reading.room))  # wrong
    panes.count("c").top("t", n=3)  # wrong
    changes = stream.key_by(lambda reading: reading.room).window(sliding(timedelta(minutes=1))).count("c")
    changes.top("t", n=3, ties="oldest")  # wrong
    changes.top("t", 3)  # wrong
    by_room = stream.key_by(lambda reading: reading.room)
    by_room.window_join("j", by_floor, tumbling(timedelta(minutes=1)))  # wrong
    by_room.lookup("l", by_room, how="outer")  # wrong
    by_room.reduce("r", lambda before, reading: reading.celsius)  # wrong
    by_room.pattern("p", lambda reading: reading.when, within=timedelta(minutes=1))  # wrong
    by_room.lookup("k", by_room, how="left").map(lambda pair: pair.right.celsius, name="c")  # wrong
    by_room.distinct("d", keep="tape")  # wrong
    by_room.lookup("t", by_room, keep="tape")  # wrong
    by_room.lookup("u", by_room, how="left", on_error="stop")  # wrong
    changes.top("t", n=3, rank=lambda value: value.room)  # wrong
    return topology
