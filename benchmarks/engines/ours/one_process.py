"""J1 and J2 on our engine, in one process.

    python -m benchmarks.engines.ours.one_process lines|rows|columns ROWS j1|zone|vehicle FILE

`lines` takes text lines and calls the very functions of the plain loop; `rows` has a typed source and row functions;
`columns` has a typed source and expressions. ROWS is how many rows a batch has.
"""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from agiledart import Topology, all_of, col, count, count_of, csv, mean_of, sum_of, tumbling
from agiledart_connectors.codecs import csv_columns_reader
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.local_runs import local_run
from benchmarks.engines.jobs import (
    FARE,
    FARE_MIN,
    RATIO,
    VEHICLE,
    WINDOW_MS,
    ZONE,
    Derived,
    RowSums,
    WindowSums,
    derive,
    keep,
    parse,
    print_result,
)
from benchmarks.engines.trips import EngineTrip

WINDOW = timedelta(milliseconds=WINDOW_MS)


class DerivedRow(NamedTuple):
    """A trip's fields that J1 needs, and the values derived from them."""

    ts: int
    zone: int
    vehicle: int
    fare: float
    ratio: float
    cell: int


class RowTotals(list[Any]):
    """Totals of the rows of a `collect` sink, which are not stored."""

    def __init__(self, add: Callable[[Any], None]) -> None:
        super().__init__()
        self._add = add

    def __iadd__(self, rows: Any) -> "RowTotals":  # type: ignore[misc]  # whatever the sink hands over
        self._add(rows)
        return self


class ColumnBatchTotals(RowTotals):
    """Totals of a sink that takes columns as they are; rows from the engine become columns first."""

    takes_columns = True

    def __iadd__(self, held: Any) -> "ColumnBatchTotals":  # type: ignore[misc]  # as above
        self._add(Columns.from_rows(held, type(held[0])) if type(held) is list else held)
        return self


def is_wanted(trip: EngineTrip) -> bool:
    """Tell whether a trip passes the filter, as `jobs.keep` does."""
    return trip.fare >= FARE_MIN


def derived(trip: EngineTrip) -> DerivedRow:
    """Derive the tip's share and the cell, as `jobs.derive` does."""
    cell = int((trip.lon + 74.1) * 1000) * 1000 + int((trip.lat - 40.5) * 1000)
    return DerivedRow(trip.ts, trip.zone, trip.vehicle, trip.fare, trip.tip / trip.fare, cell)


def panes(sums: WindowSums) -> Callable[[Any], None]:
    """Adds windows up."""

    def add(rows: Any) -> None:
        for key, _, _, (trips, fares, mean) in rows:
            sums.add(key, trips, fares, mean)

    return add


def narrow_rows(sums: RowSums) -> Callable[[Any], None]:
    """Adds up rows of J1 that have names."""

    def add(rows: Any) -> None:
        count, cells, ratios = sums.count, sums.cells, sums.ratios
        for row in rows:
            count += 1
            ratios += row[4]
            cells += row[5]
        sums.count, sums.cells, sums.ratios = count, cells, ratios

    return add


def _time_of_line(line: str) -> int:
    return int(line[:13])


def _time_of_trip(trip: EngineTrip) -> int:
    return trip.ts


def _fare(row: Derived) -> float:
    return row[FARE]


def _ratio(row: Derived) -> float:
    return row[RATIO]


def _key(position: int) -> Callable[[Any], int]:
    return lambda row: row[position]


def again(row: Derived) -> Derived:
    return row


def from_lines(job: str, path: str, sums: Any, *, more: bool = False) -> Topology:
    """Run the job on text lines with the functions of the plain loop; `more` adds one step that does nothing."""
    topology = Topology(f"{job}-lines")
    lines = topology.source("lines", csv(path), rows=str, event_time=None if job == "j1" else _time_of_line)
    rows = lines.map(parse).filter(keep).map(derive)
    if more:
        rows = rows.map(again)
    if job == "j1":
        rows.sink("out", Connector("collect", payload=RowTotals(sums.add)))
        return topology
    aggregate = all_of(count_of(), sum_of(_fare), mean_of(_ratio))
    keyed = rows.key_by(_key(ZONE if job == "zone" else VEHICLE), returns=int)
    keyed.window(tumbling(WINDOW)).aggregate("windows", aggregate).sink(
        "out", Connector("collect", payload=RowTotals(panes(sums)))
    )
    return topology


def from_rows(job: str, path: str, sums: Any) -> Topology:
    """Run the job with a typed source and functions on rows."""
    topology = Topology(f"{job}-rows")
    time_of = None if job == "j1" else _time_of_trip
    rows = topology.source("trips", csv(path), rows=EngineTrip, event_time=time_of).filter(is_wanted).map(derived)
    if job == "j1":
        rows.sink("out", Connector("collect", payload=RowTotals(narrow_rows(sums))))
        return topology
    aggregate = all_of(count_of(), sum_of(lambda row: row.fare), mean_of(lambda row: row.ratio))
    keyed = rows.key_by(lambda row: row.zone) if job == "zone" else rows.key_by(lambda row: row.vehicle)
    keyed.window(tumbling(WINDOW)).aggregate("windows", aggregate).sink(
        "out", Connector("collect", payload=RowTotals(panes(sums)))
    )
    return topology


def from_columns(job: str, path: str, sums: Any) -> Topology:
    """Run the job with a typed source and expressions: columns from the file's bytes to the sink."""
    topology = Topology(f"{job}-columns")
    trips = topology.source("trips", csv(path), rows=EngineTrip, event_time=None if job == "j1" else "ts")
    east = ((col("lon") + 74.1) * 1000).cast(int)
    cell = east * 1000 + ((col("lat") - 40.5) * 1000).cast(int)
    clean = trips.where(col("fare") >= FARE_MIN).with_columns(ratio=col("tip") / col("fare"), cell=cell)
    if job == "j1":
        clean.select("ratio", "cell").sink("out", Connector("collect", payload=ColumnBatchTotals(wide_sums(sums))))
        return topology
    windows = clean.key_by(col(job)).window(tumbling(WINDOW))
    windows.aggregate("windows", trips=count(), fares=col("fare").sum(), mean=col("ratio").mean()).sink(
        "out", Connector("collect", payload=ColumnBatchTotals(wide_windows(job, sums)))
    )
    return topology


def wide_sums(sums: RowSums) -> Callable[[Any], None]:
    """Adds up columns of J1."""

    def add(columns: Any) -> None:
        sums.count += len(columns)
        sums.cells += int(columns.named("cell").values.sum())
        sums.ratios += float(columns.named("ratio").values.sum())

    return add


def wide_windows(job: str, sums: WindowSums) -> Callable[[Any], None]:
    """Adds up columns of windows."""

    def add(columns: Any) -> None:
        keys, counts, fares, means = (columns.named(name).values for name in (job, "trips", "fares", "mean"))
        sums.windows += len(columns)
        sums.count += int(counts.sum())
        sums.keys += int((keys * counts).sum())
        sums.fares += float(fares.sum())
        sums.means += float(means.sum())

    return add


FORMS: dict[str, Callable[[str, str, Any], Topology]] = {
    "lines": from_lines,
    "lines+1": partial(from_lines, more=True),
    "rows": from_rows,
    "columns": from_columns,
}


def main() -> None:
    """Run one job and print its result."""
    form, batch, job, path = sys.argv[1:]
    sums: Any = RowSums() if job == "j1" else WindowSums()
    topology = FORMS[form](job, path, sums)
    csv_columns_reader.ROWS_AT_ONCE = int(batch)
    began = time.perf_counter()
    local_run.run_topology(topology, batch_rows=int(batch))
    print_result(**sums.result(), seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
