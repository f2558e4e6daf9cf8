"""A topology with most operators, for five agents. Written with public names only, as a user would."""

from datetime import timedelta
from typing import Any, NamedTuple

from agiledart import (
    BroadcastOperator,
    Context,
    Sink,
    Source,
    Topology,
    col,
    count,
    counted,
    hopping,
    mean_of,
    never,
    session,
    sliding,
    sum_of,
    tumbling,
)


class Reading(NamedTuple):
    """A reading of a sensor."""

    at: int
    room: str
    value: int


class Room(NamedTuple):
    """Known facts about a room."""

    name: str
    floor: int


class Alarms(BroadcastOperator[str, Reading, list[int], tuple[str, int, int], Reading, dict[str, int]]):
    """Readings above the second sensor's latest bound, counted; and a row when the room is quiet again."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def initial_shared(self) -> dict[str, int]:
        return {"bound": 5}

    def on_broadcast(self, record: Reading, shared: dict[str, int]) -> None:
        shared["bound"] = record.value

    def on_record(self, key: str, record: Reading, state: list[int], context: Context[tuple[str, int, int]]) -> None:
        if record.value == 13:
            raise ValueError("unlucky")
        if record.value >= context.shared["bound"]:
            state[0] += 1
            context.emit((key, record.at, state[0]))
            context.timer_at(record.at + 40, name="quiet")
            if state[0] % 5 == 0:
                context.emit_to("fifths", record)

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[tuple[str, int, int]]) -> None:
        context.emit((key, context.time_ms, -state[0]))
        context.forget()


def ms(count: int) -> timedelta:
    """Event times are small."""
    return timedelta(milliseconds=count)


def later(before: Reading, reading: Reading) -> Reading:
    """A reduction in which the order shows."""
    return reading._replace(value=(before.value * 3 + reading.value) % 1_000)


def build(first: Source[Reading], second: Source[Reading], rooms: Source[Room], out: Sink[Any]) -> Topology:
    """Each operator's rows go to the sink as (operator, text of the row)."""
    topology = Topology("operators")
    stream = topology.source("first", first, rows=Reading, event_time=lambda r: r.at, max_out_of_order=ms(4))
    other = topology.source("second", second, rows=Reading, event_time=lambda r: r.at)
    table = topology.reference("rooms", rooms, rows=Room)
    keyed, others = stream.key_by(lambda r: r.room), other.key_by(lambda r: r.room)
    alarms = keyed.connect(other).stateful("alarms", Alarms(), on_error="dead_letter")
    results: dict[str, Any] = {
        "tumbling": keyed.window(tumbling(ms(50), allowed_lateness=ms(4))).aggregate("t", mean_of(lambda r: r.value)),
        "hopping": keyed.window(hopping(ms(60), ms(20))).aggregate("h", sum_of(lambda r: r.value)),
        "session": keyed.window(session(ms(7))).count("s"),
        "counted": keyed.window(counted(7, every=3)).aggregate("c", sum_of(lambda r: r.value)),
        "top": keyed.window(sliding(ms(80))).count("busy").top("busiest", n=2),
        "reduce": keyed.reduce("latest", later, keep="disk"),
        "running": keyed.running("so-far", n=count(), total=col("value").sum(), keep="disk"),
        "distinct": stream.deduplicate("new", by=lambda r: (r.room, r.value), time_to_live=ms(30), keep="disk"),
        "window-join": keyed.window_join("wj", others, tumbling(ms(30)), how="left"),
        "interval-join": keyed.interval_join("ij", others, earliest=ms(-6), latest=ms(3), how="left"),
        "lookup": keyed.lookup("named", table.key_by(lambda room: room.name), how="left"),
        "pattern": keyed.pattern(
            "p", lambda r: r.value < 3, never(lambda r: r.value == 9), lambda r: r.value > 15, within=ms(50)
        ),
        "alarms": alarms,
        "fifths": alarms.side("f", "fifths", rows=Reading),
        "errors": alarms.errors("e").map(lambda letter: letter.record, name="er", returns=Reading),
        "late": stream.late("l"),
    }
    named = [
        rows.map(lambda row, name=name: (name, repr(row)), name=f"{name}-text", returns=tuple[str, str])
        for name, rows in results.items()
    ]
    named[0].union(*named[1:], name="all").sink("out", out)
    return topology
