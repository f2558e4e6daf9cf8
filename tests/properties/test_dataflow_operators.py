"""Every operator against a slow, obvious reference, under any parallelism and any schedule."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import (
    Aggregator,
    Change,
    Context,
    Entry,
    KeyedOperator,
    Pane,
    Ranking,
    Topology,
    all_of,
    collect,
    count_of,
    hopping,
    max_of,
    mean_of,
    min_of,
    sliding,
    sum_of,
)
from agiledart.testing import run_local


class Row(NamedTuple):
    """A test row: event time, key, values."""

    at: int
    key: str
    value: int
    weight: float


KEYS = ["a", "b", "c", "d", "ä", ""]
ROWS = st.lists(
    st.builds(
        Row,
        at=st.integers(0, 60),
        key=st.sampled_from(KEYS),
        value=st.integers(-3, 3),
        weight=st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1e-9]),
    ),
    max_size=40,
).map(lambda rows: sorted(rows, key=lambda row: row.at))
SCHEDULES = st.one_of(st.none(), st.integers(0, 1_000_000))
PARALLELISM = st.integers(1, 4)

QUICK = settings(max_examples=60, deadline=None)


def ms(count: int) -> timedelta:
    """Event times of these tests are milliseconds."""
    return timedelta(milliseconds=count)


def run(build: Callable[[Topology], Any], parallelism: int, seed: int | None) -> list[Any]:
    """Build, run, and return what reached the sink."""
    topology = Topology("property")
    build(topology)
    result = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    assert isinstance(result, list)
    return result


def events(rows: Iterable[Row], size: int) -> list[tuple[int, int, int, Row]]:
    """(time, kind, number, row) of rows entering (kind 1) and leaving (kind 0) a sliding window, in order."""
    numbered = list(enumerate(rows))
    last = numbered[-1][1].at if numbered else 0
    entering = [(row.at, 1, number, row) for number, row in numbered]
    leaving = [(row.at + size, 0, number, row) for number, row in numbered if row.at + size <= last]
    return sorted(entering + leaving, key=lambda event: event[:3])


@given(ROWS, st.integers(1, 30), PARALLELISM, SCHEDULES)
@QUICK
def test_sliding_count_is_the_number_of_rows_in_the_window(
    rows: list[Row], size: int, parallelism: int, seed: int | None
) -> None:
    def build(topology: Topology) -> None:
        topology.source("rows", rows, rows=Row, event_time=lambda row: row.at).key_by(lambda row: row.key).window(
            sliding(ms(size))
        ).count("count").sink("out", collect)

    expected = []
    inside: list[Row] = []
    for _, kind, _, row in events(rows, size):
        if kind:
            inside.append(row)
        else:
            inside.remove(row)
        count = sum(one.key == row.key for one in inside)
        expected.append(Change(row.key, count or None, row if kind else None))
    assert run(build, parallelism, seed) == expected


class Longest(Aggregator[Row, list[int], int]):
    """A custom aggregate that cannot remove: the value of the row that has been there longest."""

    def create(self) -> list[int]:
        return []

    def add(self, state: list[int], row: Row) -> list[int]:
        return state or [row.value]

    def result(self, state: list[int]) -> int:
        return state[0]


@given(ROWS, st.integers(1, 30), PARALLELISM, SCHEDULES)
@QUICK
def test_sliding_aggregates_equal_a_recomputation_from_scratch(
    rows: list[Row], size: int, parallelism: int, seed: int | None
) -> None:
    aggregates = all_of(
        count_of(),
        sum_of(lambda row: row.weight),
        sum_of(lambda row: row.value),
        mean_of(lambda row: row.weight),
        min_of(lambda row: row.value),
        max_of(lambda row: row.value),
        Longest(),
    )

    def build(topology: Topology) -> None:
        topology.source("rows", rows, rows=Row, event_time=lambda row: row.at).key_by(lambda row: row.key).window(
            sliding(ms(size))
        ).aggregate("all", aggregates).sink("out", collect)

    expected = []
    inside: list[Row] = []
    for _, kind, _, row in events(rows, size):
        if kind:
            inside.append(row)
        else:
            inside.remove(row)
        mine = [one for one in inside if one.key == row.key]
        expected.append(Change(row.key, summary(mine) if mine else None, row if kind else None))
    assert run(build, parallelism, seed) == expected


def summary(rows: list[Row]) -> tuple[Any, ...]:
    """The aggregates of these rows; sums in exact arithmetic, rounded once, and a mean is the sum by the number."""
    weights = sum((Fraction(row.weight) for row in rows), Fraction(0))
    values = [row.value for row in rows]
    mean = float(weights) / len(rows)
    return len(rows), float(weights), sum(values), mean, min(values), max(values), rows[0].value


@given(ROWS, st.integers(1, 20), st.integers(1, 20), PARALLELISM, SCHEDULES)
@QUICK
def test_panes_hold_exactly_their_rows_and_close_in_order(
    rows: list[Row], size: int, every: int, parallelism: int, seed: int | None
) -> None:
    every = min(size, every)

    def build(topology: Topology) -> None:
        topology.source("rows", rows, rows=Row, event_time=lambda row: row.at).key_by(lambda row: row.key).window(
            hopping(ms(size), ms(every))
        ).aggregate("sums", sum_of(lambda row: row.value)).sink("out", collect)

    expected = []
    for start in range(-size, 70):
        if start % every:
            continue
        mine = [row for row in rows if start <= row.at < start + size]
        expected += [
            Pane(key, start, start + size, sum(row.value for row in mine if row.key == key))
            for key in dict.fromkeys(row.key for row in mine)
        ]
    assert run(build, parallelism, seed) == expected


def doubled(row: Row) -> list[Row]:
    """A row as many times as its value says."""
    return [row] * max(row.value, 0)


def positive(row: Row) -> Row | None:
    """The row if its value is positive."""
    return row if row.value > 0 else None


@given(ROWS, PARALLELISM, SCHEDULES)
@QUICK
def test_row_steps_keep_order_across_stages_of_any_parallelism(
    rows: list[Row], parallelism: int, seed: int | None
) -> None:
    def build(topology: Topology) -> None:
        stream = topology.source("rows", rows, rows=Row, event_time=lambda row: row.at)
        left = stream.flat_map(doubled).map(lambda row: row.key, name="key")
        right = (
            stream.filter(lambda row: row.at % 2, name="odd").flat_map(positive).map(lambda row: row.key, name="key-2")
        )
        left.union(right, left, name="both").sink("out", collect)

    expected = []
    for row in rows:
        twice = [row.key] * max(row.value, 0)
        expected += twice_then(twice, [row.key] if row.at % 2 and row.value > 0 else [])
    assert run(build, parallelism, seed) == expected


def twice_then(left: list[str], right: list[str]) -> list[str]:
    """The union's order for one source record: by path, then by branch; the right branch has a shorter path."""
    out = right[:]
    for one in left:
        out += [one, one]
    return out


class News(NamedTuple):
    """Output of the session operator."""

    key: str
    rows: int


class Sessions(KeyedOperator[str, Row, list[int], News]):
    """Rows of a key until five milliseconds pass without one; the state is [rows, time of the newest]."""

    def initial(self, key: str) -> list[int]:
        return [0, 0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[News]) -> None:
        state[0] += 1
        state[1] = record.at
        context.timer_at(record.at + 5)

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[News]) -> None:
        if state[0] and context.time_ms == state[1] + 5:
            context.emit(News(key, state[0]))
            context.forget()


@given(ROWS, PARALLELISM, SCHEDULES)
@QUICK
def test_a_keyed_operator_with_timers_finds_sessions(rows: list[Row], parallelism: int, seed: int | None) -> None:
    def build(topology: Topology) -> None:
        topology.source("rows", rows, rows=Row, event_time=lambda row: row.at).key_by(lambda row: row.key).stateful(
            "sessions", Sessions()
        ).sink("out", collect)

    sessions: list[tuple[int, int, str, int]] = []
    for key in KEYS:
        mine = [(number, row) for number, row in enumerate(rows) if row.key == key]
        start = 0
        for i, (number, row) in enumerate(mine):
            if i + 1 == len(mine) or mine[i + 1][1].at >= row.at + 5:
                # Timers of equal time fire in the order of the rows that set them; the first one ends the session.
                first = min(n for n, other in mine[start : i + 1] if other.at == row.at)
                sessions.append((row.at + 5, first, key, i + 1 - start))
                start = i + 1
                assert number >= first
    expected = [News(key, count) for _, _, key, count in sorted(sessions)]
    assert run(build, parallelism, seed) == expected


@given(ROWS, st.integers(1, 30), st.integers(1, 4), st.booleans(), PARALLELISM, SCHEDULES)
@QUICK
def test_top_is_the_sorted_list_at_each_row_that_changes_it(
    rows: list[Row], size: int, n: int, keys_only: bool, parallelism: int, seed: int | None
) -> None:
    def build(topology: Topology) -> None:
        topology.source("rows", rows, rows=Row, event_time=lambda row: row.at).key_by(lambda row: row.key).window(
            sliding(ms(size))
        ).count("count").top("top", n=n, compare="keys" if keys_only else "values").sink("out", collect)

    expected = []
    shown: list[Entry[str, int]] = []
    for number, row in enumerate(rows):
        inside = [(i, one) for i, one in enumerate(rows[: number + 1]) if row.at - size < one.at]
        counts = {key: sum(one.key == key for _, one in inside) for _, one in inside for key in [one.key]}
        newest = {one.key: i for i, one in inside}
        best = [Entry(*item) for item in sorted(counts.items(), key=lambda item: (-item[1], -newest[item[0]]))[:n]]
        if ([key for key, _ in best] != [key for key, _ in shown]) if keys_only else best != shown:
            shown = best
            expected.append(Ranking(row, best))
    assert run(build, parallelism, seed) == expected


@given(ROWS, st.integers(1, 30), st.integers(1, 30), PARALLELISM, SCHEDULES)
@QUICK
def test_windows_of_windows_do_not_depend_on_the_schedule(
    rows: list[Row], size: int, other: int, parallelism: int, seed: int | None
) -> None:
    def build(topology: Topology) -> None:
        stream = topology.source("rows", rows, rows=Row, event_time=lambda row: row.at)
        counts = stream.key_by(lambda row: row.key).window(sliding(ms(size))).count("count")
        again = counts.key_by(lambda change: f"{change.value}").window(sliding(ms(other))).count("again")
        again.union(again, name="twice").top("top", n=3, emit="on_change").sink("out", collect)

    assert run(build, parallelism, seed) == run(build, 1, None)


@given(ROWS, st.integers(0, 20), st.lists(st.integers(-8, 8), min_size=40, max_size=40))
@QUICK
def test_a_source_sorts_within_its_tolerance_and_drops_late_rows(
    rows: list[Row], tolerance: int, noise: list[int]
) -> None:
    shuffled = [row for _, row in sorted(zip(noise, rows, strict=False), key=lambda pair: pair[0] + pair[1].at)]
    topology = Topology("disorder")
    topology.source("rows", shuffled, rows=Row, event_time=lambda row: row.at, max_out_of_order=ms(tolerance)).sink(
        "out", collect
    )
    kept, newest = [], -1
    for row in shuffled:
        if row.at >= newest - tolerance:
            kept.append(row)
        newest = max(newest, row.at)
    assert run_local(topology) == sorted(kept, key=lambda row: row.at)
