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
from agiledart_connectors.files.columns_reader import open_parquet
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


class Measured(NamedTuple):
    at: datetime
    key: str
    n: int
    v: float
    more: float | None = None


def test_rows_of_a_parquet_file_that_do_not_fit_are_malformed_and_the_others_come(tmp_path: Path) -> None:
    second = 1_000_000_000
    times = [second * 1_780_315_200 + number * second + 999 for number in range(8)]
    table = pa.table(
        {
            "at": pa.array(times, pa.timestamp("ns")),
            "key": pa.array(["a", None, "c", "d", "e", "f", "g", "h"]),
            "n": pa.array([1, 2, (1 << 63) + 5, 4, 5, 6, 7, 8], pa.uint64()),
            "v": pa.array([1.0, 2.0, 3.0, None, 5.0, 6.0, 7.0, None]),
            "more": pa.array([None, 1.0] * 4),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    for columns in (False, True):
        reader = open_parquet(f"{tmp_path}/rows.parquet", Measured, columns=columns, wanted=None)
        letters: list[tuple[str, str]] = []
        reader.on_malformed(lambda record, text: letters.append((record, text)))  # noqa: B023
        rows, malformed, lines, notes = list[Any](), dict[str, int](), list[int](), list[str]()
        while not (reading := reader.read(3, 0)).exhausted:
            rows += reading.rows if type(reading.rows) is list else reading.rows.rows()
            lines.append(reading.lines)
            notes += reading.notes
            for reason, count in reading.malformed.items():
                malformed[reason] = malformed.get(reason, 0) + count
        assert [row.key for row in rows] == ["a", "e", "f", "g"]
        assert [row.at.microsecond for row in rows] == [0] * 4, "cut towards the past"
        assert malformed == {"field": 3, "number": 1}
        assert sum(lines) == 8
        assert notes[0].endswith("rows.parquet row 2: key is missing")
        assert f"rows.parquet row 3: n: {(1 << 63) + 5} does not fit 64 bits" in notes[1]
        assert len(letters) == 4


def test_times_outside_of_the_calendar_are_malformed(tmp_path: Path) -> None:
    class Timed(NamedTuple):
        at: datetime

    at = pa.array([0, -(1 << 62), 253_402_300_800_000, 253_402_300_799_999, None], pa.timestamp("ms"))
    pyarrow.parquet.write_table(pa.table({"at": at}), tmp_path / "rows.parquet")
    reading = open_parquet(f"{tmp_path}/rows.parquet", Timed, columns=False, wanted=None).read(10, 0)
    assert [row.at.year for row in reading.rows] == [1970, 9999]
    assert reading.malformed == {"time": 2, "field": 1}


def test_a_column_that_is_read_later_lacks_the_same_rows(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", None, "c"], "n": [1, 2, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")

    class Keyed(NamedTuple):
        k: str
        n: int

    reading = open_parquet(f"{tmp_path}/rows.parquet", Keyed, columns=True, wanted=frozenset({"k"})).read(10, 0)
    assert reading.rows.rows() == [Keyed("a", 1), Keyed("c", 3)]
