"""Latency models: points in a plane, or measured round trips between sites.

A file of measured round trips is one of
    a square table of milliseconds, comma-separated, without header;
    pairs: a header with the columns source, destination and avg (as WonderNetwork publishes them), gzip or not;
    a parquet file with the columns slice, src, d0 … dN (as the PlanetLab traces come); needs pyarrow.
"""

import csv
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MICROSECOND, MILLISECOND
from agiledart_kernel.node_id import NodeId

Draw = Callable[[], float]


class Latency(Protocol):
    """One-way times between nodes."""

    def place(self, node: NodeId, zone: str, draw: Draw) -> None:
        """Give a new node its place; a known one keeps its own."""
        ...

    def distance_ns(self, a: NodeId, b: NodeId) -> int:
        """Return the time of one message without jitter and queues, in nanoseconds."""
        ...


class Plane:
    """Nodes as points in a unit square; nodes of one zone lie close together.

    Args:
        base_ns: least time of a message.
        span_ns: time added across the whole square.
        zone_span: width of a zone, as a share of the square; nodes without zone are anywhere.
    """

    def __init__(self, base_ns: int, span_ns: int, zone_span: float = 0.1) -> None:
        self.base_ns, self.span_ns, self._zone_span = base_ns, span_ns, zone_span
        self._places: dict[NodeId, complex] = {}
        """Points of the plane as complex numbers: one object each, where a pair of floats is three."""
        self._zones: dict[str, complex] = {}

    def place(self, node: NodeId, zone: str, draw: Draw) -> None:
        """Give a new node its place; see `Latency`."""
        if node in self._places:
            return
        if not zone:
            self._places[node] = complex(draw(), draw())
            return
        if zone not in self._zones:
            self._zones[zone] = complex(draw(), draw())
        middle = self._zones[zone]
        x, y = middle.real + self._zone_span * (draw() - 0.5), middle.imag + self._zone_span * (draw() - 0.5)
        self._places[node] = complex(x, y)

    def distance_ns(self, a: NodeId, b: NodeId) -> int:
        """Return the time of one message; see `Latency`."""
        apart = self._places[a] - self._places[b]
        # Manhattan distance: no square root, and exact on every platform.
        return self.base_ns + int(self.span_ns * (abs(apart.real) + abs(apart.imag)) / 2)


class Matrix:
    """Nodes at sites; the time between two sites was measured, and may differ by direction.

    Args:
        one_way_ns: row = from, column = to.
        local_ns: between two nodes of one site.
    """

    def __init__(self, one_way_ns: list[list[int]], local_ns: int = 200 * MICROSECOND) -> None:
        self._one_way_ns, self._local_ns = one_way_ns, local_ns
        self._sites: dict[NodeId, int] = {}
        self._zones: dict[str, int] = {}

    def fresh(self) -> "Matrix":
        """Return the same sites without nodes."""
        return Matrix(self._one_way_ns, self._local_ns)

    def delays_ms(self) -> list[list[float]]:
        """Return the times between sites in milliseconds, row = from; of a site to itself 0."""
        rows = self._one_way_ns
        return [[0.0 if a == b else ns / MILLISECOND for b, ns in enumerate(row)] for a, row in enumerate(rows)]

    @property
    def sites(self) -> int:
        """Return the number of sites."""
        return len(self._one_way_ns)

    def place(self, node: NodeId, zone: str, draw: Draw) -> None:
        """Give a new node its place. A zone is a site, nodes without zone are spread at random."""
        if node not in self._sites:
            if zone:
                site = self._zones.setdefault(zone, len(self._zones) % self.sites)
            else:
                site = int(draw() * self.sites)
            self._sites[node] = site

    def distance_ns(self, a: NodeId, b: NodeId) -> int:
        """Return the time of one message; see `Latency`."""
        here, there = self._sites[a], self._sites[b]
        return self._local_ns if here == there else self._one_way_ns[here][there]


def load(path: Path, most_sites: int = 500, time_slice: int | None = None) -> Matrix:
    """Load measured round trips from a file, of a parquet file one time slice (None: the first).

    Raises:
        ConfigurationError: the file cannot be read as such.
    """
    try:
        rows = _parquet(path, time_slice) if path.suffix == ".parquet" else _text(path)
    except (OSError, ValueError, KeyError, EOFError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"latency file {path}: {error}") from None
    rows = [row[:most_sites] for row in rows[:most_sites]]
    if len(rows) < 2 or any(len(row) != len(rows) for row in rows):
        raise ConfigurationError(f"latency file {path}: expected a square table of at least two sites")
    known = sorted(value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j and value > 0)
    if not known:
        raise ConfigurationError(f"latency file {path}: expected a round trip above 0")
    middle = known[len(known) // 2]
    return Matrix([[int((value if value > 0 else middle) * MILLISECOND / 2) for value in row] for row in rows])


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _text(path: Path) -> list[list[float]]:
    with _open(path) as file:
        lines = csv.reader(file)
        first = next(lines, [])
        if "source" in first and "destination" in first:
            return _pairs(first, lines)
        return [[float(value) for value in row] for row in (first, *lines) if row]


def _pairs(header: list[str], lines: Iterator[list[str]]) -> list[list[float]]:
    source, target, value = header.index("source"), header.index("destination"), header.index("avg")
    times = {(row[source], row[target]): float(row[value]) for row in lines if row}
    sites = sorted({name for pair in times for name in pair}, key=lambda name: (len(name), name))
    return [[times.get((a, b), times.get((b, a), 0.0)) for b in sites] for a in sites]


def _parquet(path: Path, time_slice: int | None) -> list[list[float]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ValueError("reading parquet needs pyarrow: pip install agiledart[spark]") from None
    table = parquet.read_table(path).to_pylist()
    chosen = min(row["slice"] for row in table) if time_slice is None else time_slice
    rows = sorted((row for row in table if row["slice"] == chosen), key=lambda row: row["src"])
    if not rows:
        raise ValueError(f"there is no slice {chosen}")
    columns = sorted((name for name in rows[0] if name.startswith("d")), key=lambda name: int(name[1:]))
    return [[float(row[name] or 0.0) for name in columns] for row in rows]
