"""Error policies where no row is at fault, at rankings, at broadcast rows; and errors reported to builders."""

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from agiledart import (
    Aggregator,
    BroadcastOperator,
    Change,
    Context,
    Either,
    KeyedOperator,
    Pane,
    Stream,
    Topology,
    TopologyError,
    collect,
    counted,
    hopping,
    session,
    sliding,
    sum_of,
    tumbling,
)
from agiledart_dataflow.data.position import RECORD
from agiledart_dataflow.operators.keyed_step import KeyedStep
from agiledart_dataflow.operators.top import Top, emitted_type, ranked_type
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_executor.state.sqlite_store import SqliteStore
from agiledart_kernel.errors import OperationFailed, UserCodeError


class Row(NamedTuple):
    """A row with a time, a key and a number."""

    at: int
    key: str
    value: int


ROWS = [Row(1, "a", 1), Row(2, "b", 1), Row(3, "a", 2), Row(30, "c", 1), Row(31, "c", 1)]
MS = timedelta(milliseconds=1)


def stream(topology: Topology, rows: list[Row] = ROWS) -> Stream[Row]:
    """The rows of these tests."""
    return topology.source("rows", rows, event_time=lambda row: row.at)


class Picky(Aggregator[Row, int, int]):
    """Has no result for a window of one row."""

    def create(self) -> int:
        return 0

    def add(self, state: int, row: Row) -> int:
        return state + 1

    def remove(self, state: int, row: Row) -> int:
        return state - 1

    def result(self, state: int) -> int:
        if state == 1:
            raise ValueError("one is too few")
        return state


def ran(topology: Topology) -> tuple[LocalRun, list[str]]:
    """The run, and its log lines."""
    told: list[str] = []
    return run_topology(topology, on_log=told.append), told


@pytest.mark.parametrize(
    ("window", "panes"),
    [
        (tumbling(10 * MS), [Pane("a", 0, 10, 2), Pane("c", 30, 40, 2)]),
        (hopping(10 * MS, 10 * MS), [Pane("a", 0, 10, 2), Pane("c", 30, 40, 2)]),
        (tumbling(10 * MS, allowed_lateness=5 * MS), [Pane("a", 0, 10, 2), Pane("c", 30, 40, 2)]),
        (session(5 * MS), [Pane("a", 1, 8, 2), Pane("c", 30, 36, 2)]),
    ],
)
def test_a_window_whose_aggregate_fails_is_counted_and_reported(window: Any, panes: list[Pane[str, int]]) -> None:
    topology = Topology("results")
    stream(topology).key_by(lambda row: row.key).window(window).aggregate("panes", Picky(), on_error="skip").sink(
        "out", collect
    )
    done, told = ran(topology)
    counts = done.summary.steps["panes"]
    assert done.collected["out"] == panes
    assert (counts.taken, counts.rows_out, counts.failed, counts.skipped) == (5, 2, 1, 0)
    assert "in panes: ValueError: one is too few" in "".join(told)
    if not getattr(window, "lateness_ms", 0):  # one that listens for late rows remembers what it said
        assert [one.state_keys for one in done.statistics] == [0] * len(done.statistics)


def test_count_windows_that_all_fail_consume_their_rows() -> None:
    topology = Topology("counted")
    keyed = stream(topology).key_by(lambda row: row.key)
    keyed.window(counted(1)).aggregate("panes", Picky(), on_error="dead_letter").sink("out", collect)
    done, _ = ran(topology)
    counts = done.summary.steps["panes"]
    assert done.collected["out"] == []
    assert (counts.taken, counts.dead_letters, counts.failed) == (5, 0, 5)


class Second(Picky):
    """Has no result for the first window of two rows, nor for one of three."""

    def __init__(self) -> None:
        self.asked = 0

    def result(self, state: int) -> int:
        self.asked += 1
        if self.asked == 1 or state == 3:
            raise ValueError("not yet")
        return state


def test_a_count_window_continues_after_one_that_failed() -> None:
    topology = Topology("counted")
    rows = [Row(at, "a", 1) for at in range(6)]
    keyed = stream(topology, rows).key_by(lambda row: row.key)
    keyed.window(counted(2)).aggregate("panes", Second(), on_error="skip").sink("out", collect)
    done, told = ran(topology)
    counts = done.summary.steps["panes"]
    assert done.collected["out"] == [Pane("a", 2, 4, 2), Pane("a", 4, 6, 2)]
    assert (counts.taken, counts.skipped, counts.failed) == (6, 0, 1)
    assert "in panes: ValueError: not yet" in "".join(told)


def test_a_late_row_stays_in_a_window_whose_aggregate_fails_with_it() -> None:
    topology = Topology("late")
    rows = [Row(1, "a", 1), Row(12, "b", 1), Row(2, "a", 1), Row(3, "a", 1), Row(4, "a", 1)]
    keyed = stream(topology, rows).key_by(lambda row: row.key)
    window = tumbling(10 * MS, allowed_lateness=30 * MS)
    keyed.window(window).aggregate("panes", Second(), on_error="skip").sink("out", collect)
    done, _ = ran(topology)
    counts = done.summary.steps["panes"]
    assert [pane for pane in done.collected["out"] if pane.key == "a"] == [Pane("a", 0, 10, 2), Pane("a", 0, 10, 4)]
    assert (counts.taken, counts.skipped, counts.failed) == (5, 0, 2)


def test_a_row_that_fails_a_sliding_window_is_not_in_it() -> None:
    topology = Topology("sliding")
    rows = [Row(1, "a", 1), Row(1, "a", 1), Row(2, "a", 1), Row(3, "a", 1), Row(9, "b", 1), Row(9, "b", 1)]
    keyed = stream(topology, rows).key_by(lambda row: row.key)
    keyed.window(sliding(3 * MS)).aggregate("n", Picky(), on_error="skip").sink("out", collect)
    done, _ = ran(topology)
    counts = done.summary.steps["n"]
    assert [(change.key, change.value) for change in done.collected["out"]] == []
    assert (counts.skipped, counts.taken) == (6, 0)


class Cautious(Picky):
    """Has no result for a window that has become one row."""

    def __init__(self) -> None:
        self.was = 0

    def result(self, state: int) -> int:
        self.was, before = state, self.was
        if before > state == 1:
            raise ValueError("it was more")
        return state


def test_a_result_that_raises_when_emitted_is_dropped() -> None:
    topology = Topology("leaving")
    rows = [Row(1, "a", 1), Row(2, "a", 1), Row(9, "b", 1)]
    keyed = stream(topology, rows).key_by(lambda row: row.key)
    keyed.window(sliding(3 * MS)).aggregate("n", Cautious(), on_error="skip").sink("out", collect)
    done, _ = ran(topology)
    assert [(change.key, change.value) for change in done.collected["out"]] == [
        ("a", 1),
        ("a", 2),
        ("a", None),
        ("b", 1),
    ]
    assert done.summary.steps["n"].failed == 1


def rank(value: int) -> int:
    """Raises for two."""
    if value == 2:
        raise ArithmeticError("two has no rank")
    return value


def test_a_change_without_a_rank_leaves_the_key_in_place() -> None:
    topology = Topology("ranks")
    rows = [Row(1, "a", 1), Row(2, "b", 3), Row(3, "a", 2), Row(4, "a", 9)]
    values = stream(topology, rows).key_by(lambda row: row.key).running("sum", sum_of(lambda row: row.value))
    top = values.top("best", n=2, rank=lambda v: rank(v - 1), on_error="dead_letter")
    top.sink("out", collect)
    top.errors("letters").map(lambda one: one.record, "records", returns=Change[str, int, Row]).sink("bad", collect)
    done, _ = ran(topology)
    assert [[(entry.key, entry.value) for entry in one.entries] for one in done.collected["out"]] == [
        [("a", 1)],
        [("a", 12)],
    ]
    assert [change.value for change in done.collected["bad"]] == [3, 3]


class Colour(Enum):
    """A key that has no order."""

    RED = "r"
    BLUE = "b"
    GREEN = "g"


class Coloured(NamedTuple):
    """A value of a colour, or of none."""

    at: int
    key: Colour | None
    value: int


@pytest.mark.parametrize("ties", ["newest", "key"])
def test_unorderable_keys_share_a_rank(ties: Literal["newest", "key"]) -> None:
    topology = Topology("colours")
    rows = [Coloured(1, Colour.RED, 3), Coloured(2, Colour.BLUE, 2), Coloured(3, None, 1), Coloured(4, Colour.BLUE, 1)]
    source = topology.source("rows", [*rows, Coloured(5, None, 8)], event_time=lambda row: row.at)
    both = source.flat_map(lambda row: [row, row._replace(key=Colour.GREEN)], "and-green", returns=Coloured)
    values = both.key_by(lambda row: row.key).running("sum", sum_of(lambda row: row.value))
    values.top("best", n=9, ties=ties).sink("out", collect)
    done, _ = ran(topology)
    red, blue, green = Colour.RED, Colour.BLUE, Colour.GREEN
    assert [[(entry.key, entry.value) for entry in one.entries] for one in done.collected["out"]] == [
        [(green, 3), (red, 3)],
        [(green, 5), (red, 3), (blue, 2)],
        [(green, 6), (red, 3), (blue, 2), (None, 1)],
        [(green, 7), (blue, 3), (red, 3), (None, 1)],
        [(green, 15), (None, 9), (blue, 3), (red, 3)],
    ]


def test_a_change_whose_rank_cannot_be_found_changes_nothing() -> None:
    refused: list[Any] = []
    codec = PlainCodec("best", lambda: ranked_type(str, int))
    rest = PlainCodec("best", lambda: emitted_type(str, int, int))
    top = Top(
        "best",
        lambda value: value,
        codec,
        rest,
        n=3,
        newest_first=False,
        on_operator_error=lambda _, row, __: refused.append(row),
    )
    rows = [("a", 3, 1), ("b", 2, 1), ("b", 1 + 0j, 1), ("c", 1, 1), ("b", 5, 1)]
    out, _ = top.run(rows, [(at, RECORD, 0, at) for at in range(len(rows))], (9, RECORD, 0, 9))
    assert refused == [rows[2]]
    assert [[tuple(entry) for entry in one.entries] for one in out][-1] == [("b", 5), ("a", 3), ("c", 1)]


class Allowed(BroadcastOperator[str, Row, list[int], str, int, list[int]]):
    """Lets keys pass while the last rule is not zero; zero is no rule."""

    def initial(self, key: str) -> list[int]:
        return []

    def initial_shared(self) -> list[int]:
        return [5]

    def on_broadcast(self, record: int, shared: list[int]) -> None:
        shared[0] = 10 // record

    def on_record(self, key: str, record: Row, state: list[int], context: Context[str]) -> None:
        context.emit(f"{key}{context.shared[0]}")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_broadcast_row_that_raises_is_skipped_at_every_instance(parallelism: int) -> None:
    topology = Topology("rules")
    rules = topology.source("rules", [0, 1], rows=int, event_time=lambda rule: rule * 2)
    connected = stream(topology).key_by(lambda row: row.key).connect(rules)
    connected.stateful("apply", Allowed(), on_error="dead_letter").sink("out", collect)
    done = run_topology(topology, parallelism={"apply": parallelism})
    assert sorted(done.collected["out"]) == [
        "a10",
        "a5",
        "b10",
        "c10",
        "c10",
    ]  # of one time rules are first: their source is
    counts = done.summary.steps["apply"]
    assert counts.skipped == parallelism
    assert counts.taken == 5 + parallelism


def test_unknown_policies_are_rejected_in_the_builder() -> None:
    topology = Topology("mistakes")
    keyed = stream(topology).key_by(lambda row: row.key)
    with pytest.raises(TopologyError, match="on_error is one of 'fail', 'skip', 'dead_letter', not 'ignore'"):
        keyed.window(counted(2)).count("n", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="keeps no dead letters"):
        keyed.window(counted(2)).count("m", on_error="skip").errors("letters")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_dead_letters_of_a_join_name_the_side_they_came_from(parallelism: int) -> None:
    def half(number: int) -> str:
        if number % 2:
            raise ValueError("odd")
        return "a"

    def named(row: Row) -> str:
        if row.key == "?":
            raise LookupError("no key")
        return row.key

    topology = Topology("sides")
    rows = [Row(1, "a", 1), Row(2, "?", 2), Row(5, "a", 3)]
    left = topology.source("rows", rows, event_time=lambda row: row.at, rows=Row).key_by(named)
    right = topology.source("numbers", [2, 3], rows=int, event_time=lambda number: number).key_by(half)
    joined = left.window_join("join", right, tumbling(10 * MS), on_error="dead_letter")
    joined.sink("out", collect)
    joined.errors("letters").map(lambda letter: letter.record, "records", returns=Either[Row, int]).sink("bad", collect)
    done = run_topology(topology, parallelism=parallelism)
    assert [(pair.left.value, pair.right) for pair in done.collected["out"]] == [(1, 2), (3, 2)]
    assert sorted(done.collected["bad"], key=str) == sorted([Either(rows[1], None), Either(None, 3)], key=str)
    assert done.summary.steps["join"].dead_letters == 2


class Sums(KeyedOperator[str, Row, list[int], tuple[str, int]]):
    """Adds up the values of a key."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int]]) -> None:
        state[0] += record.value
        if not record.value:
            raise ValueError("nothing to add")
        context.emit((key, state[0]))


class Calls(Sums):
    """Counts the records of a key, also those for which it raises; a timer of these is not set."""

    def on_record(self, key: str, record: Row, state: list[int], context: Context[tuple[str, int]]) -> None:
        state[0] += 1
        if not record.value:
            context.timer_at(record.at + 1)
            raise ValueError("no value")
        context.emit((key, state[0]))


def full(store: SqliteStore) -> None:
    """From now on its file can be neither read nor written."""
    store.close()


def left(store: SqliteStore) -> None:
    """All is well."""


@pytest.mark.parametrize(
    ("spoil", "value", "error", "words"),
    [
        (full, 1, OperationFailed, "^sums: its state on disk cannot be kept"),
        (left, 1j, UserCodeError, "^in sums, state of key 'a': TypeError"),
    ],
)
def test_a_store_that_fails_is_not_a_row_error(
    tmp_path: Path, spoil: Callable[[SqliteStore], None], value: Any, error: type[Exception], words: str
) -> None:
    operator = Sums()
    codec = EntryCodec("sums", str, list[int], operator.to_plain, operator.from_plain)
    store = SqliteStore("sums", codec, tmp_path, cached_keys=1)
    blamed: list[Any] = []
    step = KeyedStep(
        "sums", (lambda row: row.key,), operator, store, on_operator_error=lambda *told: blamed.append(told)
    )
    rows = [Row(1, "a", value), Row(2, "b", 1), Row(3, "a", 1)]
    spoil(store)
    with pytest.raises(error, match=words):
        step.run(rows, [(row.at, -1, 0, number) for number, row in enumerate(rows)], (9,))
    assert not blamed
    store.close()


@pytest.mark.parametrize("keep", ["memory", "disk"])
def test_a_keys_time_to_live_begins_with_a_record_that_raised_too(keep: Any) -> None:
    topology = Topology("lives")
    rows = [Row(1, "a", 0), Row(4, "a", 0), Row(8, "a", 2), Row(20, "a", 0), Row(30, "a", 4)]
    keyed = stream(topology, rows).key_by(lambda row: row.key)
    keyed.stateful("sums", Calls(), time_to_live=5 * MS, on_error="skip", keep=keep).sink("out", collect)
    done, _ = ran(topology)
    assert done.collected["out"] == [("a", 3), ("a", 1)]
    assert done.summary.steps["sums"].skipped == 3
    assert [one.state_keys for one in done.statistics] == [0] * len(done.statistics)
