"""The job of the fault lab and its expected output: two sources, their union, windows to a log, an ordered fold to a file.

The reference is plain Python over the sorted rows; event times are all different, so their order is the order of the union.
"""

import csv
from pathlib import Path
from typing import Final

READINGS: Final = 300
"""Of each source, one every 20 ms: six seconds of rows."""

PERIOD_MS: Final = 20
WINDOW_MS: Final = 500
KEYS: Final = 5

CODE: Final = f'''
"""The job of the fault lab, and code that breaks."""

import ctypes
import os
from datetime import timedelta
from typing import NamedTuple

from agiledart import Change, Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def folded(so_far: Reading, reading: Reading) -> Reading:
    return reading._replace(value=(so_far.value * 31 + reading.value) % 1_000_003)


def value_of(change: Change) -> Reading:
    return change.value


def build(
    left: Source[Reading], right: Source[Reading], report: Sink[Pane], folds: Sink[Reading], name: str = "job",
    delivery: str = "at-most-once",
) -> Topology:
    topology = Topology(name, delivery=delivery)
    first = topology.source("left", left, event_time=lambda reading: reading.at)
    second = topology.source("right", right, event_time=lambda reading: reading.at)
    rows = first.union(second, name="both").key_by(lambda reading: reading.key)
    window = rows.window(tumbling(timedelta(milliseconds={WINDOW_MS})))
    window.aggregate("sums", sum_of(lambda reading: reading.value)).sink("report", report)
    rows.reduce("fold", folded).map(value_of, name="plain").sink("folds", folds)
    return topology


def deep(number: int) -> int:
    return deep(number + 1)


BREAKS = {{
    "raises": lambda: 1 // 0,
    "exits": lambda: os._exit(3),
    "leaves": lambda: exit(4),
    "recurses": lambda: deep(0),
    "crashes": lambda: ctypes.string_at(0),
}}


def hostile(rows: Source[Reading], out: Sink[Reading], name: str = "hostile", misbehaviour: str = "raises") -> Topology:
    def bad(reading: Reading) -> Reading:
        if reading.at > 1_000:
            BREAKS[misbehaviour]()
        return reading

    topology = Topology(name)
    topology.source("rows", rows, event_time=lambda reading: reading.at).map(bad, name="bad").sink("out", out)
    return topology
'''

MISBEHAVIOURS: Final = ("raises", "exits", "leaves", "recurses", "crashes")

Row = tuple[int, int, int]


def readings(side: int) -> list[Row]:
    """Return the rows (at in ms, key, value) of the left (0) or the right (1) source."""
    return [
        (2 * PERIOD_MS * n // 2 + side * PERIOD_MS // 2, (n * 3 + side) % KEYS, (n * n + 7 * side) % 101)
        for n in range(READINGS)
    ]


def write_input(folder: Path) -> None:
    """Write the job's code and input."""
    (folder / "job.py").write_text(CODE)
    for side, name in enumerate(("left", "right")):
        (folder / f"{name}.csv").write_text("".join(f"{at},{key},{value}\n" for at, key, value in readings(side)))


def expected_folds() -> list[Row]:
    """Return each row with the fold of its key so far, in order."""
    folds: dict[int, int] = {}
    expected = []
    for at, key, value in sorted(readings(0) + readings(1)):
        folds[key] = (folds[key] * 31 + value) % 1_000_003 if key in folds else value
        expected.append((at, key, folds[key]))
    return expected


def expected_sums() -> list[tuple[int, int, int]]:
    """Return (end of the window in ms, key, sum), in the order of windows."""
    sums: dict[tuple[int, int], int] = {}
    for at, key, value in readings(0) + readings(1):
        place = ((at // WINDOW_MS + 1) * WINDOW_MS, key)
        sums[place] = sums.get(place, 0) + value
    return [(end, key, sums[end, key]) for end, key in sorted(sums)]


def read_folds(path: Path) -> list[Row]:
    """Return the file's rows; a malformed line appears as a row of -1."""
    if not path.exists():
        return []
    with path.open() as file:
        return [_row(line) for line in csv.reader(file)]


def _row(line: list[str]) -> Row:
    if len(line) != 3 or not all(word.isdigit() for word in line):
        return (-1, -1, -1)
    at, key, value = map(int, line)
    return at, key, value
