"""Built-in aggregates give everywhere what they give in a tumbling window in memory, with rows at which one of them raises, too."""

from collections.abc import Callable
from datetime import timedelta
from itertools import accumulate
from math import inf, nan
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agiledart import (
    Aggregator,
    Stream,
    Topology,
    all_of,
    collect,
    count_of,
    counted,
    max_of,
    mean_of,
    min_of,
    session,
    sliding,
    sum_of,
    tumbling,
)
from agiledart_dataflow.aggregation.aggregators import CompositeAggregator, Extreme, RemovableExtreme, Sum, with_remove
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row with two values, of which any may be missing."""

    at: int
    key: str
    one: float | None
    two: float | None


def ms(span: int) -> timedelta:
    """Event times are milliseconds."""
    return timedelta(milliseconds=span)


def key(row: Row) -> str:
    """The key of a row."""
    return row.key


def built_in() -> Aggregator[Row, Any, Any]:
    """All of them; the state change stands before, between and behind calls that may raise."""
    return all_of(
        min_of(lambda row: row.one),
        all_of(count_of(), max_of(lambda row: row.one)),
        sum_of(lambda row: row.two),
        mean_of(lambda row: row.two),
        max_of(lambda row: row.two),
    )


WIDE = 100
"""Milliseconds, more than all rows take."""

Build = Callable[[Stream[Row]], Stream[Any]]

WHOLE: dict[str, Build] = {
    "memory": lambda s: s.key_by(key).window(tumbling(ms(WIDE))).aggregate("all", built_in(), on_error="skip"),
    "disk": lambda s: (
        s.key_by(key).window(tumbling(ms(WIDE))).aggregate("all", built_in(), on_error="skip", keep="disk")
    ),
    "lateness": lambda s: (
        s.key_by(key).window(tumbling(ms(WIDE), allowed_lateness=ms(1))).aggregate("all", built_in(), on_error="skip")
    ),
    "session": lambda s: s.key_by(key).window(session(ms(WIDE))).aggregate("all", built_in(), on_error="skip"),
    "sliding": lambda s: s.key_by(key).window(sliding(ms(WIDE))).aggregate("all", built_in(), on_error="skip"),
    "running": lambda s: s.key_by(key).running("all", built_in(), on_error="skip"),
}
"""Ways to aggregate all rows of a key; the last value is that of them all."""


def last_values(build: Build, rows: list[Row]) -> dict[str, str]:
    """The last value of each key, as text: NaN is like NaN, and 0.0 not like -0.0."""
    topology = Topology("aggregates")
    build(topology.source("rows", rows, rows=Row, event_time=lambda row: row.at)).sink("out", collect)
    return {one.key: repr(one.value) for one in run_topology(topology).collected["out"]}


VALUES = [None, 0.0, -0.0, 1.5, -99.0, 0.1, 7.0, nan, inf, -inf, 1e308, -1e308]


def rows_of(values: list[Any]) -> st.SearchStrategy[list[Row]]:
    """Rows in order of time, of two keys."""
    value = st.sampled_from(values)
    given_values = st.lists(st.tuples(st.sampled_from("ab"), value, value), max_size=12)
    return given_values.map(lambda found: [Row(at, *one) for at, one in enumerate(found)])


@pytest.mark.parametrize("way", [way for way in WHOLE if way != "memory"])
@given(rows=rows_of(VALUES))
@example(rows=[Row(0, "a", 5.0, 1.0), Row(1, "a", -99.0, None), Row(2, "a", 7.0, 2.0)])
@example(rows=[Row(0, "a", None, 1.0), Row(1, "a", 3.0, 1.0), Row(2, "a", 4.0, 1.0)])
@example(rows=[Row(0, "a", 3.0, 3.0), Row(1, "a", nan, nan), Row(2, "a", 1.0, 1.0)])
@example(rows=[Row(0, "a", 1.0, 1.0), Row(1, "a", inf, inf)])
@example(rows=[Row(0, "a", 1.0, 1e308), Row(1, "a", 1.0, 1e308)])
@settings(max_examples=30, deadline=None)
def test_every_implementation_equals_a_window_in_memory(way: str, rows: list[Row]) -> None:
    assert last_values(WHOLE[way], rows) == last_values(WHOLE["memory"], rows)


def test_a_count_window_is_filled_by_rows_that_do_not_raise() -> None:
    rows = [Row(0, "a", None, 1.0), Row(1, "a", 3.0, 1.0), Row(2, "a", -9.0, None), Row(3, "a", 4.0, 2.0)]
    found = last_values(lambda s: s.key_by(key).window(counted(2)).aggregate("all", built_in(), on_error="skip"), rows)
    assert found == {"a": "(3.0, (2, 4.0), 3.0, 1.5, 2.0)"}


class Fussy(Aggregator[Row, list[int], int]):
    """Counts its rows in place and has no result for two."""

    def create(self) -> list[int]:
        return [0]

    def add(self, state: list[int], row: Row) -> list[int]:
        state[0] += 1
        return state

    def remove(self, state: list[int], row: Row) -> list[int]:
        state[0] -= 1
        return state

    def result(self, state: list[int]) -> int:
        if state[0] == 2:
            raise ValueError("two have no result")
        return state[0]


def test_a_row_that_fails_a_sliding_window_leaves_no_value_behind() -> None:
    rows = [Row(0, "a", 5.0, 0.0), Row(1, "a", -99.0, 0.0), Row(12, "a", 7.0, 0.0)]
    both = all_of(min_of(lambda row: row.one), Fussy())
    found = last_values(lambda s: s.key_by(key).window(sliding(ms(20))).aggregate("x", both, on_error="skip"), rows)
    assert found == {"a": "(5.0, 1)"}


@given(rows=rows_of([value for value in VALUES if value is not None]), keep=st.integers(1, 4))
@settings(deadline=None)
def test_removed_rows_leave_no_trace(rows: list[Row], keep: int) -> None:
    aggregator = with_remove(built_in())
    state = aggregator.create()
    for number, row in enumerate(rows):
        state = aggregator.add(state, row)
        if number >= keep:
            state = aggregator.remove(state, rows[number - keep])
        state = aggregator.from_plain(aggregator.to_plain(state))
        inside = rows[max(0, number + 1 - keep) : number + 1]
        again = list(accumulate(inside, built_in().add, initial=built_in().create()))[-1]
        assert repr(aggregator.result(state)) == repr(built_in().result(again))


def test_a_sum_saved_before_infinities_were_counted_continues() -> None:
    total: Sum[float] = Sum(lambda value: value)
    state = total.from_plain([hex(3 << 1074), 1])
    assert total.result(total.add(state, 0.5)) == 3.5
    assert total.to_plain(state) == [hex(3 << 1074), 1]


def test_only_the_minimum_is_kept_when_no_row_leaves() -> None:
    least: Extreme[int, int] = Extreme(lambda value: value, 0)
    state = least.create()
    for value in range(100, 0, -1):
        state = least.add(state, value)
    assert state == [1]
    assert least.add([3, 5, 8], 4) == [3]  # a snapshot of old


def test_only_fully_removable_aggregates_keep_values_for_removal() -> None:
    able, unable = with_remove(all_of(min_of(key), count_of())), with_remove(all_of(min_of(key), Latest()))
    assert isinstance(able, CompositeAggregator)
    assert isinstance(unable, CompositeAggregator)
    assert (able.can_remove, type(able.parts[0])) == (True, RemovableExtreme)
    assert (unable.can_remove, type(unable.parts[0])) == (False, Extreme)


class Latest(Aggregator[Row, list[int], int]):
    """Cannot remove."""

    def create(self) -> list[int]:
        return []

    def add(self, state: list[int], row: Row) -> list[int]:
        return [row.at]

    def result(self, state: list[int]) -> int:
        return state[0]
