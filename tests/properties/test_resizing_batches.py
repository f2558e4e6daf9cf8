"""`map_batches(…, resizes=True)`: fewer or more rows, with the results of `flat_map`, whatever goes with rows and how they come."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import Stream, Topology, UserCodeError, col, collect, count, records, sliding, tumbling
from tests.properties.test_columnar_steps import Trip, results

MS = timedelta(milliseconds=1)


def copies(trip: Trip) -> list[Trip]:
    """None of vehicle 0, two of vehicle 2, and so on, numbered in the fare."""
    return [trip._replace(fare=float(number)) for number in range(trip.vehicle)]


def origins_of(vehicles: Any) -> tuple[Any, Any]:
    """(origins, numbers of the copies) of a batch."""
    origins = np.repeat(np.arange(len(vehicles)), vehicles)
    firsts = np.concatenate(([0], np.cumsum(vehicles)[:-1])) if len(vehicles) else np.array([], dtype=np.int64)
    return origins, (np.arange(len(origins)) - firsts[origins]).astype(np.float64)


def with_arrays(batch: dict) -> Any:  # type: ignore[type-arg]  # of arrays
    """NumPy."""
    origins, numbers = origins_of(batch["vehicle"])
    return {**{name: values[origins] for name, values in batch.items()}, "fare": numbers}, origins


def with_arrow(batch: pa.RecordBatch) -> Any:
    """Arrow."""
    origins, numbers = origins_of(np.asarray(batch["vehicle"]))
    made = batch.take(pa.array(origins))
    return made.set_column(batch.schema.get_field_index("fare"), "fare", pa.array(numbers)), pa.array(origins)


def with_polars() -> Callable[[Any], Any]:
    """Polars, where it is installed; its frames number their rows themselves."""
    pl = pytest.importorskip("polars", reason="polars is not installed (pip install 'agiledart[polars]')")

    def copied(batch: Any) -> Any:
        made = batch.with_row_index("origin").select(pl.all().repeat_by("vehicle").explode(empty_as_null=False))
        fare = pl.int_range(pl.len()).over("origin").cast(pl.Float64)
        return made.with_columns(fare=fare).drop("origin"), made["origin"]

    copied.__annotations__ = {"batch": pl.DataFrame}
    return copied


def plain(stream: Stream[Trip]) -> Any:
    """Nothing goes with rows."""
    return stream.where(col("fare") >= 0)


def in_windows(stream: Stream[Trip]) -> Any:
    """Times go with rows."""
    return stream.key_by(col("zone")).window(tumbling(20 * MS)).aggregate("n", n=count(), most=col("fare").max())


def in_order(stream: Stream[Trip]) -> Any:
    """Positions go with rows."""
    return stream.key_by(lambda row: row.zone).window(sliding(9 * MS)).count("n")


tables = st.lists(
    st.builds(
        Trip, st.integers(0, 60), st.sampled_from("abc"), st.integers(0, 3), st.just(1.0), st.none() | st.just(2.0)
    ),
    max_size=40,
).map(lambda rows: sorted(rows, key=lambda row: row.at))
batches = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=4)


@pytest.mark.parametrize("form", ["arrays", "arrow", "polars"])
@pytest.mark.parametrize("behind", [plain, in_windows, in_order])
def test_resizing_batches_equals_flat_map(form: str, behind: Callable[[Stream[Trip]], Any]) -> None:
    function = {"arrays": lambda: with_arrays, "arrow": lambda: with_arrow, "polars": with_polars}[form]()

    @given(rows=tables, sizes=batches, parallelism=st.integers(1, 3))
    @settings(max_examples=12, deadline=None)
    def holds(rows: list[Trip], sizes: list[tuple[int, bool]], parallelism: int) -> None:
        made = []
        for resized in (True, False):
            topology = Topology("resized")
            stream = topology.source("trips", records([]), event_time="at", rows=Trip)
            several = (
                stream.map_batches(function, "copies", resizes=True)
                if resized
                else stream.flat_map(copies, returns=Trip)
            )
            behind(several).sink("out", collect)
            made.append(results(topology, rows, sizes, parallelism=parallelism if resized else 1))
        assert made[0] == made[1]

    holds()


def misused(returned: Callable[[dict[str, Any]], Any], *, resizes: bool = True) -> str:
    """The message about a function with another return type."""

    def function(batch: dict) -> Any:  # type: ignore[type-arg]  # of arrays
        return returned(batch)

    topology = Topology("misused")
    rows = [Trip(at, "a", 1, 1.0, None) for at in range(3)]
    stream = topology.source("trips", records([]), event_time="at", rows=Trip)
    stream.map_batches(function, resizes=resizes).sink("out", collect)
    with pytest.raises(UserCodeError) as told:
        results(topology, rows, [(3, True)])
    return str(told.value)


def test_invalid_return_values_are_reported() -> None:
    assert "with resizes=True it returns (rows, origins)" in misused(lambda batch: batch)
    assert "it returned 3 rows and 2 origins" in misused(lambda batch: (batch, [0, 1]))
    assert "origins count up from 0 to 2" in misused(lambda batch: (batch, [0, 1, 3]))
    assert "origins count up from 0 to 2" in misused(lambda batch: (batch, [-1, 1, 2]))
    assert "origins count up from 0 to 2" in misused(lambda batch: (batch, [1, 0, 2]))
    assert "origins are whole numbers" in misused(lambda batch: (batch, [0.0, 1.0, 2.0]))
    fewer = lambda batch: {name: values[:2] for name, values in batch.items()}  # noqa: E731  said once
    assert (
        "it took 3 rows and returned 2; to drop rows use .where after it, or map_batches(…, resizes=True)"
        in misused(fewer, resizes=False)
    )


def test_omitted_rows_are_counted() -> None:
    from agiledart_executor.local_runs.local_run import run_topology

    topology = Topology("counted")
    rows = [Trip(at, "a", at % 3, 1.0, None) for at in range(9)]
    stream = topology.source("trips", records(rows), event_time="at", rows=Trip)
    some: Any = stream.map_batches(with_arrays, "copies", resizes=True).where(col("fare") < 0)
    some.map_batches(with_arrays, "none", resizes=True).sink("out", collect)
    done = run_topology(topology)
    counts = done.summary.steps["copies"]
    assert (counts.rows_in, counts.rows_out, counts.dropped) == (9, 9, 3)
    assert (done.summary.steps["none"].rows_in, done.collected["out"]) == (0, [])
