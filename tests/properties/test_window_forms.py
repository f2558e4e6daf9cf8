"""Windows with named results while rows and columns come in turns, saved and restored anywhere, whatever arrays cannot hold."""

from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Topology, UserCodeError, col, collect, count, hopping, records, tumbling
from agiledart_dataflow.aggregation import named_panes, panes, vector_panes
from agiledart_dataflow.aggregation.pane_values import LONG
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import final_watermark
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from tests.properties.test_columnar_steps import Trip, fares, fresh, opened, same


class Part(NamedTuple):
    """How many rows come at once, in which form, and whether the instance then goes on from a snapshot."""

    size: int
    in_columns: bool
    is_saved: bool


def trips(
    times: tuple[int, int], vehicles: list[int], tips: st.SearchStrategy[float | None]
) -> st.SearchStrategy[Trip]:
    """Rows of these times and vehicles."""
    return st.builds(Trip, st.integers(*times), st.sampled_from("ab"), st.sampled_from(vehicles), fares, tips)


def tables(tips: st.SearchStrategy[float | None]) -> st.SearchStrategy[list[Trip]]:
    """Rows in order of time; a few, not among the first, are of vehicles that arrays cannot cope with."""
    usual = trips((0, 90), [1, 2, 4, 5, 6], st.none() | st.floats(-5, 5))
    rows = st.tuples(st.lists(usual, min_size=10, max_size=50), st.lists(trips((40, 90), [3, 9], tips), max_size=2))
    return rows.map(lambda two: sorted([*two[0], *two[1]], key=lambda row: row.at))


rarely = st.sampled_from([False, False, False, True])
parts = st.lists(st.builds(Part, st.integers(1, 12), st.booleans(), rarely), min_size=1, max_size=12)
BY_ROWS = [Part(7, in_columns=False, is_saved=False)]
WINDOWS = {
    "tumbling": tumbling(timedelta(milliseconds=80)),
    "hopping": hopping(timedelta(milliseconds=80), timedelta(milliseconds=20)),
}


def guarded() -> Any:
    """An expression that raises for vehicle 3: over rows where there is no tip, over columns in any case."""
    return col("tip").fill_null(col("fare") / (col("vehicle") - 3))


RESULTS: dict[str, Any] = {
    "count": lambda: {"n": count()},
    "one": lambda: {"total": col("vehicle").sum()},
    "several": lambda: {"n": count(), "mean": (col("fare") * 2).mean(), "first": col("at").min(), "v": col("at").sum()},
    "guarded": lambda: {"n": count(), "total": guarded().sum()},
    "beyond 64 bits": lambda: {"least": (col("vehicle") * 2**60).min()},
}


def program_of(keys: list[Any], window: str, results: str, policy: Any) -> Program:
    """A topology whose stage 1 is the window."""
    topology = Topology("forms")
    keyed = topology.source("trips", records([], row_type=Trip), event_time="at", rows=Trip).key_by(*keys)
    keyed.window(WINDOWS[window]).aggregate("stats", on_error=policy, **RESULTS[results]()).sink("out", collect)
    return compile_program(topology, plan_stages(topology.specification(), 1))


def outcome(program: Program, rows: list[Trip], parts: list[Part]) -> tuple[list[Any], Instance]:
    """Output of the window when rows come in these parts, again and again."""
    out: list[Any] = []
    instance = Instance(program, 1, 0)
    place = turn = 0
    while place < len(rows):
        size, in_columns, is_saved = parts[turn % len(parts)]
        part = rows[place : place + size]
        times = [row.at for row in part]
        batch = Batch(fresh(part), np.array(times), (times[-1],)) if in_columns else Batch(part, times, (times[-1],))
        work(instance, batch, out)
        if is_saved:
            saved = instance.snapshot()
            instance = Instance(program, 1, 0)
            instance.restore(saved)
            assert instance.snapshot() == saved
        place, turn = place + size, turn + 1
    work(instance, Batch([], None, final_watermark(rows[-1].at if rows else None)), out)
    return out, instance


def work(instance: Instance, batch: Batch, out: list[Any]) -> None:
    """One batch."""
    instance.offer(0, 0, batch)
    while instance.work(lambda edge, target, made: out.extend(made.rows)):
        """Some is left."""


def told(program: Program, rows: list[Trip], parts: list[Part]) -> list[Any] | str:
    """The output, or the user's error."""
    try:
        out, instance = outcome(program, rows, parts)
    except UserCodeError as error:
        return str(error)
    counts = instance.statistics().steps["stats"]
    return [*out, (counts.taken, counts.skipped, counts.failed)]


@settings(deadline=None, max_examples=150)
@given(
    st.tuples(tables(st.floats(-5, 5)), st.just("fail")) | st.tuples(tables(st.none()), st.just("skip")),
    parts,
    st.sampled_from([[col("zone")], [col("zone"), col("vehicle")], [guarded()]]),
    st.sampled_from(sorted(WINDOWS)),
    st.sampled_from(sorted(RESULTS)),
    st.sampled_from([8, 1_024]),
    st.sampled_from([3, 32_768]),
)
def test_any_mixture_of_forms_equals_rows(
    rows_and_policy: tuple[list[Trip], str],
    parts: list[Part],
    keys: list[Any],
    window: str,
    results: str,
    worth_columns: int,
    few: int,
) -> None:
    rows, policy = rows_and_policy
    program = program_of(keys, window, results, policy)
    wanted = told(program, rows, BY_ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(named_panes, "_WORTH_COLUMNS", worth_columns)
        patch.setattr(vector_panes.OpenVectorWindow, "__init__", opened(few))
        patch.setattr(vector_panes, "FOLD_AT", few)
        patch.setattr(panes, "COMPACT_EVERY", few)
        patch.setattr(panes, "LONG", min(few, LONG))
        got = told(program, rows, parts)
    assert len(got) == len(wanted)
    assert all(map(same, got, wanted)), (got, wanted)


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("tip", [2.0, None])
@pytest.mark.parametrize("turns", ["crc", "ccr", "rcr", "rcc"])
@pytest.mark.parametrize(
    ("key", "results", "vehicle"),
    [(guarded(), "count", 3), (col("zone"), "guarded", 3), (col("zone"), "beyond 64 bits", 9)],
)
def test_one_row_returns_the_window_to_rows(
    key: Any, results: str, vehicle: int, turns: str, tip: float | None, policy: str
) -> None:
    program = program_of([key], "tumbling", results, policy)
    rows = [Trip(at, "a", vehicle if at == 4 else 1, 1.0, tip) for at in range(9)]
    in_turns = [Part(3, in_columns=turn == "c", is_saved=False) for turn in turns]
    assert told(program, rows, in_turns) == told(program, rows, BY_ROWS)


def instance_of(results: str) -> Instance:
    """A window by zone that has seen rows, then columns."""
    rows = [Trip(at, "ab"[at % 2], at, 1.0, None) for at in range(6)]
    parts = [Part(3, in_columns=False, is_saved=True), Part(3, in_columns=True, is_saved=False)]
    return outcome(program_of([col("zone")], "tumbling", results, "fail"), rows, parts)[1]


@pytest.mark.parametrize("results", ["count", "one", "several"])
def test_rows_that_came_before_columns_move_into_columns(results: str) -> None:
    operator: Any = instance_of(results).steps.operator
    assert operator.takes_columns
    assert operator._vectors is not None
