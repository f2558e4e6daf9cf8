"""Parquet files and callables that yield batches, in columns and in rows."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from agiledart import ReadTime, Source, Topology, batches, col, collect, parquet
from agiledart_connectors.opening import open_source
from agiledart_dataflow.data.batch import as_rows
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import ConfigurationError, OperationFailed


class Trip(NamedTuple):
    """A row."""

    at: datetime
    zone: str
    fare: float
    tip: float | None
    read_at: ReadTime


START = datetime.fromisoformat("2013-01-01")
TABLE = pa.table(
    {
        "fare": pa.array(np.arange(25_000) / 4),
        "zone": pa.array([f"z{i % 3}" for i in range(25_000)]),
        "at": pa.array([START] * 25_000, pa.timestamp("ms")),
        "tip": pa.array([None if i % 2 else 1.0 for i in range(25_000)]),
    }
)


def run(source: Any, *, by_rows: bool) -> list[Any]:
    """Results of expressions over it."""
    topology = Topology("batches")
    stream = topology.source("trips", source, event_time="at", rows=Trip)
    if by_rows:
        stream = stream.filter(lambda row: True, "all")
    stream.where(col("fare") > 6_000).select("zone", "at", total=col("fare") + col("tip").fill_null(0.0)).sink(
        "out", collect
    )
    return [tuple(row) for row in run_topology(topology).collected["out"]]


def expected() -> list[Any]:
    """The same without the helper."""
    return [(f"z{i % 3}", START, i / 4 + (0.0 if i % 2 else 1.0)) for i in range(25_000) if i / 4 > 6_000]


@pytest.mark.parametrize("by_rows", [False, True])
def test_a_parquet_file_is_read(tmp_path: Path, by_rows: bool) -> None:
    path = tmp_path / "trips.parquet"
    pyarrow.parquet.write_table(TABLE, path, row_group_size=9_000)
    assert run(parquet(str(path)), by_rows=by_rows) == expected()


def test_an_unselected_field_is_read_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "trips.parquet"
    pyarrow.parquet.write_table(TABLE, path, row_group_size=9_000)
    reader = open_source(parquet(str(path)), Trip, columns=True, wanted=frozenset({"fare"}))
    reader.read(1, 7)
    rows = as_rows(reader.read(1, 7).rows)
    assert rows[0] == Trip(START, "z1", 2_500.0, 1.0, ReadTime(7))
    assert len(rows) == 10_000


def test_an_invalid_parquet_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_text("no")
    pyarrow.parquet.write_table(TABLE.drop_columns(["tip"]), tmp_path / "less.parquet")
    with pytest.raises(OperationFailed, match=r"there\.parquet"):
        open_source(parquet(str(tmp_path / "there.parquet")), Trip)
    with pytest.raises(OperationFailed, match=r"no\.parquet"):
        open_source(parquet(str(tmp_path / "no.parquet")), Trip)
    with pytest.raises(ConfigurationError, match="no column tip"):
        open_source(parquet(str(tmp_path / "less.parquet")), Trip)


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("form", ["arrow", "arrays"])
def test_a_callable_may_yield_batches(by_rows: bool, form: str) -> None:
    def make() -> Iterator[Any]:
        table = TABLE.append_column("read_at", pa.array(np.zeros(25_000, np.int64)))
        for batch in table.to_batches(max_chunksize=3_000):
            arrays = {name: batch[name].to_numpy(zero_copy_only=False) for name in ("fare", "zone", "at", "read_at")}
            yield batch if form == "arrow" else {**arrays, "tip": batch["tip"].to_pylist()}

    source: Source[Trip] = batches(make, row_type=Trip)
    assert run(source, by_rows=by_rows) == expected()


class Kind(Enum):
    """An enum whose values a file has."""

    TAXI = "taxi"
    BUS = "bus"


class Ride(NamedTuple):
    """A row with fields of which Arrow has no type."""

    at: int
    kind: Kind
    price: Decimal


@pytest.mark.parametrize("schedule_seed", [None, 1], ids=["one process", "links"])
def test_enums_and_decimals_get_the_rows_types(tmp_path: Path, schedule_seed: int | None) -> None:
    table = {"at": [0, 1], "kind": ["taxi", "bus"], "price": [0.5, 1.5]}
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "rides.parquet")
    topology = Topology("rides")
    rides = topology.source("rides", parquet(str(tmp_path / "rides.parquet")), event_time="at", rows=Ride)
    rides.where(col("kind").is_in([Kind.TAXI])).sink("out", collect)
    collected = run_topology(topology, schedule_seed=schedule_seed).collected["out"]
    assert list(map(repr, collected)) == [repr(Ride(0, Kind.TAXI, Decimal("0.5")))]
