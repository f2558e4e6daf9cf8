"""Steps of expressions, functions of batches and windows with named results: rows and columns give the same, in any mixture."""

from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute  # pa.compute is there only then
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Topology, UserCodeError, col, collect, count, hopping, maximum, records, tumbling, when
from agiledart_dataflow.aggregation import vector_panes
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.plan.connectors import Reading
from agiledart_executor.local_runs import local_run
from agiledart_executor.local_runs.local_run import run_topology


class Trip(NamedTuple):
    """A row."""

    at: int
    zone: str
    vehicle: int
    fare: float
    tip: float | None


class Batches:
    """A reader that gives rows as they are, or as columns, in batches of the sizes given."""

    stamps = False

    def __init__(self, rows: list[Trip], sizes: list[tuple[int, bool]]) -> None:
        self._parts = self._cut(rows, sizes)

    @staticmethod
    def _cut(rows: list[Trip], sizes: list[tuple[int, bool]]) -> Iterator[Any]:
        place, turn = 0, 0
        while place < len(rows):
            size, in_columns = sizes[turn % len(sizes)]
            part = rows[place : place + size]
            yield fresh(part) if in_columns else part
            place, turn = place + size, turn + 1

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        part = next(self._parts, None)
        return Reading([], 0, {}, exhausted=True) if part is None else Reading(part, len(part))

    def close(self) -> None:
        """Nothing is held."""


def fresh(rows: list[Trip]) -> Columns:
    """Columns that have forgotten their rows."""
    columns = Columns.from_rows(rows, Trip)
    return columns.replaced(Trip, {field.name: columns.named(field.name) for field in columns.schema.fields})


def doubled(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A function of arrays."""
    return {**batch, "fare": batch["fare"] * 2}


def with_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A function of a record batch."""
    return batch.set_column(batch.schema.get_field_index("vehicle"), "vehicle", pa.compute.add(batch["vehicle"], 1))


def stateless(name: str) -> Topology:
    """Functions of rows, of batches, and expressions, in turns."""
    topology = Topology(name)
    (
        topology.source("trips", records([]), event_time="at", rows=Trip)
        .where(col("fare") >= 3)
        .map(lambda row: row._replace(vehicle=row.vehicle + 1), "plus", returns=Trip)
        .with_columns(ratio=col("tip").fill_null(0.0) / col("fare"), zone=col("zone").upper())
        .map_batches(doubled)
        .map_batches(with_arrow)
        .select(
            "zone", "vehicle", big=maximum(col("fare"), 20), when_=when(col("tip").is_null()).then(1).otherwise(None)
        )
        .filter(lambda row: row.vehicle % 3 != 0, "not-third")
        .where(~col("zone").contains("B") | (col("vehicle") > 5))
        .sink("out", collect)
    )
    return topology


def windowed(name: str, every: int, key: Any) -> Topology:
    """A window with every aggregate."""
    topology = Topology(name)
    window = (
        tumbling(timedelta(milliseconds=20))
        if every == 20
        else hopping(timedelta(milliseconds=20), timedelta(milliseconds=every))
    )
    stream = topology.source("trips", records([]), event_time="at", rows=Trip).where(col("fare") != 7.0)
    (
        stream.key_by(*key)
        .window(window)
        .aggregate(
            "stats",
            trips=count(),
            fares=col("fare").sum(),
            mean=col("fare").mean(),
            least=col("fare").min(),
            greatest=col("vehicle").max(),
            vehicles=col("vehicle").sum(),
        )
        .sink("out", collect)
    )
    return topology


def results(topology: Topology, rows: list[Trip], sizes: list[tuple[int, bool]], **how: Any) -> list[Any]:
    """Output when the source gives these batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_run, "open_source", lambda *_, **__: Batches(rows, sizes))
        patch.setattr("agiledart_dataflow.operators.segments.FEW_ROWS", 2)
        return list(run_topology(topology, **how).collected["out"])


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit."""
    if isinstance(one, float) and isinstance(other, float):
        return (isnan(one) and isnan(other)) or (one == other and str(one) == str(other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


fares = st.sampled_from([2.5, 3.0, 7.0, 0.1, 1e17, -1e17, 12.25, 1e-9]) | st.floats(-100, 100)
tables = st.lists(
    st.builds(Trip, st.integers(0, 90), st.sampled_from("abC"), st.integers(0, 9), fares, st.none() | st.floats(-5, 5)),
    max_size=60,
).map(lambda rows: sorted(rows, key=lambda row: row.at))
cuts = st.lists(st.tuples(st.integers(1, 25), st.booleans()), min_size=1, max_size=6)
ROWS = [(7, False)]
KEYS: dict[str, Any] = {
    "zone": lambda: [col("zone")],
    "vehicle": lambda: [col("vehicle")],
    "both": lambda: [col("zone"), col("vehicle")],
    "expression": lambda: [col("vehicle") % 2 == 0],
}


@settings(deadline=None, max_examples=60)
@given(tables, cuts)
def test_a_chain_of_all_kinds_of_steps_equals_rows(rows: list[Trip], sizes: list[tuple[int, bool]]) -> None:
    wanted = results(stateless("rows"), rows, ROWS)
    got = results(stateless("mixed"), rows, sizes)
    assert len(got) == len(wanted)
    assert all(map(same, got, wanted))
    expected = [
        (zone.upper(), vehicle + 2, max(fare * 2, 20.0), 1 if tip is None else None)
        for _, zone, vehicle, fare, tip in rows
        if fare >= 3 and (vehicle + 2) % 3 and (zone.upper() != "B" or vehicle + 2 > 5)
    ]
    assert all(same(tuple(a), b) for a, b in zip(wanted, expected, strict=True))


@settings(deadline=None, max_examples=60)
@given(
    tables,
    cuts,
    st.sampled_from([20, 10, 4]),
    st.sampled_from(["zone", "vehicle", "both", "expression"]),
    st.sampled_from([4, 32_768]),
)
def test_windows_with_named_results_equal_rows(
    rows: list[Trip], sizes: list[tuple[int, bool]], every: int, key: str, fold_at: int
) -> None:
    keys = KEYS[key]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_panes, "FOLD_AT", fold_at)
        patch.setattr(vector_panes.OpenVectorWindow, "__init__", opened(fold_at))
        got = results(windowed("mixed", every, keys), rows, sizes)
    wanted = results(windowed("rows", every, keys), rows, ROWS)
    assert len(got) == len(wanted)
    assert all(map(same, got, wanted)), (got, wanted)
    hostile = results(windowed("spread", every, keys), rows, sizes, parallelism=3, schedule_seed=len(rows))
    assert all(map(same, hostile, wanted))
    assert all(map(same, [row[-6:] for row in wanted], expected(rows, every, key)))


def opened(fold_at: int) -> Any:
    """Makes windows that fold after so many rows."""

    def made(self: Any) -> None:
        self.pieces, self.rows, self.folded, self.fold_at = [], 0, None, fold_at

    return made


def expected(rows: list[Trip], every: int, key: str) -> list[tuple[Any, ...]]:
    """The definition, slowly; windows by end, keys in the order in which they come first."""
    of: Any = {
        "zone": lambda row: row.zone,
        "vehicle": lambda row: row.vehicle,
        "both": lambda row: (row.zone, row.vehicle),
        "expression": lambda row: row.vehicle % 2 == 0,
    }[key]
    kept = [row for row in rows if row.fare != 7.0]
    out = []
    for end in sorted({end for row in kept for end in range(row.at - row.at % every + every, row.at + 21, every)}):
        groups: dict[Any, list[Trip]] = {}
        for row in kept:
            if end - 20 <= row.at < end:
                groups.setdefault(of(row), []).append(row)
        for group in groups.values():
            total = float(sum(Fraction(row.fare) for row in group))
            least = min(row.fare for row in group) + 0.0
            numbers = [row.vehicle for row in group]
            out.append((len(group), total, total / len(group), least, max(numbers), sum(numbers)))
    return out


def test_an_odd_batch_goes_through_the_loop_over_rows() -> None:
    rows = [Trip(i, "a", i, float(i % 3), None) for i in range(30)]
    topology = Topology("guarded")
    (
        topology.source("trips", records([]), event_time="at", rows=Trip)
        .with_columns(ratio=col("vehicle") / col("fare"), on_error="skip")
        .sink("out", collect)
    )
    kept = results(topology, rows, [(10, True)])
    assert [row.vehicle for row in kept] == [i for i in range(30) if i % 3]


def timed(event_time: Any) -> Topology:
    """A source with this event time."""
    topology = Topology("timed")
    topology.source("trips", records([]), event_time=event_time, rows=Trip).where(col("at") >= 0).sink("out", collect)
    return topology


@settings(deadline=None, max_examples=30)
@given(tables, cuts)
def test_an_event_time_that_raises_over_columns_only_is_retried_over_rows(
    rows: list[Trip], sizes: list[tuple[int, bool]]
) -> None:
    guarded = when((col("vehicle") == 0) | (col("at") // col("vehicle") >= 0)).then(col("at")).otherwise(0)
    assert results(timed(guarded), rows, sizes) == rows


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("event_time", [col("at") // col("vehicle"), 5 // col("vehicle")])
def test_an_event_time_that_raises_names_the_record(event_time: Any, in_columns: bool) -> None:
    rows = [Trip(at, "a", 1 if at < 5 else 0, 1.0, None) for at in range(9)]
    with pytest.raises(UserCodeError, match=r"in trips: ZeroDivisionError.* for record Trip\(at=5,"):
        results(timed(event_time), rows, [(9, in_columns)])


def test_ints_beyond_64_bits_return_the_window_to_rows() -> None:
    rows = [Trip(i, "a", 2**62 if i > 4 else i, 1.0, None) for i in range(30)]
    topology = Topology("large")
    (
        topology.source("trips", records([]), event_time="at", rows=Trip)
        .key_by(col("zone"))
        .window(tumbling(timedelta(milliseconds=100)))
        .aggregate(
            "sums", total=(col("vehicle") * 1).sum(), fourfold=(col("vehicle") * 4).max(), mean=col("vehicle").mean()
        )
        .sink("out", collect)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_run, "_TRIED_BATCHES", 0)
        (row,) = results(topology, rows, [(10, True), (3, False)])
    assert (row.total, row.fourfold, row.mean) == (25 * 2**62 + 10, 2**64, (25 * 2**62 + 10) / 30)
