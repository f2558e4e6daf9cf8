"""Error policies of steps with state: rows that raise are as if they had never been there, whatever the step and parallelism."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import (
    Aggregator,
    Stream,
    Topology,
    UserCodeError,
    col,
    collect,
    count,
    counted,
    hopping,
    max_of,
    mean_of,
    never,
    session,
    sliding,
    sum_of,
    tumbling,
)
from agiledart_dataflow.user_code.error_policy import ErrorPolicy
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row; the key 9 and the value 0 raise."""

    at: int
    key: int
    value: int


def ms(span: int) -> timedelta:
    """Event times are milliseconds."""
    return timedelta(milliseconds=span)


def key(row: Row) -> int:
    """The key, where there is one."""
    if row.key == 9:
        raise LookupError("no key")
    return row.key


def value(row: Row) -> float:
    """A value, where there is one."""
    return 12 / row.value


class Last(Aggregator[Row, list[float], float]):
    """The user's own: the last value."""

    def create(self) -> list[float]:
        return []

    def add(self, state: list[float], row: Row) -> list[float]:
        state[:] = [value(row)]
        return state

    def result(self, state: list[float]) -> float:
        return state[0]


def latest(before: Row, row: Row) -> Row:
    """A reduction that shows the order."""
    return row._replace(value=(before.value * 2 + row.value) % 1_000 + int(0 * value(row)))


def is_small(row: Row) -> bool:
    """First row of a pattern."""
    return value(row) > 3


def is_great(row: Row) -> bool:
    """Last row of a pattern."""
    return value(row) <= 3


Build = Callable[[Stream[Row], Stream[Row], ErrorPolicy], Stream[Any]]

CASES: dict[str, Build] = {
    "tumbling": lambda s, _, p: s.key_by(key).window(tumbling(ms(5))).aggregate("step", mean_of(value), on_error=p),
    "tumbling, own": lambda s, _, p: s.key_by(key).window(tumbling(ms(5))).aggregate("step", Last(), on_error=p),
    "hopping": lambda s, _, p: s.key_by(key).window(hopping(ms(6), ms(2))).aggregate("step", sum_of(value), on_error=p),
    "hopping, own": lambda s, _, p: s.key_by(key).window(hopping(ms(6), ms(2))).aggregate("step", Last(), on_error=p),
    "lateness": lambda s, _, p: (
        s.key_by(key).window(tumbling(ms(5), allowed_lateness=ms(4))).aggregate("step", max_of(value), on_error=p)
    ),
    "named": lambda s, _, p: (
        s.key_by(col("key"))
        .window(tumbling(ms(5)))
        .aggregate("step", rows=count(), ratio=(12 // col("value")).sum(), on_error=p)
    ),
    "session": lambda s, _, p: s.key_by(key).window(session(ms(3))).aggregate("step", max_of(value), on_error=p),
    "counted": lambda s, _, p: s.key_by(key).window(counted(3, 2)).aggregate("step", sum_of(value), on_error=p),
    "sliding": lambda s, _, p: s.key_by(key).window(sliding(ms(4))).aggregate("step", sum_of(value), on_error=p),
    "sliding, own": lambda s, _, p: s.key_by(key).window(sliding(ms(4))).aggregate("step", Last(), on_error=p),
    "running": lambda s, _, p: s.key_by(key).running("step", mean_of(value), on_error=p),
    "running, named": lambda s, _, p: s.key_by(key).running(
        "step", rows=count(), ratio=(12 // col("value")).sum(), on_error=p
    ),
    "reduce": lambda s, _, p: s.filter(lambda r: r.value != 0, "some").key_by(key).reduce("step", latest, on_error=p),
    "distinct": lambda s, _, p: s.deduplicate("step", by=value, time_to_live=ms(4), on_error=p),
    "pattern": lambda s, _, p: s.key_by(key).pattern(
        "step", is_small, never(is_small), is_great, within=ms(6), on_error=p
    ),
    "window join": lambda s, t, p: s.key_by(key).window_join("step", t.key_by(key), tumbling(ms(5)), on_error=p),
    "interval join": lambda s, t, p: s.key_by(key).interval_join(
        "step", t.key_by(key), earliest=ms(-2), latest=ms(2), how="left", on_error=p
    ),
    "lookup": lambda s, t, p: s.key_by(key).lookup("step", t.key_by(key), on_error=p),
}
"""Name → step under test."""

OTHER = 7
"""A key that no row has."""

BY_KEY_ONLY = {"window join", "interval join", "lookup", "reduce"}
"""Cases in which no value is computed."""


def bad(row: Row, case: str) -> bool:
    """Does the step raise for this row?"""
    if case == "distinct":
        return row.value == 0
    if case == "named":
        return row.value == 0
    return row.key == 9 or (row.value == 0 and case not in BY_KEY_ONLY)


def built(rows: list[Row], case: str, policy: ErrorPolicy) -> Topology:
    """The step on two sources."""
    topology = Topology("policies")
    half = len(rows) // 2
    left, right = [
        topology.source(name, some, event_time=lambda row: row.at, rows=Row)
        for name, some in (("left", rows[:half]), ("right", rows[half:]))
    ]
    made = CASES[case](left, right, policy)
    made.sink("out", collect)
    right.sink("other", collect)  # a stream must lead somewhere
    if policy == "dead_letter":
        made.errors("letters").map(lambda one: one.record, "records", returns=Row).sink("bad", collect)
    return topology


def timed(rows: list[Row]) -> list[Row]:
    """In order of time in each half: so nothing is late."""
    half = len(rows) // 2
    return [*sorted(rows[:half]), *sorted(rows[half:])]


ROWS = st.lists(
    st.builds(Row, at=st.integers(0, 30), key=st.sampled_from([0, 1, 2, 9]), value=st.integers(0, 4)), max_size=40
)


@pytest.mark.parametrize("case", CASES)
@given(
    rows=ROWS,
    parallelism=st.integers(1, 3),
    seed=st.none() | st.integers(0, 99),
    policy=st.sampled_from(["skip", "dead_letter"]),
)
@settings(max_examples=25, deadline=None)
def test_a_row_that_raises_leaves_no_trace(
    case: str, rows: list[Row], parallelism: int, seed: int | None, policy: ErrorPolicy
) -> None:
    rows = timed(rows)
    half = len(rows) // 2
    good = [[row for row in part if not bad(row, case)] for part in (rows[:half], rows[half:])]
    sliding_time = case.startswith("sliding")  # where time that passes by a row shows, even if the row itself does not
    if sliding_time:
        good[0] = [Row(row.at, OTHER, 1) if bad(row, case) else row for row in rows[:half]]
    run = run_topology(built(rows, case, policy), parallelism=parallelism, schedule_seed=seed)
    wanted = run_topology(built_of(good, case), parallelism=1).collected["out"]
    assert run.collected["out"] == [one for one in wanted if not (sliding_time and one[0] == OTHER)]
    counts = run.summary.steps["step"]
    seen = rows if "join" in case or case == "lookup" else rows[:half]
    if case == "reduce":
        seen = [row for row in seen if row.value != 0]
    expected = [row for row in seen if bad(row, case)]
    assert counts.skipped + counts.dead_letters == len(expected)
    if policy == "dead_letter":
        assert sorted(run.collected["bad"]) == sorted(expected)


def built_of(parts: list[list[Row]], case: str) -> Topology:
    """The step on two sources of rows none of which raises."""
    topology = Topology("policies")
    left, right = [
        topology.source(name, some, event_time=lambda row: row.at, rows=Row)
        for name, some in zip(("left", "right"), parts, strict=True)
    ]
    CASES[case](left, right, "fail").sink("out", collect)
    right.sink("other", collect)
    return topology


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("parallelism", [1, 2])
def test_without_a_policy_step_and_row_are_named(case: str, parallelism: int) -> None:
    culprit = Row(7, 1 if case in ("distinct", "named") else 9, 0 if case in ("distinct", "named") else 2)
    rows = [Row(1, 1, 1), culprit, Row(1, 1, 1), Row(9, 2, 2)]
    with pytest.raises(UserCodeError, match=r"test_error_policies|named|step") as told:
        run_topology(built(rows, case, "fail"), parallelism=parallelism)
    assert "step" in str(told.value)
    assert str(culprit) in str(told.value)
