"""The table of operators: how each is built and what it must give. A new operator adds a line to `CASES`.

Each case gets the rows of two sources, `left` (side 0) and `right` (side 1), and its reference all rows in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import Any

from agiledart import (
    Aggregator,
    BroadcastOperator,
    Context,
    KeyedOperator,
    Stream,
    all_of,
    col,
    count,
    count_of,
    counted,
    hopping,
    max_of,
    mean_of,
    min_of,
    never,
    session,
    sliding,
    sum_of,
    tumbling,
)
from tests.reference import joins, windows
from tests.reference.rows import Placed, Row, in_order, keys_of, timed

Build = Callable[[Stream[Row], Stream[Row]], Stream[Any]]
Reference = Callable[[Sequence[Placed]], list[Any]]


@dataclass(frozen=True)
class Case:
    """One operator: its builder, its reference, and whether it uses the second source."""

    name: str
    build: Build
    reference: Reference
    two: bool = field(default=False)


def ms(count: int) -> timedelta:
    """Event times of these tests are milliseconds."""
    return timedelta(milliseconds=count)


def key(row: Row) -> str:
    """The key of a row."""
    return row.key


def latest(before: Row, row: Row) -> Row:
    """A reduction that shows the order: the newer row with the sum of the values."""
    return row._replace(value=before.value * 2 + row.value)


def reduced(rows: list[Row]) -> Row:
    """`latest` over all rows."""
    so_far = rows[0]
    for row in rows[1:]:
        so_far = latest(so_far, row)
    return so_far


def total(rows: list[Row]) -> int:
    """The sum of the values."""
    return sum(row.value for row in rows)


ALL = all_of(
    count_of(),
    sum_of(lambda row: row.weight),
    sum_of(lambda row: row.value),
    mean_of(lambda row: row.weight),
    min_of(lambda row: row.value),
    max_of(lambda row: row.value),
)


def summary(rows: list[Row]) -> tuple[Any, ...]:
    """`ALL` in exact arithmetic: the sum is rounded once, the mean is that sum by the count."""
    weights = sum((Fraction(row.weight) for row in rows), Fraction(0))
    values = [row.value for row in rows]
    mean = float(weights) / len(rows)
    return len(rows), float(weights), sum(values), mean, min(values), max(values)


def is_low(row: Row) -> bool:
    """First row of the patterns."""
    return row.value < 0


def is_high(row: Row) -> bool:
    """Last row of the patterns."""
    return row.value > 1


def is_zero(row: Row) -> bool:
    """Output that must not appear."""
    return row.value == 0


class Visits(KeyedOperator[str, Row, list[int], tuple[str, int, int]]):
    """(key, visits in a row, time) when a key was quiet for 7 ms; a zero forgets all, a negative value cancels the timer."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int, int]]) -> None:
        if record.value == 0:
            context.forget()
            return
        state[0] += 1
        context.timer_at(context.time_ms + 7, [record.value], name="quiet")
        if record.value < 0:
            context.cancel_timer("quiet")
        if record.value == 3:
            context.timer_at(context.time_ms + 2, name="quiet")  # an earlier time than the one before is taken, too
            context.emit_to("threes", (key, context.time_ms))

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[tuple[str, int, int]]) -> None:
        context.emit((key, state[0], payload[0] if payload else -9))
        state[0] = 0


def visits(rows: Sequence[Placed]) -> list[Any]:
    """`Visits`, one key after the other."""
    out = []
    for name in keys_of(rows):
        count, due = 0, None
        for one in [*(one for one in rows if one.row.key == name), None]:
            if due is not None and (one is None or due[0][0] <= one.row.at):
                out.append((due[0], (name, count, due[1])))
                count, due = 0, None
            if one is None:
                break
            value = one.row.value
            if value == 0:
                count, due = 0, None
                continue
            count += 1
            due = (timed(one.row.at + 7, one), value)
            if value < 0:
                due = None
            if value == 3:
                due = (timed(one.row.at + 2, one), -9)
    return in_order(out)


def threes(rows: Sequence[Placed]) -> list[Any]:
    """Side output of `Visits`."""
    return [(one.row.key, one.row.at) for one in rows if one.row.value == 3]


class Tally(KeyedOperator[str, Row, list[int], tuple[str, int]]):
    """Counts the rows of a key; used with a time to live."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int]]) -> None:
        state[0] += 1
        context.emit((key, state[0]))


def tallies(rows: Sequence[Placed], time_to_live: int) -> list[Any]:
    """Counts that begin anew after a pause of `time_to_live`."""
    out = []
    for number, one in enumerate(rows):
        count, newest = 1, one.row.at
        for other in reversed(rows[:number]):
            if other.row.key == one.row.key:
                if newest - other.row.at >= time_to_live:
                    break
                count, newest = count + 1, other.row.at
        out.append((one.row.key, count))
    return out


class Above(BroadcastOperator[str, Row, list[int], tuple[str, int, int], Row, dict[str, int]]):
    """Rows whose value is at least the latest broadcast bound, and how many there were of the key."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def initial_shared(self) -> dict[str, int]:
        return {}

    def on_broadcast(self, record: Row, shared: dict[str, int]) -> None:
        shared["bound"] = record.value

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int, int]]) -> None:
        if record.value >= context.shared.get("bound", 0):
            state[0] += 1
            context.emit((key, record.value, state[0]))
            context.timer_at(context.time_ms + 3)

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[tuple[str, int, int]]) -> None:
        context.emit((key, context.shared.get("bound", 0), -1))


def above(rows: Sequence[Placed]) -> list[Any]:
    """`Above` by looking at all rows before each; a timer sees the bounds broadcast before its position."""
    out: list[tuple[tuple[int, ...], Any]] = []
    counts: dict[str, int] = {}

    def bound(place: tuple[int, ...]) -> int:
        told = [one.row.value for one in rows if one.row.side and one.place < place]
        return told[-1] if told else 0

    for one in rows:
        if not one.row.side and one.row.value >= bound(one.place):
            counts[one.row.key] = counts.get(one.row.key, 0) + 1
            out.append((one.place, (one.row.key, one.row.value, counts[one.row.key])))
            place = timed(one.row.at + 3, one)
            out.append((place, (one.row.key, bound(place), -1)))
    return in_order(out)


class Longest(Aggregator[Row, list[Row], Row]):
    """A custom aggregate that cannot remove: the row that has been there longest."""

    def create(self) -> list[Row]:
        return []

    def add(self, state: list[Row], row: Row) -> list[Row]:
        return state or [row]

    def result(self, state: list[Row]) -> Row:
        return state[0]


WIDE = all_of(min_of(lambda row: (row.value, row.key)), max_of(lambda row: row.key), Longest())


def wide(rows: list[Row]) -> tuple[Any, ...]:
    """`WIDE` in plain words."""
    return min((row.value, row.key) for row in rows), max(row.key for row in rows), rows[0]


def few(rows: list[Row]) -> tuple[int, int, float]:
    """Rows, sum of values, least weight."""
    return len(rows), total(rows), min(row.weight for row in rows)


def in_turn(rows: list[Row]) -> tuple[Any, ...]:
    """Named running values: sums are added up in the order of the rows."""
    total = 0.0
    for row in rows:
        total += row.weight
    values = [row.value for row in rows]
    return (
        len(rows),
        total,
        sum(value * 3 for value in values) / len(rows),
        min(row.weight for row in rows),
        max(values),
    )


LEAST: Any = min_of(lambda row: (row.value, row.key))


def least(rows: list[Row]) -> tuple[int, str]:
    """`LEAST` in plain words."""
    return min((row.value, row.key) for row in rows)


CASES = [
    *[
        Case(
            f"{shape}, {what}",
            lambda a, b, size=size, every=every, of=of: (
                a.key_by(key).window(hopping(ms(size), ms(every))).aggregate("x", of)
            ),
            lambda rows, size=size, every=every, value=value: windows.panes(rows, size, every, value),
        )
        for shape, size, every in (("tumbling", 6, 6), ("hopping", 7, 3))
        for what, of, value in (("usual", ALL, summary), ("of any type", WIDE, wide), ("of pairs", LEAST, least))
    ],
    *[
        Case(
            f"windows on disk, every {every}",
            lambda a, b, every=every: a.key_by(key).window(hopping(ms(6), ms(every))).aggregate("x", ALL, keep="disk"),
            lambda rows, every=every: windows.panes(rows, 6, every, summary),
        )
        for every in (6, 2)
    ],
    Case(
        "sliding",
        lambda a, b: a.key_by(key).window(sliding(ms(9))).aggregate("x", WIDE),
        lambda rows: windows.sliding(rows, 9, wide),
    ),
    Case(
        "top",
        lambda a, b: a.key_by(key).window(sliding(ms(9))).count("c").top("x", n=2),
        lambda rows: windows.top(rows, 9, 2),
    ),
    Case(
        "sessions",
        lambda a, b: a.key_by(key).window(session(ms(5))).aggregate("x", ALL),
        lambda rows: windows.sessions(rows, 5, summary),
    ),
    Case(
        "session counts",
        lambda a, b: a.key_by(key).window(session(ms(1))).count("x"),
        lambda rows: windows.sessions(rows, 1, len),
    ),
    Case(
        "counted, one after the other",
        lambda a, b: a.key_by(key).window(counted(3)).aggregate("x", ALL),
        lambda rows: windows.counted(rows, 3, 3, summary),
    ),
    Case(
        "counted, overlapping",
        lambda a, b: a.key_by(key).window(counted(5, every=2)).aggregate("x", ALL),
        lambda rows: windows.counted(rows, 5, 2, summary),
    ),
    Case(
        "counted, each row",
        lambda a, b: a.key_by(key).window(counted(2, every=1)).reduce("x", latest),
        lambda rows: windows.counted(rows, 2, 1, reduced),
    ),
    Case("reduce", lambda a, b: a.key_by(key).reduce("x", latest), lambda rows: windows.running(rows, reduced)),
    Case(
        "reduce in windows",
        lambda a, b: a.key_by(key).window(hopping(ms(8), ms(4))).reduce("x", latest),
        lambda rows: windows.panes(rows, 8, 4, reduced),
    ),
    Case("running", lambda a, b: a.key_by(key).running("x", ALL), lambda rows: windows.running(rows, summary)),
    Case(
        "running count of two streams",
        lambda a, b: a.union(b, name="u").key_by(key).running_count("x"),
        lambda rows: windows.running(rows, len),
        two=True,
    ),
    *[
        Case(
            f"named running values{what}",
            lambda a, b, stream=stream, by=by: (
                stream(a, b)
                .key_by(by)
                .running(
                    "x",
                    rows=count(),
                    sum=col("weight").sum(),
                    mean=(col("value") * 3).mean(),
                    least=col("weight").min(),
                    greatest=col("value").max(),
                )
            ),
            lambda rows: [(*change.cause, *change.value) for change in windows.running(rows, in_turn)],
            two=two,
        )
        for what, by, stream, two in (
            ("", col("key"), lambda a, b: a, False),
            (" of two streams", key, lambda a, b: a.union(b, name="u"), True),
            (" behind steps", col("key"), lambda a, b: a.flat_map(lambda row: [row], "same", returns=Row), False),
        )
    ],
    *[
        Case(
            f"named results of {what}",
            lambda a, b, window=window: (
                a.key_by(col("key"))
                .window(window)
                .aggregate("x", rows=count(), sum=col("value").sum(), least=col("weight").min())
            ),
            lambda rows, panes=panes: [(*pane[:3], *pane.value) for pane in panes(rows)],
        )
        for what, window, panes in (
            ("sessions", session(ms(5)), lambda rows: windows.sessions(rows, 5, few)),
            ("counted windows", counted(3, every=2), lambda rows: windows.counted(rows, 3, 2, few)),
            ("hopping windows", hopping(ms(7), ms(3)), lambda rows: windows.panes(rows, 7, 3, few)),
            ("patient windows", tumbling(ms(7), allowed_lateness=ms(3)), lambda rows: windows.panes(rows, 7, 7, few)),
        )
    ],
    Case(
        "top of running counts",
        lambda a, b: a.key_by(key).running_count("c").top("x", n=2),
        lambda rows: windows.top(rows, 1_000_000, 2),
    ),
    Case("distinct", lambda a, b: a.distinct("x"), lambda rows: windows.first_of_each(rows, lambda row: row)),
    Case(
        "distinct by key",
        lambda a, b: a.key_by(key).distinct("x"),
        lambda rows: windows.first_of_each(rows, key),
    ),
    Case(
        "deduplicate",
        lambda a, b: a.deduplicate("x", by=lambda row: (row.key, row.value), time_to_live=ms(6)),
        lambda rows: windows.first_of_each(rows, lambda row: (row.key, row.value), 6),
    ),
    *[
        Case(
            f"window join, {how}",
            lambda a, b, how=how: a.key_by(key).window_join("x", b.key_by(key), tumbling(ms(7)), how=how),
            lambda rows, how=how: joins.window_join(rows, 7, 7, how),
            two=True,
        )
        for how in ("inner", "left", "outer")
    ],
    Case(
        "window join, hopping",
        lambda a, b: a.key_by(key).window_join("x", b.key_by(key), hopping(ms(6), ms(2))),
        lambda rows: joins.window_join(rows, 6, 2, "inner"),
        two=True,
    ),
    *[
        Case(
            f"interval join, {earliest} to {latest_ms}, {how}",
            lambda a, b, first=earliest, last=latest_ms, how=how: a.key_by(key).interval_join(
                "x", b.key_by(key), earliest=ms(first), latest=ms(last), how=how
            ),
            lambda rows, first=earliest, last=latest_ms, how=how: joins.interval_join(rows, first, last, how),
            two=True,
        )
        for earliest, latest_ms, how in ((-3, 4, "inner"), (2, 5, "inner"), (-4, 0, "left"), (-6, -2, "left"))
    ],
    *[
        Case(
            f"lookup, {how}",
            lambda a, b, how=how: a.key_by(key).lookup("x", b.key_by(key), how=how),
            lambda rows, how=how: joins.lookup(rows, how),
            two=True,
        )
        for how in ("inner", "left")
    ],
    Case(
        "pattern",
        lambda a, b: a.key_by(key).pattern("x", is_low, is_high, within=ms(9)),
        lambda rows: joins.pattern(rows, [(True, is_low), (True, is_high)], 9),
    ),
    Case(
        "pattern with something between",
        lambda a, b: a.key_by(key).pattern("x", is_low, never(is_zero), is_high, is_low, within=ms(20)),
        lambda rows: joins.pattern(rows, [(True, is_low), (False, is_zero), (True, is_high), (True, is_low)], 20),
    ),
    Case(
        "absence",
        lambda a, b: a.key_by(key).pattern("x", is_low, never(is_high), within=ms(4)),
        lambda rows: joins.pattern(rows, [(True, is_low), (False, is_high)], 4),
    ),
    Case(
        "sequence, then absence",
        lambda a, b: a.key_by(key).pattern("x", is_low, is_high, never(is_zero), within=ms(12)),
        lambda rows: joins.pattern(rows, [(True, is_low), (True, is_high), (False, is_zero)], 12),
    ),
    Case("named timers", lambda a, b: a.key_by(key).stateful("x", Visits()), visits),
    Case(
        "rows beside",
        lambda a, b: a.key_by(key).stateful("x", Visits()).side("y", "threes", rows=tuple[str, int]),
        threes,
    ),
    Case(
        "time to live",
        lambda a, b: a.key_by(key).stateful("x", Tally(), time_to_live=ms(6)),
        lambda rows: tallies(rows, 6),
    ),
    Case("broadcast", lambda a, b: a.key_by(key).connect(b).stateful("x", Above()), above, two=True),
]
