"""Event times made behind the source: `map(…, event_time=…)`."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import DeadLetter, Pane, Topology, TopologyError, collect, lines, sliding, tumbling
from agiledart.testing import run_local
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.ledger import audit
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row with a time."""

    at: int
    key: str


def parsed(line: str) -> Row:
    """A row from its text; raises ValueError for a header."""
    at, key = line.split(";")
    return Row(int(at), key)


def parsed_or_none(line: str) -> Row | None:
    """A row from its text; None for a header."""
    return None if line.startswith("time") else parsed(line)


LINES = ["1000;a", "4000;b", "2000;a", "9000;a", "3000;b", "61000;a", "61000;b", "125000;a"]
DISORDER = timedelta(seconds=3)
MINUTE = timedelta(minutes=1)


def counted(stream: Any, window: Any) -> None:
    """End a topology with a count by key."""
    stream.key_by(lambda row: row.key).window(window).count("count").sink("out", collect)


@pytest.mark.parametrize("window", [tumbling(MINUTE), sliding(MINUTE)])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_times_made_behind_the_source_give_the_result_of_times_at_the_source(window: Any, parallelism: int) -> None:
    behind, at_source = Topology("t"), Topology("t")
    counted(behind.source("lines", LINES, max_out_of_order=DISORDER).map(parsed, event_time="at"), window)
    rows = [parsed(line) for line in LINES]
    counted(at_source.source("lines", rows, event_time="at", max_out_of_order=DISORDER), window)
    result = run_local(behind, parallelism=parallelism)
    assert result == run_local(at_source, parallelism=parallelism)
    assert result


def test_late_rows_and_rows_at_fault_are_counted_and_read_behind_the_step() -> None:
    topology = Topology("t")
    rows = topology.source("lines", ["time;key", *LINES]).map(parsed, event_time="at", on_error="dead_letter")
    rows.sink("out", collect)
    rows.late("late").sink("late-rows", collect)
    rows.errors("bad").sink("bad-rows", collect)
    run = run_topology(topology)
    assert [row.at for row in run.collected["out"]] == [1000, 4000, 9000, 61000, 61000, 125000]
    assert [row.at for row in run.collected["late-rows"]] == [2000, 3000]
    (letter,) = run.collected["bad-rows"]
    assert isinstance(letter, DeadLetter)
    assert (letter.record, letter.step) == ("time;key", "parsed")
    assert (run.summary.records_in, run.summary.late) == (9, 2)
    assert run.summary.steps["parsed"].dead_letters == 1


def test_a_header_is_dropped_by_a_flat_map_and_filters_may_stand_before() -> None:
    topology = Topology("t")
    texts = topology.source("lines", ["time;key", "", *LINES], max_out_of_order=DISORDER)
    counted(texts.filter(bool, "full").flat_map(parsed_or_none, event_time=lambda row: row.at), tumbling(MINUTE))
    run = run_topology(topology)
    assert run.collected["out"][:2] == [Pane("a", 0, 60_000, 3), Pane("b", 0, 60_000, 1)]
    assert (run.summary.late, run.summary.outliers) == (1, 1)
    assert run.summary.steps["parsed_or_none"].dropped == 1


class Script:
    """A reader of lines, two at a time."""

    stamps = True

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        rows, self.texts = self.texts[:2], self.texts[2:]
        return Reading(rows, len(rows), {}, exhausted=not rows)

    def close(self) -> None:
        """Nothing is open."""


def test_a_restored_source_goes_on_with_its_sorted_rows_and_counts() -> None:
    topology = Topology("t")
    texts = topology.source("lines", Connector("list", row_type=str, payload=[]), max_out_of_order=DISORDER)
    texts.flat_map(parsed_or_none, event_time="at").sink("out", collect)
    specification = topology.specification()
    program = compile_program(topology, plan_stages(specification, 1, "positions"))
    text = ["time;key", *LINES]
    expected = _polled(whole := SourceInstance(program, 0, Script(text)))
    for read in range(0, len(text), 2):
        before = SourceInstance(program, 0, Script(text))
        got = [position for _ in range(read // 2) for position in _poll(before)]
        snapshot = before.snapshot()
        after = SourceInstance(program, 0, Script(text[before.lines :]))
        after.restore(snapshot)
        assert got + _polled(after) == expected
        assert audit(specification, [after.statistics()]) == []
        assert after.statistics().source == whole.statistics().source


def _poll(instance: SourceInstance) -> list[Any]:
    batch = instance.poll(0, 0).batch
    return [] if batch is None else list(batch.order or [])


def _polled(instance: SourceInstance) -> list[Any]:
    positions: list[Any] = []
    while not instance.finished:
        positions += _poll(instance)
    return positions


def _timed_source(topology: Topology) -> None:
    rows = topology.source("rows", [parsed("1;a")], event_time="at")
    rows.map(lambda row: row, "again", returns=Row, event_time="at").sink("out", collect)


def _behind_a_key(topology: Topology) -> None:
    rows = topology.source("lines", LINES).distinct("new")
    rows.map(parsed, event_time="at").sink("out", collect)


def _second_reader(topology: Topology) -> None:
    texts = topology.source("lines", LINES)
    texts.map(parsed, event_time="at").sink("out", collect)
    texts.sink("raw", collect)


def _earlier_reader(topology: Topology) -> None:
    texts = topology.source("lines", LINES)
    texts.sink("raw", collect)
    texts.map(parsed, event_time="at").sink("out", collect)


def _idle_without_times(topology: Topology) -> None:
    topology.source("lines", LINES, idle_timeout=MINUTE).sink("out", collect)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (_timed_source, "have event times already"),
        (_behind_a_key, "makes times too late: 'new' (distinct) comes before it"),
        (_second_reader, "'raw' reads the rows of 'lines', which have no times before 'parsed'"),
        (_earlier_reader, "'raw' reads the rows of 'lines' too"),
        (_idle_without_times, "source 'lines' has idle_timeout=, and its rows have no event times"),
    ],
)
def test_a_graph_with_rows_without_times_is_refused(build: Callable[[Topology], None], text: str) -> None:
    topology = Topology("t")
    with pytest.raises(TopologyError, match=rf"test_source_times\.py:.*{re.escape(text)}"):
        _specified(build, topology)


def _specified(build: Callable[[Topology], None], topology: Topology) -> None:
    build(topology)
    topology.specification()


def test_a_source_of_lines_has_rows_of_text() -> None:
    topology = Topology("t")
    topology.source("lines", lines("x.txt")).map(parsed, event_time="at").sink("out", collect)
    assert topology.steps[0].row_type is str
