"""The plain Python loop: one process, no engine, the three functions called for each line.

python -m benchmarks.engines.others.plain j1|zone|vehicle FILE
"""

import sys
import time

from benchmarks.engines.jobs import (
    FARE,
    RATIO,
    TS,
    VEHICLE,
    WINDOW_MS,
    ZONE,
    RowSums,
    WindowSums,
    derive,
    keep,
    parse,
    print_result,
)


def j1(path: str) -> RowSums:
    """Run J1: parse, filter, derive and count each line."""
    sums = RowSums()
    count = cells = 0
    ratios = 0.0
    with open(path) as file:
        for line in file:
            trip = parse(line)
            if keep(trip):
                row = derive(trip)
                count += 1
                ratios += row[12]
                cells += row[13]
    sums.count, sums.cells, sums.ratios = count, cells, ratios
    return sums


def j2(path: str, key: int) -> WindowSums:
    """Run J2: the steps of J1, then windows by key in one dictionary, emptied when the second changes."""
    sums = WindowSums()
    open_window: int | None = None
    states: dict[int, list[float]] = {}
    with open(path) as file:
        for line in file:
            trip = parse(line)
            if not keep(trip):
                continue
            row = derive(trip)
            window = row[TS] // WINDOW_MS
            if window != open_window:
                _close(states, sums)
                open_window = window
            of: int = row[key]  # type: ignore[assignment]  # zone or vehicle
            state = states.get(of)
            if state is None:
                states[of] = [1, row[FARE], row[RATIO]]
            else:
                state[0] += 1
                state[1] += row[FARE]
                state[2] += row[RATIO]
    _close(states, sums)
    return sums


def _close(states: dict[int, list[float]], sums: WindowSums) -> None:
    for key, (count, fares, ratios) in states.items():
        sums.add(key, int(count), fares, ratios / count)
    states.clear()


if __name__ == "__main__":
    job, data = sys.argv[1:]
    began = time.perf_counter()
    done = j1(data) if job == "j1" else j2(data, ZONE if job == "zone" else VEHICLE)
    print_result(**done.result(), seconds=time.perf_counter() - began)
