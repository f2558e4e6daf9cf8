"""Plain columnar loops: one process, one thread, no engine; raw bytes in blocks of so many lines, as a file gives them.

    python -m benchmarks.engines.others.columnar numpy|polars ROWS j1|zone|vehicle FILE [all]

Only the columns in use are converted, unless `all` is given. `numpy` is pyarrow.csv and NumPy; a window's state is an array by key.
"""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"

from benchmarks.engines.jobs import FARE_MIN, FIELDS, VEHICLES, WINDOW_MS, ZONES, RowSums, WindowSums, print_result

LINE_BYTES = 182
IN_USE = {"j1": ["lon", "lat", "fare", "tip"]}


def blocks(path: str, rows: int) -> Iterator[bytes]:
    """Yield blocks of about so many lines, cut at line ends."""
    rest = b""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(LINE_BYTES * rows):
            end = data.rfind(b"\n") + 1
            yield rest + data[:end]
            rest = data[end:]
    if rest:
        yield rest


def _columns(job: str, everything: bool) -> list[str]:
    if everything:
        return [name for name, _ in FIELDS]
    return IN_USE["j1"] if job == "j1" else ["ts", job, "lon", "lat", "fare", "tip"]


def numpy_reader(job: str, everything: bool) -> Callable[[bytes], dict[str, Any]]:
    """Block → columns by name."""
    import pyarrow as pa
    import pyarrow.csv as pc

    pa.set_cpu_count(1)
    kinds = {int: pa.int64(), str: pa.string(), float: pa.float64()}
    reading = pc.ReadOptions(column_names=[name for name, _ in FIELDS], use_threads=False, block_size=64 << 20)
    converting = pc.ConvertOptions(
        column_types={name: kinds[kind] for name, kind in FIELDS}, include_columns=_columns(job, everything)
    )
    wanted = _columns(job, everything=False)

    def read(block: bytes) -> dict[str, Any]:
        table = pc.read_csv(pa.BufferReader(block), read_options=reading, convert_options=converting)
        return {name: table[name].to_numpy() for name in wanted}

    return read


def _derived(np: Any, columns: dict[str, Any]) -> dict[str, Any]:
    passes = columns["fare"] >= FARE_MIN
    passed = {name: column[passes] for name, column in columns.items()}
    passed["ratio"] = passed["tip"] / passed["fare"]
    east = ((passed["lon"] + 74.1) * 1000).astype(np.int64)
    passed["cell"] = east * 1000 + ((passed["lat"] - 40.5) * 1000).astype(np.int64)
    return passed


def numpy_j1(path: str, rows: int, everything: bool) -> RowSums:
    """Run J1 with NumPy."""
    import numpy as np

    sums, read = RowSums(), numpy_reader("j1", everything)
    for block in blocks(path, rows):
        columns = _derived(np, read(block))
        sums.count += len(columns["ratio"])
        sums.cells += int(columns["cell"].sum())
        sums.ratios += float(columns["ratio"].sum())
    return sums


def numpy_j2(path: str, rows: int, job: str, everything: bool) -> WindowSums:
    """Run J2 with NumPy: counts and sums in arrays by key, read out when the second changes."""
    import numpy as np

    sums, read = WindowSums(), numpy_reader(job, everything)
    size = ZONES if job == "zone" else VEHICLES
    counts, fares, ratios = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
    open_window = None

    def close() -> None:
        keys = np.nonzero(counts)[0]
        n = counts[keys]
        sums.windows += len(keys)
        sums.count += int(n.sum())
        sums.keys += int((keys * n).sum())
        sums.fares += float(fares[keys].sum())
        sums.means += float((ratios[keys] / n).sum())
        for state in (counts, fares, ratios):
            state[keys] = 0

    for block in blocks(path, rows):
        columns = _derived(np, read(block))
        windows = columns["ts"] // WINDOW_MS
        cuts = [0, *(np.nonzero(np.diff(windows))[0] + 1).tolist(), len(windows)]
        for low, high in pairwise(cuts):
            if low == high:
                continue
            if windows[low] != open_window:
                close()
                open_window = windows[low]
            keys, fare, ratio = columns[job][low:high], columns["fare"][low:high], columns["ratio"][low:high]
            if high - low < size // 4:
                np.add.at(counts, keys, 1)
                np.add.at(fares, keys, fare)
                np.add.at(ratios, keys, ratio)
            else:
                counts += np.bincount(keys, minlength=size)
                fares += np.bincount(keys, fare, size)
                ratios += np.bincount(keys, ratio, size)
    close()
    return sums


def _polars_lazy(pl: Any, block: bytes, job: str, everything: bool) -> Any:
    kinds = {int: pl.Int64, str: pl.String, float: pl.Float64}
    schema = {name: kinds[kind] for name, kind in FIELDS}
    only = None if everything else [[name for name, _ in FIELDS].index(name) for name in _columns(job, False)]
    table = pl.read_csv(io.BytesIO(block), has_header=False, schema=schema, columns=only)
    east = ((pl.col("lon") + 74.1) * 1000).cast(pl.Int64)
    return (
        table.lazy()
        .filter(pl.col("fare") >= FARE_MIN)
        .with_columns(
            ratio=pl.col("tip") / pl.col("fare"), cell=east * 1000 + ((pl.col("lat") - 40.5) * 1000).cast(pl.Int64)
        )
    )


def polars_j1(path: str, rows: int, everything: bool) -> RowSums:
    """Run J1 with Polars."""
    import polars as pl

    sums = RowSums()
    for block in blocks(path, rows):
        frame = _polars_lazy(pl, block, "j1", everything).select("ratio", "cell").collect()
        sums.count += frame.height
        sums.cells += frame["cell"].sum()
        sums.ratios += frame["ratio"].sum()
    return sums


def polars_j2(path: str, rows: int, job: str, everything: bool) -> WindowSums:
    """Run J2 with Polars; collect the columns of an open window and group them once."""
    import polars as pl

    sums = WindowSums()
    frames: list[Any] = []

    def close() -> None:
        if not frames:
            return
        n, share = pl.len().alias("n"), pl.col("ratio").mean().alias("mean")
        table = pl.concat(frames).lazy().group_by(job).agg(n, pl.col("fare").sum(), share).collect()
        sums.windows += table.height
        sums.count += int(table["n"].sum())
        sums.keys += int((table[job] * table["n"]).sum())
        sums.fares += table["fare"].sum()
        sums.means += table["mean"].sum()
        frames.clear()

    open_window = None
    for block in blocks(path, rows):
        window = (pl.col("ts") // WINDOW_MS).alias("window")
        frame = _polars_lazy(pl, block, job, everything).select(window, job, "fare", "ratio").collect()
        first, last = frame["window"][0], frame["window"][-1]
        for second in range(first, last + 1):
            if second != open_window:
                close()
                open_window = second
            frames.append(frame if first == last else frame.filter(pl.col("window") == second))
    close()
    return sums


if __name__ == "__main__":
    library, batch, job_, data, *rest = sys.argv[1:]
    all_columns = rest == ["all"]
    began = time.perf_counter()
    done: RowSums | WindowSums
    if job_ == "j1":
        done = (numpy_j1 if library == "numpy" else polars_j1)(data, int(batch), all_columns)
    else:
        done = (numpy_j2 if library == "numpy" else polars_j2)(data, int(batch), job_, all_columns)
    print_result(**done.result(), seconds=time.perf_counter() - began)
