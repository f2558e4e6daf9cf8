"""Instances: user errors, back to a snapshot, counts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import (
    Change,
    Context,
    KeyedOperator,
    Topology,
    UserCodeError,
    all_of,
    collect,
    max_of,
    mean_of,
    records,
    sliding,
    tumbling,
)
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.position import covering, final_watermark
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import LocalProtocolError, TopologyError
from agiledart_kernel.randomness import RandomStream


class Row(NamedTuple):
    """A row."""

    at: int
    key: str
    value: float


class Gap(NamedTuple):
    """A key was silent."""

    key: str
    since: int


class Gaps(KeyedOperator[str, Row, list[int], Gap]):
    """Reports a key that is silent for 4 ms."""

    def initial(self, key: str) -> list[int]:
        return [0]

    def on_record(self, key: str, record: Row, state: list[int], context: Context[Gap]) -> None:
        state[0] = record.at
        context.timer_at(record.at + 4, record.at)

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[Gap]) -> None:
        if payload == state[0]:
            context.emit(Gap(key, payload))
            context.forget()


def rows_of(seed: int, count: int = 60) -> list[Row]:
    """Random rows in order of time."""
    random = RandomStream(seed, "rows")
    times = sorted(random.index(50) for _ in range(count))
    return [Row(at, random.choice("abc"), random.uniform()) for at in times]


def stages_under_test(kind: str, at_least: Carries = "positions") -> Program:
    """A topology whose second stage is the one to test."""
    topology = Topology("t")
    keyed = topology.source("rows", records([], row_type=Row), event_time=lambda row: row.at).key_by(
        lambda row: row.key
    )
    if kind == "sliding":
        windowed: Any = keyed.window(sliding(timedelta(milliseconds=9)))
        windowed.aggregate("step", all_of(mean_of(lambda r: r.value), max_of(lambda r: r.value))).sink("out", collect)
    elif kind == "panes":
        keyed.window(tumbling(timedelta(milliseconds=7))).aggregate("step", mean_of(lambda r: r.value)).sink(
            "out", collect
        )
    else:
        keyed.stateful("step", Gaps()).sink("out", collect)
    return compile_program(topology, plan_stages(topology.specification(), 1, at_least))


def batches(rows: list[Row], seed: int, carries: Carries = "positions") -> list[Batch]:
    """The rows as a source would send them, cut at random."""
    random = RandomStream(seed, "cuts")
    out = []
    at = 0
    while at < len(rows):
        stop = min(len(rows), at + 1 + random.index(9))
        positions = [(rows[i].at, 1, 0, i) for i in range(at, stop)]
        order = positions if carries == "positions" else [position[0] for position in positions]
        out.append(Batch(list(rows[at:stop]), [*order], covering(positions[-1])))
        at = stop
    return [*out, Batch([], [], final_watermark(rows[-1].at if rows else None))]


@pytest.mark.parametrize("kind", ["sliding", "panes", "stateful"])
@pytest.mark.parametrize("seed", range(6))
def test_an_instance_resumes_from_a_snapshot_as_if_uninterrupted(kind: str, seed: int) -> None:
    program = stages_under_test(kind)
    whole: list[Any] = []
    cut: list[Any] = []
    straight, instance = Instance(program, 1, 0), Instance(program, 1, 0)
    random = RandomStream(seed, "budget")
    for batch in batches(rows_of(seed), seed):
        straight.offer(0, 0, batch)
        straight.work(lambda edge, target, out: whole.extend(zip(out.rows, out.order, strict=True)))
        instance.offer(0, 0, batch)
        instance.work(lambda edge, target, out: cut.extend(zip(out.rows, out.order, strict=True)), 1 + random.index(4))
        saved = instance.snapshot()
        instance = Instance(program, 1, 0)
        instance.restore(saved)
        assert instance.snapshot() == saved
    while instance.work(lambda edge, target, out: cut.extend(zip(out.rows, out.order, strict=True))):
        pass
    assert whole == cut != []
    assert instance.finished


@pytest.mark.parametrize("seed", range(6))
def test_panes_without_positions_resume_from_a_snapshot(seed: int) -> None:
    program = stages_under_test("panes", "rows")
    assert [edge.carries for edge in program.plan.edges] == ["times", "rows"]
    ordered = Instance(stages_under_test("panes"), 1, 0)
    whole: list[Any] = []
    cut: list[Any] = []
    instance = Instance(program, 1, 0)
    random = RandomStream(seed, "budget")
    rows = rows_of(seed)
    for batch, timed in zip(batches(rows, seed), batches(rows, seed, "times"), strict=True):
        ordered.offer(0, 0, batch)
        ordered.work(lambda edge, target, out: whole.extend(out.rows))
        instance.offer(0, 0, timed)
        instance.work(lambda edge, target, out: cut.extend(out.rows), 1 + random.index(4))
        saved = instance.snapshot()
        instance = Instance(program, 1, 0)
        instance.restore(saved)
        assert instance.snapshot() == saved
    while instance.work(lambda edge, target, out: cut.extend(out.rows)):
        pass
    assert whole == cut != []
    assert instance.finished


def test_top_resumes_from_a_snapshot() -> None:
    topology = Topology("t")
    changes = topology.source(
        "rows", records([], row_type=Change[str, int, Row]), event_time=lambda change: 0, rows=Change[str, int, Row]
    )
    changes.top("top", n=2).sink("out", collect)
    program = compile_program(topology, plan_stages(topology.specification(), 1, "positions"))
    random = RandomStream(1, "changes")
    sent: list[list[Any]] = [[], []]
    straight, instance = Instance(program, 1, 0), Instance(program, 1, 0)
    for number in range(200):
        position = (number, 1, 0, number)
        value = random.index(5) or None
        row = Change(random.choice("abcde"), value, Row(number, "", 0.0))
        batch = Batch([row], [position], covering(position))
        for one, out in ((straight, sent[0]), (instance, sent[1])):
            one.offer(0, 0, batch)
            one.work(lambda edge, target, made, out=out: out.extend(made.rows))
        saved = instance.snapshot()
        instance = Instance(program, 1, 0)
        instance.restore(saved)
    assert sent[0] == sent[1]
    assert len(sent[0]) > 50


class Failing(KeyedOperator[str, Row, list[int], Row]):
    """Raises for one record, or in its timer."""

    def initial(self, key: str) -> list[int]:
        return []

    def on_record(self, key: str, record: Row, state: list[int], context: Context[Row]) -> None:
        if record.value > 2:
            raise ValueError("too much")
        context.timer_at(record.at if record.value > 1 else record.at + 1, [record.at])

    def on_timer(self, key: str, payload: Any, state: list[int], context: Context[Row]) -> None:
        raise KeyError("timer")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3.0, ["in step", "ValueError: too much", "value=3.0"]),
        (1.5, ["in step", "not after the present", "value=1.5"]),
        (0.5, ["in step", "KeyError: 'timer'", "record [7]"]),
    ],
)
def test_an_operator_that_raises_is_named_with_its_line_and_record(value: float, words: list[str]) -> None:
    topology = Topology("t")
    source = topology.source("rows", records([Row(7, "a", value)]), event_time=lambda row: row.at)
    source.key_by(lambda row: row.key).stateful("step", Failing()).sink("out", collect)
    with pytest.raises(UserCodeError) as error:
        run_topology(topology)
    assert str(error.value).startswith("test_instance.py:")
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_key_function_that_raises_is_named() -> None:
    topology = Topology("t")
    source = topology.source("rows", records([Row(7, "a", 0.0)]), event_time=lambda row: row.at)
    source.key_by(lambda row: row.key[5], returns=str).window(sliding(timedelta(1))).count("n").sink("out", collect)
    for parallelism in (1, 2):
        with pytest.raises(UserCodeError, match=r"test_instance\.py:\d+ in .*n: IndexError.*Row\(at=7"):
            run_topology(topology, parallelism=parallelism)


def key_or_none(row: Row) -> str | None:
    """Keys that cannot be compared."""
    return None if row.key == "a" else row.key


def ranked(rank: Callable[[int], Any]) -> Topology:
    """Counts of such keys, which all are one."""
    topology = Topology("t")
    source = topology.source("rows", records([Row(1, "b", 0.0), Row(2, "a", 0.0)]), event_time=lambda row: row.at)
    counts = source.key_by(key_or_none).window(sliding(timedelta(1)))
    counts.count("n").top("best", n=2, ties="key", rank=rank).sink("out", collect)
    return topology


def test_unorderable_keys_are_still_ranked() -> None:
    rankings = run_topology(ranked(lambda count: count)).collected["out"]
    assert [[entry.key for entry in ranking.entries] for ranking in rankings] == [["b"], [None, "b"]]


def test_unorderable_ranks_are_the_users_error() -> None:
    ranks = iter([1j, 2j])
    with pytest.raises(UserCodeError, match="in best: TypeError"):
        run_topology(ranked(lambda _: next(ranks)))


def test_only_sinks_have_writers() -> None:
    program = stages_under_test("sliding")
    with pytest.raises(LocalProtocolError, match="writer"):
        Instance(program, 2, 0)


def test_a_plan_of_another_graph_is_refused() -> None:
    program = stages_under_test("sliding")
    other = stages_under_test("panes")
    with pytest.raises(TopologyError, match="another graph"):
        compile_program(program.topology, other.plan)
