"""Rows beside the rows: dead letters, late rows, user-defined ones; and the mistakes that are reported to builders."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import (
    BroadcastOperator,
    Context,
    Joined,
    KeyedOperator,
    Stream,
    Topology,
    TopologyError,
    collect,
    counted,
    never,
    session,
    sliding,
    tumbling,
)
from agiledart.testing import run_local
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row with a time, a key and a number."""

    at: int
    key: str
    value: int


ROWS = [Row(1, "a", 2), Row(2, "b", 0), Row(3, "a", 4), Row(4, "b", 5)]
MS = timedelta(milliseconds=1)


class Inverse(KeyedOperator[str, Row, list[int], tuple[str, int]]):
    """Raises for a zero; asks for a timer before it does."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int]]) -> None:
        context.emit((key, -1))
        context.timer_at(context.time_ms + 1)
        state[0] = 20 // record.value
        context.emit((key, state[0]))

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[tuple[str, int]]) -> None:
        context.emit((key, state[0]))


def stream(topology: Topology) -> Stream[Row]:
    """The rows of these tests."""
    return topology.source("rows", ROWS, event_time=lambda row: row.at)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_stateful_step_continues_after_a_bad_record_and_keeps_the_dead_letter(
    parallelism: int, seed: int | None
) -> None:
    topology = Topology("t")
    out = stream(topology).key_by(lambda row: row.key).stateful("inverse", Inverse(), on_error="dead_letter")
    out.sink("out", collect)
    out.errors("bad").sink("letters", collect)
    run = run_topology(topology, parallelism=parallelism, schedule_seed=seed)
    assert run.collected["out"] == [
        ("a", -1), ("a", 10), ("a", 10), ("a", -1), ("a", 5), ("a", 5), ("b", -1), ("b", 4), ("b", 4)
    ]  # fmt: skip
    (letter,) = run.collected["letters"]
    assert letter.record == Row(2, "b", 0)
    assert letter.step == "inverse"
    assert "ZeroDivisionError" in letter.error
    assert run.summary.steps["inverse"].dead_letters == 1


class Bomb(KeyedOperator[str, Row, list[int], str]):
    """Raises at its timers."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[str]) -> None:
        context.timer_at(context.time_ms + 1, [1])
        context.emit(key)

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[str]) -> None:
        context.emit("lost with the error")
        raise RuntimeError("at a timer")


def test_a_timer_that_raises_costs_no_record() -> None:
    topology = Topology("t")
    out = stream(topology).key_by(lambda row: row.key).stateful("bomb", Bomb(), on_error="dead_letter")
    out.sink("out", collect)
    out.errors("bad").sink("letters", collect)
    run = run_topology(topology)
    assert run.collected["out"] == ["a", "b", "a", "b"]
    assert run.collected["letters"] == []
    assert run.summary.steps["bomb"].dead_letters == 0


def test_a_stateless_step_keeps_the_dead_letter_too() -> None:
    topology = Topology("t")
    out = stream(topology).map(
        lambda row: row._replace(value=20 // row.value), name="inverse", returns=Row, on_error="dead_letter"
    )
    out.sink("out", collect)
    out.errors("bad").map(lambda letter: letter.record, name="record", returns=Row).sink("letters", collect)
    result = run_local(topology)
    assert isinstance(result, dict)
    assert [row.value for row in result["out"]] == [10, 5, 4]
    assert result["letters"] == [Row(2, "b", 0)]


def test_a_reference_is_read_before_the_first_row_is_looked_up() -> None:
    topology = Topology("t")
    names = topology.reference("names", [("a", "Anna"), ("a", "Alma")], rows=tuple[str, str])
    found = stream(topology).key_by(lambda row: row.key).lookup("named", names.key_by(lambda name: name[0]), how="left")
    found.sink("out", collect)
    result = run_local(topology, parallelism=2, schedule_seed=3)
    assert result == [Joined(row.key, row, ("a", "Alma") if row.key == "a" else None) for row in ROWS]


class Rules(BroadcastOperator[str, Row, list[int], str, int, list[int]]):
    """Says what was broadcast, at each record."""

    def initial(self, key: str) -> list[int]:
        return []

    def initial_shared(self) -> list[int]:
        return []

    def on_broadcast(self, record: int, shared: list[int]) -> None:
        shared.append(record)

    def on_record(self, key: str, record: Row, state: list[int], context: Context[str]) -> None:
        context.emit(f"{key} {context.shared}")


def test_a_broadcast_reference_reaches_all_instances() -> None:
    topology = Topology("t")
    rules = topology.reference("rules", [7, 8], rows=int)
    stream(topology).key_by(lambda row: row.key).connect(rules).stateful("apply", Rules()).sink("out", collect)
    assert run_local(topology, parallelism=4, schedule_seed=1) == [f"{row.key} [7, 8]" for row in ROWS]


def keyed(topology: Topology) -> Any:
    """Keyed rows."""
    return stream(topology).key_by(lambda row: row.key)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda t: keyed(t).stateful("x", Inverse(), on_error="ignore"), "on_error is one of"),
        (lambda t: keyed(t).stateful("x", Inverse()).errors("e"), "keeps no dead letters"),
        (lambda t: keyed(t).stateful("x", Inverse()).late("e"), "rows are late for sources"),
        (lambda t: stream(t).side("x", "tag", rows=int), "only stateful steps"),
        (lambda t: keyed(t).stateful("x", Inverse()).side("e", "late", rows=int), "is not one of late, errors"),
        (lambda t: keyed(t).stateful("x", Rules()), "write .connect(rules)"),
        (lambda t: keyed(t).connect(stream).stateful("x", Rules()), "connect() takes a stream of the same topology"),
        (lambda t: keyed(t).pattern("x", never(bool), within=MS), "begins with a row that comes"),
        (lambda t: keyed(t).pattern("x", bool, bool, within=timedelta(0)), "above zero"),
        (lambda t: keyed(t).window_join("x", keyed(Topology("u")), tumbling(MS)), "of the same topology"),
        (lambda t: keyed(t).window_join("x", keyed2(t), tumbling(MS)), "joins keys of one type, not str and int"),
        (lambda t: keyed(t).window_join("x", keyed2(t), sliding(MS)), "takes tumbling(…) or hopping(…)"),
        (lambda t: keyed(t).interval_join("x", keyed2(t), earliest=MS, latest=-MS), "is after latest"),
        (lambda t: keyed(t).lookup("x", keyed2(t), how="outer"), "how is 'inner' or 'left'"),
        (lambda t: keyed(t).distinct(None), "keeps state and needs a name"),
        (lambda t: keyed(t).distinct("x", time_to_live=5), "is a timedelta"),
        (lambda t: keyed(t).distinct("x", keep="tape"), "'memory' or on 'disk'"),
        (lambda t: stream(t).distinct("x", keep="tape"), "'memory' or on 'disk'"),  # type: ignore[arg-type]
        (lambda t: t.source("y", ROWS, event_time=lambda row: row.at, clock="sun"), "'events' or 'wall'"),
        (lambda t: t.source("y", ROWS, event_time=lambda row: row.at, idle_timeout=timedelta(0)), "above zero"),
        (lambda t: counted(0), "holds 1 to"),
        (lambda t: counted(3, every=4), "begin every 1 to 3"),
        (lambda t: session(timedelta(0)), "above zero"),
        (lambda t: tumbling(MS, allowed_lateness=-MS), "above zero"),
    ],
)
def test_mistakes_are_reported_at_their_line(build: Callable[[Topology], Any], told: str) -> None:
    topology = Topology("t")
    with pytest.raises(TopologyError) as caught:
        build(topology)
    assert told in str(caught.value)


def keyed2(topology: Topology) -> Any:
    """Rows with another type of key."""
    again = topology.source("other", ROWS, event_time=lambda row: row.at)
    return again.key_by(lambda row: row.value)


def test_window_aggregates_of_late_windows_are_not_for_joins() -> None:
    topology = Topology("t")
    left = keyed(topology)
    with pytest.raises(TopologyError, match="without lateness"):
        left.window_join("x", left, tumbling(MS, allowed_lateness=MS))
