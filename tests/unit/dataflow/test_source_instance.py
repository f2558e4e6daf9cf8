"""The source: lateness, order, numbers, pacing, the end, and what user code may do wrong there."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import ReadTime, Topology, UserCodeError, collect, records
from agiledart_dataflow.data.position import covering, final_watermark
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import ConfigurationError


class Row(NamedTuple):
    """A row with a time."""

    at: int
    read_at: ReadTime = ReadTime(0)


class Script:
    """A reader that gives preset rows, one reading at a time."""

    stamps = False

    def __init__(self, *readings: list[Row]) -> None:
        self.readings = list(readings)
        self.closed = False

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        if not self.readings:
            return Reading([], 0, {}, exhausted=True)
        rows = self.readings.pop(0)
        return Reading(rows, len(rows), {})

    def close(self) -> None:
        self.closed = True


def source(reader: Script, *, options: tuple[tuple[str, str], ...] = (), **arguments: Any) -> SourceInstance:
    """A source over a script."""
    topology = Topology("t")
    arguments.setdefault("event_time", lambda row: row.at)
    topology.source("rows", Connector("list", options=options, row_type=Row, payload=[]), **arguments).sink(
        "o", collect
    )
    return SourceInstance(compile_program(topology, plan_stages(topology.specification(), 1, "positions")), 0, reader)


def rows(*times: int) -> list[Row]:
    """Rows at these times."""
    return [Row(at) for at in times]


def times(instance: SourceInstance, now: int = 0) -> list[int]:
    """Event times of one poll."""
    batch = instance.poll(now, 50).batch
    return [] if batch is None else [position[0] for position in batch.order]


def test_records_are_numbered_and_stamped() -> None:
    polled = source(Script(rows(5, 5, 6))).poll(0, 77)
    assert polled.batch is not None
    assert polled.batch.order == [(5, 1, 0, 0), (5, 1, 0, 1), (6, 1, 0, 2)]
    assert polled.batch.watermark == covering((6, 1, 0, 2))
    assert [row.read_at for row in polled.batch.rows] == [77] * 3
    assert not polled.finished


def test_the_end_comes_once_with_the_last_time() -> None:
    instance = source(Script(rows(5)))
    instance.poll(0, 0)
    polled = instance.poll(0, 0)
    assert polled.finished
    assert polled.batch is not None
    assert (polled.batch.rows, polled.batch.watermark) == ([], final_watermark(5))


def test_an_empty_input_ends_at_once() -> None:
    polled = source(Script()).poll(0, 0)
    assert polled.finished
    assert polled.batch is not None
    assert polled.batch.watermark == final_watermark(None)


def test_a_record_before_the_newest_is_late_and_counted() -> None:
    instance = source(Script(rows(5, 4, 5, 9, 8)))
    assert times(instance) == [5, 5, 9]
    counts = instance.statistics().source
    assert counts is not None
    assert (counts.lines, counts.records, counts.late) == (5, 3, 2)


def test_disorder_within_the_tolerance_is_sorted() -> None:
    instance = source(Script(rows(10, 8, 12), rows(9), rows(20, 8)), max_out_of_order=timedelta(milliseconds=3))
    assert times(instance) == [8]
    assert times(instance) == [9]
    assert times(instance) == [10, 12]
    assert times(instance) == [20]
    counts = instance.statistics().source
    assert counts is not None
    assert (counts.late, counts.records, counts.waiting) == (1, 5, 0)


@pytest.mark.parametrize("time", [2**63 - 1, 2**64 - 1, -(2**63), 2**62])
@pytest.mark.parametrize("others", [(5,), (5, 6), (4, 9, 7)])
def test_a_time_that_no_window_can_hold_makes_one_record_malformed(time: int, others: tuple[int, ...]) -> None:
    instance = source(Script(rows(*others, time)), max_out_of_order=timedelta(milliseconds=5))
    instance.poll(0, 50)
    counts = instance.statistics().source
    assert counts is not None
    assert (counts.malformed, counts.lines) == ({"time": 1}, len(others) + 1)


def test_rows_without_types_and_without_a_time_are_malformed_one_by_one() -> None:
    given: list[dict[str, Any]] = [
        {"at": "2026-06-01T12:00:00Z"},
        {"id": 2},
        {"at": None},
        {"at": "soon"},
        {"at": 1_780_315_201},
    ]
    topology = Topology("t")
    topology.source("rows", records(given), rows=dict[str, Any], event_time="at").sink("out", collect)
    run = run_topology(topology)
    assert run.collected["out"] == [given[0], given[4]]
    assert run.summary.malformed == {"field": 1, "time": 2}


def test_records_that_check_rejects_are_malformed_and_move_nothing() -> None:
    instance = source(Script(rows(5, 99, 6)), check=lambda row: "far" if row.at > 50 else None)
    assert times(instance) == [5, 6]
    counts = instance.statistics().source
    assert counts is not None
    assert (counts.malformed, counts.late) == ({"far": 1}, 0)


def test_reasons_are_bounded() -> None:
    instance = source(Script(rows(*range(1_000))), check=lambda row: f"reason {row.at} " * 20)
    instance.poll(0, 0)
    counts = instance.statistics().source
    assert counts is not None
    assert len(counts.malformed) == 65
    assert sum(counts.malformed.values()) == 1_000
    assert max(map(len, counts.malformed)) == 40


def test_speed_paces_by_event_time() -> None:
    instance = source(Script(rows(1_000, 1_000, 3_000)), options=(("speed", "2"),))
    assert times(instance, now=500) == [1_000, 1_000]
    polled = instance.poll(600, 0)
    assert polled.batch is None
    assert polled.wait_until_ns == 500 + 1_000_000_000
    assert times(instance, now=500 + 999_999_999) == []
    assert times(instance, now=500 + 1_000_000_000) == [3_000]


def test_a_paced_record_is_read_when_it_is_due() -> None:
    instance = source(Script(rows(0, 1_000)), options=(("speed", "1"),))
    instance.poll(0, 100)
    polled = instance.poll(1_000_000_000, 200)
    assert polled.batch is not None
    assert polled.batch.rows == [Row(1_000, ReadTime(200))]


def test_records_repeated_after_a_restore_come_at_once() -> None:
    second_ns, wall = 1_000_000_000, 1_700_000_000 * 1_000_000_000
    options = (("speed", "1"),)

    def gone(instance: SourceInstance, seconds: float, since: int) -> list[int]:
        now = since + int(seconds * second_ns)
        polled = instance.poll(now, wall + int(seconds * second_ns))
        return [] if polled.batch is None else [row.at for row in polled.batch.rows]

    first = source(Script(rows(0, 1_000, 2_000, 3_000, 9_000)), options=options)
    assert gone(first, 0, 0) == [0]
    assert gone(first, 1, 0) == [1_000]
    saved = first.snapshot()
    assert gone(first, 3.5, 0) == [2_000, 3_000]
    # Its host dies; another one, whose monotonic clock is another, goes on from the snapshot half a second later.
    other = source(Script(), options=options)
    other.restore(saved)
    assert gone(other, 4, 77 * second_ns) == [2_000, 3_000], "sent rows wait for their time once more"
    assert gone(other, 8.9, 77 * second_ns) == []
    assert gone(other, 9, 77 * second_ns) == [9_000], "the outage is added to every delay"
    # A clock that was set back holds nothing up but for what had passed.
    third = source(Script(), options=options)
    third.restore(saved)
    assert gone(third, -3_600, 3_700 * second_ns) == []
    assert gone(third, -3_599, 3_700 * second_ns) == [2_000]


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "nan", "inf"])
def test_an_invalid_speed_is_rejected(speed: str) -> None:
    with pytest.raises(ConfigurationError, match="speed"):
        source(Script(), options=(("speed", speed),))


def test_a_reader_with_no_data_now_is_left_alone_for_a_while() -> None:
    polled = source(Script([])).poll(7, 0)
    assert polled.batch is None
    assert polled.wait_until_ns is not None
    assert polled.wait_until_ns > 7


def test_draining_sends_read_records_and_ends() -> None:
    instance = source(Script(rows(1, 2_000), rows(3_000)), options=(("speed", "1"),))
    instance.poll(0, 0)
    instance.drain()
    polled = instance.poll(1, 0)
    assert polled.finished
    assert polled.batch is not None
    assert [position[0] for position in polled.batch.order] == [2_000]


def test_no_more_rows_are_read_than_asked_for() -> None:
    instance = source(Script(rows(*range(10))))
    assert [len(times(instance)) for _ in range(1)] == [10]
    instance = source(Script(rows(*range(10))))
    polled = instance.poll(0, 0, 4)
    assert polled.batch is not None
    assert len(polled.batch) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_time": lambda row: row.missing},
        {"event_time": lambda row: None},
        {"check": lambda row: 1 // 0},
    ],
)
def test_an_exception_in_user_code_names_the_source_and_the_record(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserCodeError, match=r"in rows: .* for record Row\(at=5"):
        source(Script(rows(5)), **wrong).poll(0, 0)


def test_no_row_gets_lost_behind_one_whose_event_time_ends_an_iteration() -> None:
    shifts = [(0, 5), (6, 9)]  # 5 is in none, and `next` has nothing else to give
    wrong = source(
        Script(rows(4, 5, 6)), event_time=lambda row: next(row.at for begin, end in shifts if begin <= row.at < end)
    )
    with pytest.raises(UserCodeError, match=r"in rows: StopIteration.* for record Row\(at=5"):
        wrong.poll(0, 0)


def test_a_list_is_a_source() -> None:
    topology = Topology("t")
    topology.source("rows", records(rows(1)), event_time=lambda row: row.at).sink("out", collect)
    assert topology.steps[0].row_type is Row


def test_a_callable_that_raises_while_it_is_read_is_named() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    topology = Topology("t")
    topology.source("numbers", numbers, rows=int, event_time=lambda n: n).sink("out", collect)
    with pytest.raises(UserCodeError, match=r"^test_source_instance\.py:\d+ in numbers: KeyError: 'gone'$"):
        run_topology(topology)


def test_a_rewound_source_counts_its_dead_letters_once() -> None:
    class Broken(Script):
        def on_malformed(self, take: Any) -> None:
            self.take = take

        def read(self, max_rows: int, wall_ns: int) -> Reading:
            if not self.readings:
                return super().read(max_rows, wall_ns)
            self.take("x", "is none")
            rows = self.readings.pop(0)
            return Reading(rows, len(rows) + 1, {"form": 1})

    def begun(reader: Script) -> SourceInstance:
        topology = Topology("t")
        stream = topology.source("rows", Connector("list", row_type=Row), event_time="at", malformed="dead_letter")
        stream.sink("o", collect)
        stream.errors("broken").sink("letters", collect)
        return SourceInstance(
            compile_program(topology, plan_stages(topology.specification(), 1, "positions")), 0, reader
        )

    sent: list[tuple[int, list[Any], list[Any]]] = []

    def emit(edge: int, target: int, batch: Any) -> None:
        sent.append((edge, list(batch.rows), list(batch.order or [])))

    first = begun(Broken(rows(5), rows(7)))
    for _ in range(2):
        polled = first.poll(0, 50)
        assert polled.batch is not None
        first.send(polled.batch, emit)
    assert [order for _, _, order in sent] == [[(5, 1, 0, 0)], [(5, 1, 0, 1)], [(7, 1, 0, 2)], [(7, 1, 0, 3)]]
    second = begun(Broken(rows(9)))
    second.restore(first.snapshot())
    assert (counts := second.statistics().source) is not None
    assert counts.dead_letters == 2
    sent.clear()
    polled = second.poll(0, 50)
    assert polled.batch is not None
    second.send(polled.batch, emit)
    assert [order for _, _, order in sent] == [[(9, 1, 0, 4)], [(9, 1, 0, 5)]]
    assert (counts := second.statistics().source) is not None
    assert counts.dead_letters == 3
