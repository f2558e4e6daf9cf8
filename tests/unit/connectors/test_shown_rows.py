"""What a sink was given is counted where its process's death does not lose it; what a later life brings again is told by life."""

import time
from pathlib import Path
from typing import Any

import pytest

from agiledart_dataflow.counts.statistics import RepeatCounts
from agiledart_executor.connectors.memory import ReadTimes
from agiledart_executor.connectors.shown_rows import LIVES, CountedSink, ShownRows


def told(shown: ShownRows) -> tuple[int, list[tuple[int, int]], bool]:
    return shown.counts.rows, shown.counts.lives, shown.counts.is_known


def test_a_life_brings_again_what_was_given_behind_the_epoch_that_it_begins_at(tmp_path: Path) -> None:
    path = tmp_path / "opened" / "2.0.shown"
    first = ShownRows(path, begins=True)
    first.count(100)
    first.count(60)
    assert told(first) == (0, [], True)

    second = ShownRows(path, begins=False)  # nobody closed the first one: its process was killed
    second.begin_at(100, 2)
    assert told(second) == (60, [(2, 60)], True)
    second.count(30)

    third = ShownRows(path, begins=False)
    third.begin_at(100, 3)  # no epoch was committed since
    assert told(third) == (90, [(2, 60), (3, 30)], True)
    third.count(500)

    fourth = ShownRows(path, begins=False)
    fourth.begin_at(600, 4)  # all of it was committed
    assert told(fourth) == (90, [(2, 60), (3, 30)], True)
    assert told(ShownRows(path, begins=True)) == (0, [], True)


def test_the_last_lives_are_told_one_by_one_and_all_are_in_the_sum(tmp_path: Path) -> None:
    path = tmp_path / "x.shown"
    ShownRows(path, begins=True).count(1)
    for life in range(2, LIVES + 10):
        shown = ShownRows(path, begins=False)
        shown.begin_at(0, life)
        shown.count(1)
    assert shown.counts.rows == LIVES + 8
    assert [life for life, _ in shown.counts.lives] == list(range(10, LIVES + 10))


def test_a_sink_that_comes_from_another_node_does_not_know_what_was_shown_there(tmp_path: Path) -> None:
    shown = ShownRows(tmp_path / "x.shown", begins=False)
    shown.begin_at(700, 2)
    assert told(shown) == (0, [], False)


class Failing:
    """A sink that dies with what it is given."""

    def __init__(self) -> None:
        self.latency = ReadTimes(tuple, time.time_ns).histogram
        self.wrote: list[Any] = []

    def write(self, rows: list[Any]) -> None:
        self.wrote += rows
        raise KeyboardInterrupt

    write_columns = write

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("way", ["write", "write_columns"])
def test_rows_are_counted_before_anybody_can_see_them(tmp_path: Path, way: str) -> None:
    path = tmp_path / "x.shown"
    with pytest.raises(KeyboardInterrupt):
        getattr(CountedSink(Failing(), ShownRows(path, begins=True)), way)([1, 2, 3])
    after = ShownRows(path, begins=False)
    after.begin_at(0, 2)
    assert after.counts == RepeatCounts(3, [(2, 3)], True)
