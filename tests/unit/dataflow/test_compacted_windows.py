"""Open windows over rows compute as rows come, so that little is left to compute when a window closes."""

from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, all_of, col, collect, max_of, sum_of, tumbling
from agiledart_dataflow.aggregation.named_panes import NamedPanes
from agiledart_dataflow.aggregation.pane_values import LONG
from agiledart_dataflow.aggregation.panes import COMPACT_EVERY
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.data.columns import Columns
from agiledart_executor.local_runs.local_run import run_topology


class Reading(NamedTuple):
    """Reading of a sensor."""

    at: int
    sensor: str
    value: float


def window() -> NamedPanes:
    """A window that sums and compares the readings of each sensor."""
    from agiledart_dataflow.aggregation.make_operator import make_operator
    from agiledart_dataflow.plan.stages import plan_stages
    from agiledart_dataflow.runtime.program import compile_program

    topology = Topology("readings")
    readings = topology.source("readings", [Reading(0, "a", 0.0)], rows=Reading, event_time=lambda row: row.at)
    panes = readings.key_by(col("sensor")).window(tumbling(timedelta(seconds=100)))
    value = col("value")
    panes.aggregate("all", total=value.sum(), least=value.min(), mean=value.mean()).sink("out", collect)
    program = compile_program(topology, plan_stages(topology.specification()))
    made = make_operator(program.steps(1)[0], Reading, positions=False)
    assert isinstance(made, NamedPanes)
    return made


def fed(operator: NamedPanes, rows: list[Reading], *, columns: bool = False) -> None:
    held: Any = Columns.from_rows(rows, Reading) if columns else rows
    out, _ = operator.run_batch(held, [row.at for row in rows], (rows[-1].at,))
    assert not len(out)


def closed(operator: NamedPanes) -> list[Any]:
    return [tuple(row) for row in as_rows(operator.run_batch([], [], (100_000,))[0])]


def test_little_is_left_to_compute_when_a_window_closes() -> None:
    operator, rows = window(), [Reading(at, "abc"[at % 3], at / 7) for at in range(6_000)]
    for start in range(0, len(rows), 5):
        fed(operator, rows[start : start + 5])
        panes = operator.inner.store.panes.values()
        assert sum(len(values) for pane in panes for values in pane.values()) < COMPACT_EVERY + 3 * LONG
    whole = window()
    fed(whole, rows[: COMPACT_EVERY - 1])
    fed(whole, rows[COMPACT_EVERY - 1 :])
    assert closed(operator) == closed(whole)


@pytest.mark.parametrize("first", ["rare", "frequent"])
def test_a_window_with_compacted_keys_becomes_columns(first: str) -> None:
    pytest.importorskip("numpy")
    rare = Reading(0, "rare", 2.5)
    frequent = [Reading(at, "frequent", at / 3) for at in range(1, 700)]
    rows = [rare, *frequent] if first == "rare" else [*frequent, rare._replace(at=699)]
    more = [Reading(700 + at, ("rare", "frequent", "new")[at % 3], -at / 9) for at in range(300)]
    by_row, by_column = window(), window()
    for operator in (by_row, by_column):
        fed(operator, rows)
    fed(by_row, more)
    fed(by_column, more, columns=True)
    assert by_column.takes_columns
    assert closed(by_column) == closed(by_row)


def test_small_columns_are_joined_before_a_window_closes() -> None:
    pytest.importorskip("numpy")
    from agiledart_dataflow.aggregation.vector_panes import JOIN_PIECES

    by_row, by_column, rows = window(), window(), [Reading(at, "abc"[at % 3], at / 7) for at in range(6_000)]
    fed(by_row, rows)
    for start in range(0, len(rows), 3):
        fed(by_column, rows[start : start + 3], columns=True)
    assert by_column._vectors is not None
    (pieces,) = [opened.pieces for opened in by_column._vectors.open.values()]
    assert len(pieces) < 2 * JOIN_PIECES
    assert closed(by_column) == closed(by_row)


def test_a_burst_that_came_as_columns_does_not_keep_a_window_in_columns() -> None:
    pytest.importorskip("numpy")
    operator = window()
    times = range(0, 400_000, 500)
    for number, start in enumerate(times):
        rows = [Reading(start + at, "abc"[at % 3], at / 7) for at in range(0, 500, 50)]
        held: Any = Columns.from_rows(rows, Reading) if number == 20 else rows
        operator.run_batch(held, [row.at for row in rows], (rows[-1].at,))
        assert (operator.inner.store.panes == {}) is (10_000 <= start < 200_000), start


@pytest.mark.parametrize("count", [10, 3_000])
def test_values_that_cannot_be_compared_skip_their_result_and_no_other(count: int) -> None:
    rows = [(at, "mixed", "text" if at % 2 else 1) for at in range(count)]
    rows += [(count, "fit", 5), (count, "fit", 6)]
    topology = Topology("values")
    source = topology.source("rows", rows, rows=tuple[int, str, int | str], event_time=lambda row: row[0])
    aggregate: Any = all_of(max_of(lambda row: row[2]), sum_of(lambda row: 1))
    panes = source.key_by(lambda row: row[1]).window(tumbling(timedelta(seconds=100)))
    panes.aggregate("all", aggregate, on_error="skip").sink("out", collect)
    results = run_topology(topology).collected["out"]
    assert [(pane.key, pane.value) for pane in results] == [("fit", (6, 2))]
