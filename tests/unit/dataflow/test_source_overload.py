"""A source that reads on while its outputs are blocked: order, end, pace, and an account of every line."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import ConfigurationError, Overload, Topology, TopologyError, collect, csv, records, tumbling
from agiledart_dataflow.data.position import final_watermark
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.intake import Intake
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_executor.spool.intake_opening import open_intake


class Row(NamedTuple):
    """A row with a time."""

    at: int


def same(row: Row) -> Row:
    return row


class Live:
    """A reader that always has rows until its end: a sensor that never waits."""

    stamps = True

    def __init__(self, count: int, at_once: int = 10, bad_every: int = 0) -> None:
        self.left, self.at_once, self.bad_every, self.next = count, at_once, bad_every, 0

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        count = min(self.left, self.at_once, max_rows)
        self.left -= count
        numbers = range(self.next, self.next + count)
        self.next += count
        rows = [Row(number) for number in numbers if not self.bad_every or number % self.bad_every]
        bad = {"empty": count - len(rows)} if count > len(rows) else {}
        return Reading(rows, count, bad, exhausted=not self.left)

    def close(self) -> None:
        """Nothing is held."""


def source(reader: Any, directory: Path, overload: Overload, **arguments: Any) -> SourceInstance:
    """A source with a policy."""
    made = Topology("t")
    given = Connector("list", options=arguments.pop("options", ()), row_type=Row, payload=[])
    made.source("rows", given, event_time=lambda row: row.at, overload=overload, **arguments).sink("o", collect)
    program = compile_program(made, plan_stages(made.specification(), at_least="positions"))
    return SourceInstance(program, 0, reader, open_intake(program.steps(0)[0], directory))


def balanced(instance: SourceInstance) -> tuple[int, int, int]:
    """(records, shed, lines) after checking that they add up."""
    counts = instance.statistics().source
    assert counts is not None
    shed = sum(counts.shed.values())
    others = counts.late + sum(counts.malformed.values()) + counts.waiting + counts.spooled
    assert counts.lines == counts.records + shed + others
    return counts.records, shed, counts.lines


def drained(instance: SourceInstance) -> list[int]:
    """Event times of all that comes out until the end; numbers must have no gap."""
    times: list[int] = []
    for _ in range(10_000):
        polled = instance.poll(0, 0, 7)
        balanced(instance)
        if polled.batch is not None:
            assert [position[3] for position in polled.batch.order] == list(
                range(len(times), len(times) + len(polled.batch))
            )
            times += [position[0] for position in polled.batch.order]
            if polled.finished:
                assert polled.batch.watermark == final_watermark(times[-1] if times else None)
        if polled.finished:
            return times
    raise AssertionError("no end")


def blocked(instance: SourceInstance, turns: int) -> None:
    """Its outputs have no space for so many slots."""
    for _ in range(turns):
        if instance.reads_on:
            instance.take_in(0, 0, 100)
            balanced(instance)


def test_the_oldest_rows_are_dropped_while_nothing_can_be_sent(tmp_path: Path) -> None:
    instance = source(Live(100), tmp_path, Overload("shed_oldest", rows=25))
    blocked(instance, 20)
    assert drained(instance) == list(range(75, 100))
    assert balanced(instance) == (25, 75, 100)


def test_a_spool_keeps_every_row(tmp_path: Path) -> None:
    instance = source(Live(1000, bad_every=9), tmp_path, Overload("spool", rows=25))
    blocked(instance, 50)
    statistics = instance.statistics()
    assert statistics.source is not None
    assert statistics.source.waiting == statistics.queued_rows == 25
    assert statistics.source.spooled == statistics.source.spooled_ever > 400
    assert drained(instance) == [number for number in range(1000) if number % 9]
    assert statistics.source.shed == {}
    instance.close()


def test_a_sample_spans_the_whole_time(tmp_path: Path) -> None:
    instance = source(Live(1000), tmp_path, Overload("shed_sample", rows=64))
    blocked(instance, 150)
    kept = drained(instance)
    assert 20 <= len(kept) <= 64
    assert kept[0] < 300
    assert kept[-1] > 700
    assert kept == sorted(kept)


def test_pacing_and_ordering_come_before_the_overload_policy(tmp_path: Path) -> None:
    """A paced file gives its rows at their times, whether or not they can be sent then."""
    instance = source(Live(50), tmp_path, Overload("shed_oldest", rows=5), options=(("speed", "1"),))
    wait = instance.take_in(0, 0, 100)
    assert wait == 1_000_000
    assert instance.statistics().queued_rows == 10
    instance.take_in(20_000_000, 0, 100)
    assert balanced(instance) == (0, 15, 20)
    disordered = source(Live(40), tmp_path, Overload("spool", rows=5), max_out_of_order=timedelta(milliseconds=5))
    blocked(disordered, 3)
    assert drained(disordered) == list(range(40))


def test_a_requested_end_of_input_sends_waiting_rows(tmp_path: Path) -> None:
    instance = source(Live(10_000), tmp_path, Overload("spool", rows=10))
    blocked(instance, 10)
    instance.drain()
    assert drained(instance) == list(range(100))


def test_memory_stays_bounded_however_long_it_lasts(tmp_path: Path) -> None:
    for policy in ("shed_oldest", "shed_sample", "spool"):
        overload = Overload(policy, rows=50, spool_bytes=1 << 20, spool_full="block")
        instance = source(Live(300_000, at_once=1000), tmp_path, overload)
        for _ in range(200):
            instance.take_in(0, 0, 750)
            assert instance.statistics().queued_rows <= 50 + 750
        balanced(instance)
        instance.close()


@settings(max_examples=40, deadline=None)
@given(
    script=st.lists(st.integers(0, 3), max_size=60),
    policy=st.sampled_from(["spool", "shed_oldest", "shed_sample"]),
    rows=st.integers(1, 40),
    disorder=st.integers(0, 4),
    bad=st.integers(0, 5),
)
def test_every_line_is_accounted_for_at_every_moment(
    script: list[int], policy: str, rows: int, disorder: int, bad: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    reader = Live(300, at_once=7, bad_every=bad)
    arguments = {"max_out_of_order": timedelta(milliseconds=disorder)}
    directory = tmp_path_factory.getbasetemp()
    instance = source(reader, directory, Overload(policy, rows=rows), **arguments)
    times: list[int] = []
    for move in script:
        if move and instance.reads_on:
            instance.take_in(0, 0, move * 5)
        elif not instance.finished and (batch := instance.poll(0, 0, 5).batch) is not None:
            times += [position[0] for position in batch.order]
        balanced(instance)
    while not instance.finished:
        if (batch := instance.poll(0, 0, 50).batch) is not None:
            times += [position[0] for position in batch.order]
        balanced(instance)
    assert times == sorted(set(times))
    records_out, shed, lines = balanced(instance)
    assert (records_out, lines) == (len(times), 300)
    assert policy != "spool" or not shed


@pytest.mark.parametrize("seed", range(5))
def test_hostile_schedules_do_not_change_a_spool_and_sheds_are_accounted_for(seed: int) -> None:
    """The run itself audits its ledger; outputs are as good as blocked in half of the turns."""
    for policy in ("spool", "shed_oldest", "shed_sample"):
        rows: list[Row] = []
        made = Topology("t")
        given = Overload(policy, rows=20, spool_bytes=1 << 20)
        source = made.source("rows", [Row(n) for n in range(500)], event_time=lambda row: row.at, overload=given)
        source.map(same).sink("o", Connector("collect", payload=rows))
        summary = run_topology(made, schedule_seed=seed).summary
        assert [row.at for row in rows] == sorted({row.at for row in rows})
        assert len(rows) + sum(summary.shed.values()) == summary.records_in == 500
        if policy == "spool":
            assert len(rows) == 500
            assert summary.spooled_ever > 0


@pytest.mark.parametrize("policy", ["spool", "shed_oldest", "shed_sample"])
def test_a_local_run_is_never_blocked(policy: str) -> None:
    rows: list[Row] = []
    made = Topology("t")
    made.source("rows", records([Row(n) for n in range(2000)], row_type=Row), event_time=lambda row: row.at,
                overload=policy).map(same).sink("o", Connector("collect", payload=rows))  # fmt: skip
    run_topology(made)
    assert rows == [Row(n) for n in range(2000)]


def refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises((ConfigurationError, TopologyError), match=said):
        make()


def test_invalid_overload_options_are_rejected_at_their_line(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("1\n2\n")

    def built(connector: Any, overload: Any = None) -> Topology:
        made = Topology("t")
        made.source("rows", connector, rows=Row, event_time=lambda row: row.at, overload=overload).sink("o", collect)
        return made

    refused(lambda: built([Row(1)], "drop"), r"test_source_overload.py:\d+ +source 'rows': overload=drop: use one of")
    url = Connector("csv", str(file), (("overload", "shed_oldest"),))
    refused(lambda: run_topology(built(url)), "a file can wait, so none of its rows needs to be shed")
    assert run_topology(built(csv(str(file)), "spool")).summary.records_in == 2
    paced = Connector("csv", str(file), (("overload", "shed_oldest"), ("speed", "1000")))
    assert run_topology(built(paced)).summary.records_in == 2
    assert isinstance(open_intake(built([Row(1)], "shed_sample").steps[0], tmp_path), Intake)
    assert open_intake(built([Row(1)]).steps[0], tmp_path) is None


class Untidy:
    """A reader of rows whose times are not in order."""

    stamps = True

    def __init__(self, times: list[int]) -> None:
        self.times = times

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        part, self.times = self.times[: min(3, max_rows)], self.times[min(3, max_rows) :]
        return Reading([Row(time) for time in part], len(part), {}, exhausted=not self.times)

    def close(self) -> None:
        """Nothing is held."""


def left(
    times: list[int], overload: Overload, directory: Path, *, waits: bool
) -> tuple[dict[int, list[Any]], SourceInstance]:
    """By edge (rows, and rows that were too late) what leaves a source of late rows whose outputs are blocked at first."""
    made = Topology("t")
    given = Connector("list", row_type=Row, payload=[])
    stream = made.source(
        "rows", given, event_time=lambda row: row.at, overload=overload, max_out_of_order=timedelta(milliseconds=2)
    )
    ms = timedelta(milliseconds=1)
    window = tumbling(10 * ms, allowed_lateness=5 * ms)
    stream.key_by(lambda row: row.at % 2, returns=int).window(window).count("n").sink("o", collect)
    stream.late("late").sink("too-late", collect)
    program = compile_program(made, plan_stages(made.specification()))
    instance = SourceInstance(program, 0, Untidy(times), open_intake(program.steps(0)[0], directory))
    out: dict[int, list[Any]] = {}

    def emit(edge: int, target: int, batch: Any) -> None:
        out.setdefault(edge, []).extend(zip(batch.rows, batch.order or (), strict=True))

    if waits:
        blocked(instance, 30)
    for _ in range(1_000):
        polled = instance.poll(0, 0, 4)
        balanced(instance)
        if polled.batch is not None:
            instance.send(polled.batch, emit)
        if polled.finished:
            return out, instance
    raise AssertionError("no end")


@given(st.lists(st.integers(0, 40), max_size=60))
@settings(max_examples=40, deadline=None)
def test_late_rows_keep_their_lateness_while_they_wait(times: list[int]) -> None:
    with TemporaryDirectory() as folder:
        straight, _ = left(times, Overload(), Path(folder), waits=False)
        spooled, instance = left(times, Overload("spool", rows=5), Path(folder), waits=True)
        instance.close()
    assert spooled == straight


@given(st.lists(st.integers(0, 40), max_size=60), st.sampled_from(["shed_oldest", "shed_sample"]))
@settings(max_examples=40, deadline=None)
def test_late_rows_that_are_shed_are_accounted_for(times: list[int], policy: Any) -> None:
    straight, _ = left(times, Overload(), Path(), waits=False)
    shed, instance = left(times, Overload(policy, rows=5), Path(), waits=True)
    for edge, rows in shed.items():
        assert Counter(row for row, _ in rows) <= Counter(row for row, _ in straight.get(edge, []))
    assert sum(map(len, shed.values())) + balanced(instance)[1] == len(times)
