"""Generator of taxi trips of an invented New York: a seeded stream in the format of DEBS 2015, of any length.

Demand, places, fares and fleet follow figures measured on the real stream of January 2013, so that the two queries
meet the same skew, the same ties and the same mistakes (1.8 % of the trips have broken coordinates). The stream is
sorted by drop-off and needs constant memory. The same seed gives the same lines on every Python version.

Use it from a topology (`taxi()`), from Python (`generate(seed=1, count=10_000)`), or write a file:

    python -m agiledart_examples.taxi_trips --count 100000 --seed 1 --output trips.csv.gz
"""

import argparse
import gzip
import os
import sys
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cache
from heapq import heappop, heappush
from io import TextIOWrapper
from itertools import accumulate
from math import asin, cos, exp, log, radians, sin, sqrt
from statistics import NormalDist
from typing import IO, NamedTuple, TextIO, cast

from agiledart_kernel.randomness import RandomStream

Draw = Callable[[], float]

TRIPS_PER_MINUTE = 330.0
HOUR_FACTORS = (
    *(0.97, 0.72, 0.53, 0.38, 0.28, 0.24, 0.48, 0.82, 1.01, 1.06, 1.06, 1.12),
    *(1.18, 1.18, 1.22, 1.17, 1.00, 1.19, 1.44, 1.51, 1.43, 1.42, 1.38, 1.23),
)
WEEKDAY_FACTORS = (0.88, 0.95, 1.00, 1.01, 1.06, 1.12, 0.98)
"""Factor of the demand by day of the week, Monday first."""

TAXIS = 13_000
WARM_UP_SECONDS = 1_800
"""Lead time of the stream: trips are already running at its start; those that ended before are not emitted."""

GRID_WEST, GRID_NORTH = -74.913585, 41.474937
DEGREES_EAST, DEGREES_SOUTH = 0.005986, 0.004491556
"""Centre of cell 1.1 and the steps of the 500 m grid of query 1: hot places are cells of it."""

MANHATTAN = (40.7527, -73.9772)
MANHATTAN_BEARING = radians(29.0)
MANHATTAN_CELLS = 415
OUTLYING = (
    (40.6413, -73.7781),  # JFK
    (40.7769, -73.8740),  # LaGuardia
    (40.6928, -73.9903),  # Downtown Brooklyn
    (40.7170, -73.9568),  # Williamsburg
    (40.6713, -73.9777),  # Park Slope
    (40.7447, -73.9485),  # Long Island City
    (40.7644, -73.9235),  # Astoria
    (40.7214, -73.8446),  # Forest Hills
)
OUTLYING_RANKS = (5, 12, 40, 60, 80, 100, 120, 140)
"""Ranks of the outlying places among all cells by frequency, 0 the most frequent."""
WEIGHT_SCALE = 57.0
"""The i-th cell starts trips in proportion to exp(-i / 57)."""
END_SCALE_KM = 4.0

KM_PER_DEGREE = 111.195
KM_PER_MILE = 1.609344
SPREAD_SOUTH = 0.05 / KM_PER_DEGREE
SPREAD_EAST = 0.05 / (KM_PER_DEGREE * cos(radians(MANHATTAN[0])))
"""Scatter of trips around the centre of their cell: 50 m in degrees."""

TIME_SIGMA = 0.35
CRUISING_MPH = 23.0
"""Speed between stops. The meter counts the additional time of a trip as slow time. The value makes the mean fare similar to that
of the real stream."""
TIP_SHARES = (0.05, 0.10, 0.16, 0.20, 0.207, 0.210, 0.214, 0.235, 0.265, 0.315, 0.40)
"""Tip as a share of the fare at the quantiles 0, 10, …, 100 % of the card trips that tip."""

TABLE = 4096


class HotCell(NamedTuple):
    """Centre of a hot cell in degrees."""

    latitude: float
    longitude: float


@cache
def _normal_table() -> tuple[float, ...]:
    """Return equally likely values of a standard normal; indexing it is a draw without a logarithm."""
    normal = NormalDist()
    return tuple(normal.inv_cdf((i + 0.5) / TABLE) for i in range(TABLE))


@cache
def _time_factors() -> tuple[float, ...]:
    """Return equally likely log-normal factors of mean one."""
    return tuple(exp(TIME_SIGMA * z - TIME_SIGMA**2 / 2) for z in _normal_table())


def great_circle_km(a_lat: float, a_lon: float, b_lat: float, b_lon: float) -> float:
    """Return the distance over ground in kilometres (haversine)."""
    south, east = sin(radians(b_lat - a_lat) / 2), sin(radians(b_lon - a_lon) / 2)
    return 12_742.0 * asin(sqrt(south * south + cos(radians(a_lat)) * cos(radians(b_lat)) * east * east))


class City:
    """The 423 hot cells, most frequent first. It is the same city for every seed of a stream."""

    def __init__(self) -> None:
        self.places: list[HotCell] = _manhattan() + [
            _cell_centre(latitude, longitude) for latitude, longitude in OUTLYING
        ]
        count = len(self.places)
        # An airport starts about one trip in a hundred; without these few long trips distances would spread too little.
        for i, rank in enumerate(OUTLYING_RANKS):
            self.places.insert(rank, self.places.pop(count - len(OUTLYING) + i))
        self._weights = [exp(-i / WEIGHT_SCALE) for i in range(count)]
        self._starts = list(accumulate(self._weights))
        self._ends: list[list[float] | None] = [None] * count
        self._near: list[list[int] | None] = [None] * count

    def start(self, u: float) -> int:
        """Draw the cell in which a trip starts."""
        return bisect(self._starts, u * self._starts[-1])

    def end(self, start: int, u: float) -> int:
        """Draw the cell in which a trip from `start` ends: by weight, near cells preferred."""
        table = self._ends[start]
        if table is None:
            table = self._ends[start] = list(
                accumulate(
                    w * exp(-great_circle_km(*self.places[start], *place) / END_SCALE_KM)
                    for w, place in zip(self._weights, self.places, strict=True)
                )
            )
        return bisect(table, u * table[-1])

    def near(self, cell: int) -> list[int]:
        """Return all cells, nearest to `cell` first (itself first of all)."""
        order = self._near[cell]
        if order is None:
            here = self.places[cell]
            order = self._near[cell] = sorted(
                range(len(self.places)), key=lambda other: great_circle_km(*here, *self.places[other])
            )
        return order


def _cell_centre(latitude: float, longitude: float) -> HotCell:
    east, south = round((longitude - GRID_WEST) / DEGREES_EAST), round((GRID_NORTH - latitude) / DEGREES_SOUTH)
    return HotCell(GRID_NORTH - south * DEGREES_SOUTH, GRID_WEST + east * DEGREES_EAST)


def _manhattan() -> list[HotCell]:
    """Return distinct cells along the axis of Manhattan, the ones nearest to the middle first."""
    draw, normal = RandomStream(0, "city").uniform, _normal_table()
    distances: dict[HotCell, float] = {}
    while len(distances) < MANHATTAN_CELLS:
        along, across = 3.5 * normal[int(draw() * TABLE)], 0.8 * normal[int(draw() * TABLE)]
        north = along * cos(MANHATTAN_BEARING) - across * sin(MANHATTAN_BEARING)
        east = along * sin(MANHATTAN_BEARING) + across * cos(MANHATTAN_BEARING)
        place = _cell_centre(
            MANHATTAN[0] + north / KM_PER_DEGREE,
            MANHATTAN[1] + east / (KM_PER_DEGREE * cos(radians(MANHATTAN[0]))),
        )
        distances.setdefault(place, great_circle_km(*MANHATTAN, *place))
    return sorted(distances, key=distances.__getitem__)


class Fleet:
    """Idle taxis by cell. A taxi is absent between `take` and `put`."""

    def __init__(self, city: City, draw: RandomStream) -> None:
        self._city = city
        self._idle: list[list[int]] = [[] for _ in city.places]
        self.names = [f"{draw.bits(128):032X},{draw.bits(128):032X}" for _ in range(TAXIS)]
        for taxi in range(TAXIS):
            self._idle[city.start(draw.uniform())].append(taxi)

    def take(self, cell: int, u: float) -> int | None:
        """Take a taxi near the cell, preferably one that arrived last; None when every taxi is on a trip."""
        for place in self._city.near(cell):
            idle = self._idle[place]
            if idle:
                # u³ prefers the end of the list: drivers who have just arrived stand at the kerb, others take a break.
                return idle.pop(-1 - int(u * u * u * len(idle)))
        return None

    def put(self, taxi: int, cell: int) -> None:
        """Add an idle taxi to the cell."""
        self._idle[cell].append(taxi)


class Clock:
    """Conversion of seconds since the stream's midnight to text."""

    def __init__(self, start: datetime) -> None:
        self.midnight = start.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        self._minutes: dict[int, str] = {}
        self._seconds = [f"{second:02d}" for second in range(60)]

    def text(self, at: int) -> str:
        """Return `YYYY-MM-DD HH:MM:SS`."""
        minute, second = divmod(at, 60)
        prefix = self._minutes.get(minute)
        if prefix is None:
            if len(self._minutes) > 10_000:
                self._minutes.clear()
            prefix = (self.midnight + timedelta(minutes=minute)).isoformat(" ")[:17]
            self._minutes[minute] = prefix
        return prefix + self._seconds[second]

    def rate(self, at: float) -> float:
        """Return the number of trips that start per second at this time of the week."""
        hours = int(at // 3600)
        weekday = (self.midnight.weekday() + hours // 24) % 7
        return TRIPS_PER_MINUTE / 60 * HOUR_FACTORS[hours % 24] * WEEKDAY_FACTORS[weekday]


def _coordinates(draw: Draw, a_lat: float, a_lon: float, b_lat: float, b_lon: float) -> str:
    """Return the four columns, pickup first; 1.8 % of the trips have a broken or far-away pair, most often both are zero."""
    start, end = f"{a_lon:.6f},{a_lat:.6f}", f"{b_lon:.6f},{b_lat:.6f}"
    if draw() < 0.018:
        kind = draw()
        if kind < 0.90:
            start = start if 0.80 <= kind < 0.86 else "0.000000,0.000000"
            end = end if kind >= 0.86 else "0.000000,0.000000"
        else:
            end = f"{b_lon + 4.0 + draw():.6f},{b_lat + 2.0 * draw():.6f}"
    return f"{start},{end}"


def _charges(draw: Draw, pickup: int, seconds: int, miles: float) -> str:
    """Return the seven columns from payment type to total."""
    slow_minutes = max(0.0, seconds / 60 - miles * 60 / CRUISING_MPH)
    fare = round((2.50 + 2.50 * miles + 0.50 * slow_minutes) * 2) / 2
    surcharge = 0.5 if pickup % 86_400 >= 72_000 or pickup % 86_400 < 21_600 else 0.0
    payment, tip = "CSH", 0.0
    if draw() < 0.40:
        payment = "CRD"
        if draw() < 0.94:
            step, rest = divmod(draw() * (len(TIP_SHARES) - 1), 1.0)
            low, high = TIP_SHARES[int(step)], TIP_SHARES[int(step) + 1]
            tip = round(fare * (low + (high - low) * rest), 2)
    tolls = 4.8 if draw() < 0.02 else 0.0
    total = fare + surcharge + 0.5 + tip + tolls
    return f"{payment},{fare:.2f},{surcharge:.2f},0.50,{tip:.2f},{tolls:.2f},{total:.2f}"


def _pickups(clock: Clock, draw: Draw, first: int) -> Iterator[int]:
    """Yield the start times of trips: a Poisson process whose rate changes at full hours."""
    now = float(first)
    while True:
        rate, hour_ends = clock.rate(now), (now // 3600 + 1) * 3600
        while (now := now - log(1.0 - draw()) / rate) < hour_ends:
            yield int(now)
        now = hour_ends


def _trips(seed: int, start: datetime) -> Iterator[str]:
    """Yield the trips without end."""
    stream = RandomStream(seed, "taxi-trips")
    draw, city, clock = stream.uniform, _city(), Clock(start)
    fleet = Fleet(city, stream)
    normal, factors, places, names = _normal_table(), _time_factors(), city.places, fleet.names
    opening = int((start.replace(tzinfo=None) - clock.midnight).total_seconds())
    active_trips: list[tuple[int, int, int, int, str]] = []  # (drop-off, number, taxi, end cell, line)
    for number, pickup in enumerate(_pickups(clock, draw, opening - WARM_UP_SECONDS)):
        while active_trips and active_trips[0][0] <= pickup:
            dropoff, _, taxi, cell, line = heappop(active_trips)
            fleet.put(taxi, cell)
            if dropoff >= opening:
                yield line
        from_cell = city.start(draw())
        to_cell = city.end(from_cell, draw())
        free = fleet.take(from_cell, draw())
        if free is None:
            continue  # nobody comes: the passenger walks
        a_lat = places[from_cell].latitude + SPREAD_SOUTH * normal[int(draw() * TABLE)]
        a_lon = places[from_cell].longitude + SPREAD_EAST * normal[int(draw() * TABLE)]
        b_lat = places[to_cell].latitude + SPREAD_SOUTH * normal[int(draw() * TABLE)]
        b_lon = places[to_cell].longitude + SPREAD_EAST * normal[int(draw() * TABLE)]
        miles = 1.35 * great_circle_km(a_lat, a_lon, b_lat, b_lon) / KM_PER_MILE + 0.2
        seconds = int((330.0 + 125.0 * miles) * factors[int(draw() * TABLE)])
        dropoff = pickup + seconds
        line = (
            f"{names[free]},{clock.text(pickup)},{clock.text(dropoff)},{seconds},{miles:.2f},"
            f"{_coordinates(draw, a_lat, a_lon, b_lat, b_lon)},{_charges(draw, pickup, seconds, miles)}"
        )
        heappush(active_trips, (dropoff, number, free, to_cell, line))


@cache
def _city() -> City:
    return City()


def medallions(seed: int) -> list[str]:
    """Return the medallions of all taxis of a stream."""
    return [name.partition(",")[0] for name in Fleet(_city(), RandomStream(seed, "taxi-trips")).names]


def generate(
    seed: int = 1,
    count: int | None = None,
    start: datetime = datetime(2013, 1, 7, 8, 0),  # noqa: DTZ001  local time of the city, as in the data
) -> Iterator[str]:
    """Yield lines without line end, sorted by drop-off, 17 columns each.

    Args:
        seed: the same seed gives the same lines.
        count: number of lines; None for no end.
        start: local time before which no trip of the stream ends.

    Raises:
        ValueError: `count` is negative.
    """
    if count is not None and count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    trips = _trips(seed, start)
    return trips if count is None else (line for _, line in zip(range(count), trips, strict=False))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m agiledart_examples.taxi_trips",
        description="Writes invented taxi trips in the format of DEBS 2015 (CSV without header, 17 columns).",
    )
    parser.add_argument("--count", type=int, help="number of lines; without it the stream never ends (stdout only)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same lines (default: 1)")
    parser.add_argument("--start", type=datetime.fromisoformat, default=datetime(2013, 1, 7, 8, 0))  # noqa: DTZ001
    parser.add_argument("--output", help="file to write, compressed when its name ends in .gz; default: stdout")
    options = parser.parse_args(arguments)
    if options.count is not None and options.count < 0:
        parser.error(f"--count must not be negative, got {options.count}")
    if options.output and options.count is None:
        parser.error("--output needs --count: a stream without end does not fit into a file")
    return options


def _write(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        target: TextIO = sys.stdout
        if options.output:
            raw: IO[bytes] = stack.enter_context(open(options.output, "wb"))
            if options.output.endswith(".gz"):
                # No name and no time of writing in the file: the same seed gives the same bytes.
                raw = cast(
                    IO[bytes], stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
                )
            target = stack.enter_context(TextIOWrapper(raw, encoding="ascii", newline="\n"))
        for line in generate(options.seed, options.count, options.start):
            target.write(line + "\n")
        target.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code (0 ok, 1 cannot write, 2 usage, 130 interrupted)."""
    options = _parse(arguments)
    try:
        _write(options)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). Point stdout elsewhere, or the interpreter's last flush complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.stderr.write(f"cannot write {options.output or 'to stdout'}: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
