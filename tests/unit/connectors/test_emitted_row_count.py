"""Rows given to a sink are counted durably; duplicates of a later attempt are reported by attempt."""

import time
from pathlib import Path
from typing import Any

import pytest

from agiledart_connectors.emitted_row_count import MAX_ATTEMPTS_COUNTED, CountedSink, EmittedRowCount
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_dataflow.counts.statistics import DuplicateCounts


def told(emitted_rows: EmittedRowCount) -> tuple[int, list[tuple[int, int]], bool]:
    return emitted_rows.counts.rows, emitted_rows.counts.attempts, emitted_rows.counts.is_known


def test_an_attempt_emits_again_the_rows_after_its_starting_epoch(tmp_path: Path) -> None:
    path = tmp_path / "opened" / "2.0.shown"
    first = EmittedRowCount(path, begins=True)
    first.count(100)
    first.count(60)
    assert told(first) == (0, [], True)

    second = EmittedRowCount(path, begins=False)  # the first one was not closed: its process was killed
    second.resume_at(100, 2)
    assert told(second) == (60, [(2, 60)], True)
    second.count(30)

    third = EmittedRowCount(path, begins=False)
    third.resume_at(100, 3)  # no epoch was committed since
    assert told(third) == (90, [(2, 60), (3, 30)], True)
    third.count(500)

    fourth = EmittedRowCount(path, begins=False)
    fourth.resume_at(600, 4)  # all of it was committed
    assert told(fourth) == (90, [(2, 60), (3, 30)], True)
    assert told(EmittedRowCount(path, begins=True)) == (0, [], True)


def test_recent_attempts_are_reported_singly_and_all_are_in_the_sum(tmp_path: Path) -> None:
    path = tmp_path / "x.shown"
    EmittedRowCount(path, begins=True).count(1)
    for attempt in range(2, MAX_ATTEMPTS_COUNTED + 10):
        emitted_rows = EmittedRowCount(path, begins=False)
        emitted_rows.resume_at(0, attempt)
        emitted_rows.count(1)
    assert emitted_rows.counts.rows == MAX_ATTEMPTS_COUNTED + 8
    assert [attempt for attempt, _ in emitted_rows.counts.attempts] == list(range(10, MAX_ATTEMPTS_COUNTED + 10))


def test_a_sink_moved_from_another_node_does_not_know_the_rows_emitted_there(tmp_path: Path) -> None:
    emitted_rows = EmittedRowCount(tmp_path / "x.shown", begins=False)
    emitted_rows.resume_at(700, 2)
    assert told(emitted_rows) == (0, [], False)


class Failing:
    """A sink that dies with what it is given."""

    def __init__(self) -> None:
        self.latency = LatencyRecorder(tuple, time.time_ns).histogram
        self.wrote: list[Any] = []

    def write(self, rows: list[Any]) -> None:
        self.wrote += rows
        raise KeyboardInterrupt

    write_columns = write

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("way", ["write", "write_columns"])
def test_rows_are_counted_before_they_are_visible(tmp_path: Path, way: str) -> None:
    path = tmp_path / "x.shown"
    with pytest.raises(KeyboardInterrupt):
        getattr(CountedSink(Failing(), EmittedRowCount(path, begins=True)), way)([1, 2, 3])
    after = EmittedRowCount(path, begins=False)
    after.resume_at(0, 2)
    assert after.counts == DuplicateCounts(3, [(2, 3)], True)
