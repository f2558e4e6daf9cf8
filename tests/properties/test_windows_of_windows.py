"""Windows over a union of rows and of other windows' results: watermarks may stand between panes that close at the same time."""

from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart import Pane, Topology, collect, count_of, hopping, records, sum_of, tumbling
from agiledart_dataflow.aggregation.panes import PaneWindow
from agiledart_dataflow.data.position import END
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.state.key_groups import restore_state, snapshot_of
from agiledart_dataflow.state.open_windows import window_entry_type
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row."""

    at: int
    key: int


def as_row(pane: Pane[int, int]) -> Row:
    return Row(pane.end_ms, pane.value % 7)


def topology(rows: list[Row]) -> Topology:
    made = Topology("t")
    source = made.source("rows", records(rows, row_type=Row), event_time=lambda row: row.at)
    window = tumbling(timedelta(milliseconds=9))
    panes = source.key_by(lambda row: row.key).window(window).aggregate("inner", sum_of(lambda row: row.at)).map(as_row)
    both = source.union(panes, name="both")
    both.key_by(lambda row: row.key).window(window).count("outer").sink("out", collect)
    both.sink("all", collect)
    return made


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@given(st.lists(st.integers(0, 6), min_size=20, max_size=60), st.integers(1, 1_000))
def test_nested_windows_are_the_same_under_every_schedule(parallelism: int, keys: list[int], seed: int) -> None:
    rows = [Row(number // 3, key) for number, key in enumerate(keys)]
    wanted = run_topology(topology(rows)).collected
    found = run_topology(topology(rows), parallelism=parallelism, schedule_seed=seed).collected
    assert sorted(found["out"]) == sorted(wanted["out"])
    assert sorted(found["all"]) == sorted(wanted["all"])


class Load(Enum):
    """A key without an order."""

    QUIET = 0
    BUSY = 1


def rekeyed(rows: list[Row], hop_ms: int) -> Topology:
    """A row is the first of several panes, which go by other keys into windows that end at one time."""
    made = Topology("t")
    source = made.source("rows", records(rows, row_type=Row), event_time=lambda row: row.at)
    windows = source.key_by(lambda row: row.key).window(
        hopping(timedelta(milliseconds=12), timedelta(milliseconds=hop_ms))
    )
    busy = windows.count("inner").key_by(lambda pane: Load(pane.value > 1), returns=Load)
    busy.window(tumbling(timedelta(milliseconds=20))).count("outer").sink("out", collect)
    return made


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.sampled_from((3, 4, 5, 12)), st.integers(1, 1_000))
def test_windows_of_hopping_windows_have_one_order(keys: list[int], hop_ms: int, seed: int) -> None:
    rows = [Row(2 * number, key) for number, key in enumerate(keys)]
    wanted = run_topology(rekeyed(rows, hop_ms)).collected["out"]
    for parallelism in (1, 2, 3):
        assert (
            run_topology(rekeyed(rows, hop_ms), parallelism=parallelism, schedule_seed=seed).collected["out"] == wanted
        )


def a_window() -> PaneWindow:
    codec = PlainCodec("w", lambda: window_entry_type(int, int))
    return PaneWindow("w", lambda row: row.key, Panes(9, 9), count_of(), codec)


KEYS = (3, 1, 2, 0)


def filled(window: PaneWindow) -> PaneWindow:
    """One row of each key, by records 10 to 13."""
    rows = [Row(5, key) for key in KEYS]
    assert window.run(rows, [(5, 1, 0, 10 + number) for number in range(4)], (5, 1, 0, 13, END)) == ([], [])
    return window


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_pane_leaves_when_the_watermark_passes_its_position(is_saved: bool) -> None:
    window = filled(a_window())
    seen: list[Any] = []
    for watermark in ((9, 0, 0, 9, END), (9, 0, 0, 11, END), (9, 0, 0, 12), (9, 0, END)):
        panes, at = window.run([], [], watermark)
        assert all(position <= watermark for position in at)
        seen += [(pane.key, pane.value) for pane in panes]
        if is_saved:
            before, window = snapshot_of(window), a_window()
            restore_state(window, before)
        if watermark == (9, 0, 0, 11, END):
            assert [key for key, _ in seen] == [3, 1]
    assert seen == [(key, 1) for key in KEYS]
    assert window.state_keys == 0
