"""The jobs' arithmetic, the same for every engine. Standard library only: it runs inside every engine's environment.

A tuple is a line of 12 fields, about 182 bytes. J1 parses all of them, keeps fares of 12.5 and more (half), derives
the tip's share of the fare and a cell of the map, and counts at the sink. J2 goes on: by zone (300) or vehicle
(30,000), in windows of one second of event time, how many, the sum of fares, the mean share. J3 is a running J2 by
zone: one result for each tuple that passes, and its latency.
"""

import array
import json
import time
from typing import Any, Final

FIELDS = (
    ("ts", int),
    ("medallion", str),
    ("license", str),
    ("zone", int),
    ("vehicle", int),
    ("pickup", str),
    ("dropoff", str),
    ("lon", float),
    ("lat", float),
    ("dist", float),
    ("fare", float),
    ("tip", float),
)
FARE_MIN = 12.5
WINDOW_MS = 1_000
ZONES = 300
VEHICLES = 30_000
TS: Final = 0
ZONE: Final = 3
VEHICLE: Final = 4
FARE: Final = 10
RATIO: Final = 12

EngineTrip = tuple[int, str, str, int, int, str, str, float, float, float, float, float]
Derived = tuple[int, str, str, int, int, str, str, float, float, float, float, float, float, int]


def parse(line: str) -> EngineTrip:
    """All twelve fields, typed."""
    f = line.split(",")
    return (
        *(int(f[0]), f[1], f[2], int(f[3]), int(f[4]), f[5], f[6]),
        *(float(f[7]), float(f[8]), float(f[9]), float(f[10]), float(f[11])),
    )


def keep(trip: EngineTrip) -> bool:
    """About half of the tuples."""
    return trip[10] >= FARE_MIN


def derive(trip: EngineTrip) -> Derived:
    """The tip's share of the fare, and a cell of about 100 m."""
    return (*trip, trip[11] / trip[10], int((trip[7] + 74.1) * 1000) * 1000 + int((trip[8] - 40.5) * 1000))


class RowSums:
    """Totals at J1's sink; `add` takes rows that end in (…, ratio, cell)."""

    def __init__(self) -> None:
        self.count = self.cells = 0
        self.ratios = 0.0

    def add(self, rows: Any) -> None:
        """Add rows to the totals."""
        count, cells, ratios = self.count, self.cells, self.ratios
        for row in rows:
            count += 1
            ratios += row[12]
            cells += row[13]
        self.count, self.cells, self.ratios = count, cells, ratios

    def result(self) -> dict[str, Any]:
        """As it is compared."""
        return {"count": self.count, "cells": self.cells, "ratios": self.ratios}


class WindowSums:
    """Totals at J2's sink, over every window of every key."""

    def __init__(self) -> None:
        self.windows = self.count = self.keys = 0
        self.fares = self.means = 0.0

    def add(self, key: int, count: int, fares: float, mean: float) -> None:
        """Add one window of one key."""
        self.windows += 1
        self.count += count
        self.keys += key * count
        self.fares += fares
        self.means += mean

    def result(self) -> dict[str, Any]:
        """As it is compared."""
        return {
            "windows": self.windows,
            "count": self.count,
            "keys": self.keys,
            "fares": self.fares,
            "means": self.means,
        }


class Latencies:
    """Latencies at the sink of J3: nanoseconds since the time at which the tuple should have left its source.

    Tuples due in the first `warm_s` seconds of the stream are left out.
    """

    def __init__(self, warm_s: float) -> None:
        self._warm_ns = int(warm_s * 1e9)
        self._first: int | None = None
        self._values = array.array("q")
        self.outputs = 0
        self.last_ns = 0

    def add(self, due_ns: int, now_ns: int) -> None:
        """Record one result."""
        if self._first is None:
            self._first = due_ns
        self.outputs += 1
        self.last_ns = now_ns
        if due_ns - self._first >= self._warm_ns:
            self._values.append(now_ns - due_ns)

    def now(self, due_ns: int) -> None:
        """Record one result at the present time."""
        self.add(due_ns, time.time_ns())

    def result(self) -> dict[str, Any]:
        """Return percentiles in milliseconds, and the numbers of outputs and samples."""
        ordered = sorted(self._values)
        figures: dict[str, Any] = {"outputs": self.outputs, "samples": len(ordered), "last_ns": self.last_ns}
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            place = min(len(ordered) - 1, int(share * len(ordered)))
            figures[name] = round(ordered[place] / 1e6, 4) if ordered else None
        return figures


class ZoneAggregate:
    """J3's aggregate: by zone, how many so far, the sum of fares, the mean share."""

    def __init__(self) -> None:
        self._of: dict[int, list[Any]] = {}

    def next(self, zone: int, due_ns: int, fare: float, ratio: float) -> tuple[int, int, int, float, float]:
        """(zone, due time, count, fares, mean share) with this tuple in it."""
        state = self._of.get(zone)
        if state is None:
            state = self._of[zone] = [0, 0.0, 0.0]
        state[0] += 1
        state[1] += fare
        state[2] += ratio
        return (zone, due_ns, state[0], state[1], state[2] / state[0])


def same(results: dict[str, Any], expected: dict[str, Any]) -> str:
    """Return "" when two results agree (whole numbers exactly, others to 1e-9); else the difference."""
    for name, wanted in expected.items():
        value = results.get(name)
        if value is None:
            return f"{name} is missing"
        if isinstance(wanted, float) and abs(value - wanted) <= 1e-9 * max(abs(wanted), 1.0):
            continue
        if value != wanted:
            return f"{name} is {value}, not {wanted}"
    return ""


def print_result(**values: Any) -> None:
    """Print one run's result for the process that started it."""
    print("RESULT " + json.dumps(values), flush=True)
