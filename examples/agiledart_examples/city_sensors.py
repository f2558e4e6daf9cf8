"""Generator of invented readings of sensors in seven cities: one reading of each sensor every ten seconds.

A reading is the city's mean at that hour of day, plus the sensor's own offset, plus noise that is correlated in time. Means are
those of Sense Your City in March 2015, every three hours UTC, linear in between; the offsets have the spread of its sensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist
from typing import NamedTuple

from agiledart_kernel.randomness import RandomStream

FIELDS = ("temperature", "humidity", "light", "dust", "airquality_raw", "sound")

INTERVAL_MS = 10_000
START_MS = 1_422_748_800_000
"""2015-02-01 00:00 UTC."""

STEP_MS = 3 * 3_600_000
"""Time between two means of `MEANS`."""

CORRELATION = 0.95
MISSING = 0.01
BURSTS = 0.0005
"""Share of readings at which air quality bursts to several hundred."""


class Place(NamedTuple):
    """City with the middle of its sensors in degrees."""

    name: str
    longitude: float
    latitude: float


PLACES = (
    Place("Bangalore", 77.61, 12.98),
    Place("Boston", -71.09, 42.36),
    Place("Geneva", 6.15, 46.20),
    Place("Rio de Janeiro", -43.20, -22.93),
    Place("San Francisco", -122.42, 37.77),
    Place("Shanghai", 121.46, 31.22),
    Place("Singapore", 103.83, 1.31),
)

MEANS: dict[str, tuple[tuple[float, ...], ...]] = {
    "Bangalore": (
        (27.1, 30.2, 33.3, 34.5, 31.8, 29.9, 28.5, 27.4),
        (49.5, 39.8, 29.6, 26.5, 30.6, 36.1, 43.3, 47.1),
        (310, 2142, 2807, 2391, 98, 4, 0, 0),
        (1824, 1817, 1777, 1781, 1737, 1881, 1804, 1720),
        (28.9, 28.7, 25.9, 26.0, 30.2, 29.8, 26.2, 26.2),
        (1409, 1488, 1514, 1522, 1552, 1510, 1378, 1369),
    ),
    "Boston": (
        (9.0, 8.4, 7.9, 7.3, 9.0, 12.0, 12.2, 10.4),
        (29.4, 30.7, 31.6, 32.1, 29.3, 24.9, 24.2, 26.4),
        (0, 0, 0, 67, 1061, 1751, 1463, 225),
        (959, 815, 748, 750, 841, 844, 884, 876),
        (23.8, 24.6, 24.6, 24.8, 25.1, 24.0, 22.8, 22.9),
        (1126, 1091, 1068, 1082, 1140, 1184, 1188, 1159),
    ),
    "Geneva": (
        (11.9, 11.0, 12.5, 17.1, 18.1, 16.8, 14.3, 12.9),
        (43.0, 45.0, 43.0, 34.1, 31.1, 32.8, 37.7, 40.9),
        (0, 7, 653, 2105, 1743, 416, 2, 0),
        (1643, 1345, 1613, 1738, 1609, 1689, 2024, 2096),
        (38.8, 38.9, 40.2, 38.6, 37.5, 37.5, 38.8, 39.4),
        (1763, 1764, 1802, 1829, 1846, 1843, 1829, 1790),
    ),
    "Rio de Janeiro": (
        (31.8, 31.5, 31.2, 32.6, 34.6, 34.1, 33.2, 32.1),
        (49.7, 50.5, 51.4, 49.2, 43.7, 43.7, 45.6, 48.8),
        (3, 0, 4, 2434, 4088, 2535, 1156, 12),
        (955, 872, 861, 931, 953, 970, 966, 921),
        (33.3, 32.4, 32.1, 34.6, 32.7, 30.7, 30.5, 31.8),
        (1540, 1539, 1535, 1568, 1596, 1604, 1602, 1567),
    ),
    "San Francisco": (
        (21.0, 18.4, 17.6, 17.0, 16.7, 19.0, 23.0, 25.0),
        (43.4, 51.8, 55.0, 56.9, 58.2, 52.7, 39.6, 35.0),
        (831, 1, 1, 0, 60, 1960, 4025, 4294),
        (954, 985, 1014, 978, 978, 1019, 1013, 1024),
        (24.2, 25.1, 25.1, 25.4, 26.4, 27.2, 25.8, 24.6),
        (1605, 1554, 1545, 1529, 1541, 1581, 1613, 1637),
    ),
    "Shanghai": (
        (16.7, 19.2, 18.5, 16.3, 15.1, 14.7, 14.4, 14.2),
        (45.2, 39.2, 39.9, 45.0, 48.6, 50.2, 51.7, 51.9),
        (1755, 2389, 956, 39, 1, 0, 0, 227),
        (1515, 1560, 1527, 1531, 1428, 1338, 1356, 1417),
        (30.1, 29.6, 29.2, 30.4, 30.2, 29.9, 29.9, 30.1),
        (1648, 1707, 1700, 1679, 1651, 1610, 1564, 1559),
    ),
    "Singapore": (
        (31.2, 33.5, 34.0, 32.0, 30.6, 30.1, 29.7, 29.4),
        (60.3, 49.9, 48.9, 54.8, 60.8, 64.2, 66.1, 67.2),
        (1619, 2434, 2269, 544, 1, 1, 0, 57),
        (786, 813, 795, 780, 781, 808, 756, 781),
        (25.1, 23.1, 23.7, 24.2, 24.6, 24.0, 23.8, 24.7),
        (1323, 1321, 1366, 1321, 1339, 1276, 1263, 1259),
    ),
}
"""Mean of each of `FIELDS`, in their order, every three hours from 00:00 UTC."""

OFFSET_SD = (4.0, 6.0, 0.8, 0.35, 3.0, 250.0)
NOISE_SD = (0.4, 1.5, 0.3, 0.35, 1.5, 300.0)
IS_LOG_NORMAL = (False, False, True, True, False, False)
"""Per field: spread of the sensors' offsets and of the noise, in units of the field; of its logarithm where it is log-normal."""

NORMALS = 4096


class SensorReading(NamedTuple):
    """Reading of a sensor; None where a value is missing.

    Attributes:
        at_ms: milliseconds since 1970.
        values: of `FIELDS`, in their order.
    """

    at_ms: int
    sensor: str
    place: Place
    values: list[float | None]


@dataclass
class _Sensor:
    name: str
    place: Place
    offsets: list[float]
    noise: list[float]


def sensor_names(seed: int, sensors: int) -> list[str]:
    """Return the names of the sensors, in the order in which they report."""
    draw = RandomStream(seed, "sensor-names")
    return [f"ci4{draw.bits(80):020x}{number}" for number in range(sensors)]


def sensor_readings(seed: int, sensors: int, interval_ms: int = INTERVAL_MS) -> Iterator[SensorReading]:
    """Yield readings without end, in order of time; the sensors of a round are spread evenly over the interval."""
    draw = RandomStream(seed, "city-sensors")
    table = [NormalDist().inv_cdf((i + 0.5) / NORMALS) for i in range(NORMALS)]
    innovation = sqrt(1 - CORRELATION**2)
    known = [
        _Sensor(
            name,
            PLACES[number % len(PLACES)],
            [sd * table[int(draw.uniform() * NORMALS)] for sd in OFFSET_SD],
            [sd * table[int(draw.uniform() * NORMALS)] for sd in NOISE_SD],
        )
        for number, name in enumerate(sensor_names(seed, sensors))
    ]
    # a log-normal factor with mean 1
    corrections = [(offset**2 + noise**2) / 2 for offset, noise in zip(OFFSET_SD, NOISE_SD, strict=True)]
    number = 0
    means: dict[str, list[float]] = {}
    minute = -1
    while True:
        turn, index = divmod(number, sensors)
        at_ms = START_MS + turn * interval_ms + index * interval_ms // sensors
        if at_ms // 60_000 != minute:
            minute = at_ms // 60_000
            means = {place.name: mean_values(place.name, at_ms) for place in PLACES}
        sensor = known[index]
        values: list[float | None] = []
        for field, mean in enumerate(means[sensor.place.name]):
            noise = CORRELATION * sensor.noise[field]
            noise += innovation * NOISE_SD[field] * table[int(draw.uniform() * NORMALS)]
            sensor.noise[field] = noise
            deviation = sensor.offsets[field] + noise
            value = mean * exp(deviation - corrections[field]) if IS_LOG_NORMAL[field] else mean + deviation
            values.append(round(max(value, 0.0) if field else value, 2))
        if draw.uniform() < BURSTS:
            values[4] = round(200 + 700 * draw.uniform(), 2)
        if draw.uniform() < MISSING * len(FIELDS):
            values[int(draw.uniform() * len(FIELDS))] = None
        yield SensorReading(at_ms, sensor.name, sensor.place, values)
        number += 1


def mean_values(city: str, at_ms: int) -> list[float]:
    """Return the mean of each field in a city at a time, linear between the means of `MEANS`."""
    step, rest = divmod(at_ms % 86_400_000, STEP_MS)
    share = rest / STEP_MS
    return [means[step] * (1 - share) + means[(step + 1) % 8] * share for means in MEANS[city]]
