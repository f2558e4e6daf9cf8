"""J1 and J2 in columns: our engine beside the plainest columnar loop (pyarrow.csv and NumPy), paired, in CPU time.

    python -m benchmarks.columns [--lines 100000] [--rounds 5] [--rows 1000 10000]

Both run in this process, alternately and in random order; ratios are medians over rounds. The cost of starting is left out: each
figure is a run over all lines minus a run over a tenth of them. The loop reads the same file in blocks of as many lines. Its state
is what a programmer would write by hand: dense arrays by integer key, sums that are rounded at every step.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from agiledart import Topology, col, collect, count, csv, tumbling
from agiledart_connectors.codecs import csv_columns_reader
from agiledart_executor.local_runs import local_run
from benchmarks.engines.jobs import FARE_MIN
from benchmarks.engines.trips import EngineTrip

WINDOW_MS = 1_000
USED = ("ts", "zone", "vehicle", "lon", "lat", "fare", "tip")
KEYS = {"zone": 300, "vehicle": 30_000}


def lines_of(count_: int) -> bytes:
    """Return trips as CSV lines of 182 bytes, 20,000 per second of event time."""
    draw = random.Random(42)
    rows = []
    for i in range(count_):
        vehicle = int(draw.random() * 30_000)
        rows.append(
            f"{1_357_000_000_000 + i // 20},{vehicle:040x},{vehicle * 7919:040x},{int(draw.random() * 300)},{vehicle},"
            f"2013-01-01 00:00:00,2013-01-01 01:00:00,{-74.05 + draw.random() * 0.3:.6f},{40.55 + draw.random() * 0.3:.6f},"
            f"{draw.random() * 12:.2f},{2.5 + draw.random() * 20:.2f},{draw.random() * 5:.2f}\n"
        )
    return "".join(rows).encode()


def blocks(path: Path, rows: int) -> Any:
    """Yield blocks of about `rows` lines."""
    rest = b""
    with path.open("rb", buffering=0) as file:
        while data := file.read(182 * rows):
            cut = data.rfind(b"\n") + 1
            yield rest + data[:cut]
            rest = data[cut:]
    if rest:
        yield rest


def loop(job: str, path: Path, rows: int) -> tuple[Any, ...]:
    """Run the columnar loop written by hand; return its totals."""
    types = {name: pa.int64() if name in USED[:3] else pa.float64() for name in USED}
    reading = pacsv.ReadOptions(column_names=list(EngineTrip._fields), use_threads=False, block_size=64 << 20)
    converting = pacsv.ConvertOptions(column_types=types, include_columns=list(USED))
    size = KEYS.get(job, 0)
    counts, fares, ratios = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
    current = None
    out: list[Any] = [0, 0, 0.0]

    def close() -> None:
        used = np.flatnonzero(counts)
        mean = ratios[used] / counts[used]
        out[0] += len(mean)
        out[1] += int(counts.sum())
        out[2] += float(fares.sum())
        counts[:], fares[:], ratios[:] = 0, 0, 0

    for block in blocks(path, rows):
        table = pacsv.read_csv(pa.BufferReader(block), read_options=reading, convert_options=converting)
        fare = table["fare"].to_numpy()
        passing = np.flatnonzero(fare >= FARE_MIN)
        fare = fare[passing]
        ratio = table["tip"].to_numpy()[passing] / fare
        east = ((table["lon"].to_numpy()[passing] + 74.1) * 1000).astype(np.int64)
        cell = east * 1000 + ((table["lat"].to_numpy()[passing] - 40.5) * 1000).astype(np.int64)
        if job == "j1":
            out[0] += len(cell)
            out[1] += int(cell.sum())
            out[2] += float(ratio.sum())
            continue
        window, key = table["ts"].to_numpy()[passing] // WINDOW_MS, table[job].to_numpy()[passing]
        cuts = [0, *(np.flatnonzero(window[1:] != window[:-1]) + 1).tolist(), len(window)]
        for start, stop in pairwise(cuts):
            if window[start] != current:
                if current is not None:
                    close()
                current = window[start]
            part = slice(start, stop)
            if stop - start < size // 4:
                np.add.at(counts, key[part], 1)
                np.add.at(fares, key[part], fare[part])
                np.add.at(ratios, key[part], ratio[part])
            else:
                counts += np.bincount(key[part], minlength=size)
                fares += np.bincount(key[part], fare[part], size)
                ratios += np.bincount(key[part], ratio[part], size)
    if job != "j1":
        close()
    return (*out[:2], round(out[2], 1))


class ColumnTotals(list[Any]):
    """Running totals of the rows that a `collect` sink delivers."""

    takes_columns = True

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job
        self.out: list[Any] = [0, 0, 0.0]

    def __iadd__(self, held: Any) -> "ColumnTotals":  # type: ignore[misc]  # the sink delivers lists or columns
        out = self.out
        out[0] += len(held)
        names = ("cell", "ratio") if self._job == "j1" else ("trips", "fares")
        if isinstance(held, list):
            out[1] += sum(getattr(row, names[0]) for row in held)
            out[2] += sum(getattr(row, names[1]) for row in held)
        else:
            out[1] += int(held.named(names[0]).values.sum())
            out[2] += float(held.named(names[1]).values.sum())
        return self


def engine(job: str, path: Path, rows: int) -> tuple[Any, ...]:
    """Run the same job through the engine, in one process."""
    csv_columns_reader.ROWS_AT_ONCE = rows
    sums = ColumnTotals(job)
    topology = Topology(job)
    trips = topology.source("trips", csv(str(path)), rows=EngineTrip, event_time="ts").where(col("fare") >= FARE_MIN)
    cell = ((col("lon") + 74.1) * 1000).cast(int) * 1000 + ((col("lat") - 40.5) * 1000).cast(int)
    derived = trips.with_columns(ratio=col("tip") / col("fare"), cell=cell)
    sink = collect_into(sums)
    if job == "j1":
        derived.select("zone", "ratio", "cell").sink("out", sink)
    else:
        window = derived.key_by(col(job)).window(tumbling(timedelta(milliseconds=WINDOW_MS)))
        named = {"trips": count(), "fares": col("fare").sum(), "mean_ratio": col("ratio").mean()}
        window.aggregate("windows", **named).sink("out", sink)
    local_run.run_topology(topology)
    return (*sums.out[:2], round(sums.out[2], 1))


def collect_into(sums: ColumnTotals) -> Any:
    """Return a sink that adds its rows to `sums`."""
    return collect.__class__("collect", payload=sums)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000])
    given = parser.parse_args()
    pa.set_cpu_count(1)
    engines: dict[str, Callable[[str, Path, int], tuple[Any, ...]]] = {"loop": loop, "engine": engine}
    with tempfile.TemporaryDirectory() as folder:
        whole, tenth = Path(folder) / "trips.csv", Path(folder) / "tenth.csv"
        whole.write_bytes(lines_of(given.lines))
        tenth.write_bytes(lines_of(given.lines // 10))

        def cpu_of(name: str) -> float:
            """Return the marginal CPU time in µs per tuple."""
            spent: list[float] = []
            for path in (tenth, whole):
                began = time.process_time()
                results[name] = engines[name](job, path, rows)
                spent.append(time.process_time() - began)
            return (spent[1] - spent[0]) * 1e6 / (0.9 * float(given.lines))

        for job in ("j1", "zone", "vehicle"):
            for rows in given.rows:
                results: dict[str, tuple[Any, ...]] = {}
                for name in engines:
                    engines[name](job, tenth, rows)
                cpu: dict[str, list[float]] = {"loop": [], "engine": []}
                for _ in range(given.rounds):
                    for name in random.sample(list(engines), 2):
                        cpu[name].append(cpu_of(name))
                    assert results["loop"][:2] == results["engine"][:2], results
                ratios = [b / a for a, b in zip(cpu["loop"], cpu["engine"], strict=True)]
                print(
                    f"{job:8} {rows:6} rows  loop {statistics.median(cpu['loop']):.3f}  engine"
                    f" {statistics.median(cpu['engine']):.3f} µs a tuple  ratio {statistics.median(ratios):.2f}"
                    f"  ({min(ratios):.2f} to {max(ratios):.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
