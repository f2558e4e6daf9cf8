"""Source `example:`: invented inputs of the shipped applications, the same for the same seed: `example:?stream=city&count=1000`."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice

from agiledart_examples.city_sensors import FIELDS, PLACES, START_MS, mean_values, sensor_names, sensor_readings
from agiledart_examples.machines import availability_lines, production_lines, temperature_lines
from agiledart_examples.taxi_trips import generate as taxi_lines
from agiledart_examples.taxi_trips import medallions
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream

CITY_SENSORS = 2_700
URBAN_SENSORS = 90_000
SUBJECTS = 10

WORDS = ("nathan", "mike", "jackson", "golda", "bertels")
SENTENCES = (
    "the cow jumped over the moon",
    "an apple a day keeps the doctor away",
    "four score and seven years ago",
    "snow white and the seven dwarfs",
    "i am at two with nature",
)

FIT_FIELDS = (
    *(f"acc_chest_{axis}" for axis in "xyz"),
    *("ecg_lead_1", "ecg_lead_2"),
    *(f"{kind}_ankle_{axis}" for kind in ("acc", "gyro", "magnetometer") for axis in "xyz"),
    *(f"{kind}_arm_{axis}" for kind in ("acc", "gyro", "magnetometer") for axis in "xyz"),
)


def generate(
    stream: str = "city", seed: int = 1, count: int | None = None, sensors: int = 0, interval_ms: int = 100
) -> Iterator[str]:
    """Yield the lines of a stream.

    Args:
        stream: its name; a wrong one is answered with all names.
        seed: the same seed gives the same lines.
        count: number of lines; None for no end, where the stream has none.
        sensors: of `city` (2,700 without it) and `urban` (90,000); machines of `machine-…` (4).
        interval_ms: event time between two rows of the streams of Storm's examples.

    Raises:
        ConfigurationError: there is no such stream, or a number is negative.
    """
    if (count is not None and count < 0) or sensors < 0 or interval_ms < 0:
        raise ConfigurationError("count, sensors and interval_ms of example: are not negative")
    make = _STREAMS.get(stream)
    if make is None:
        raise ConfigurationError(f"example: has no stream {stream!r}; it has {', '.join(sorted(_STREAMS))}")
    lines = make(seed, sensors, interval_ms)
    return lines if count is None else islice(lines, count)


def _senml(entries: list[dict[str, str]], at_ms: int) -> str:
    return f"{at_ms},{json.dumps({'e': entries, 'bt': at_ms}, separators=(',', ':'))}"


def _city(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    for reading in sensor_readings(seed, sensors or CITY_SENSORS):
        entries = [
            {"u": "string", "n": "source", "sv": reading.sensor},
            {"v": str(reading.place.longitude), "u": "lon", "n": "longitude"},
            {"v": str(reading.place.latitude), "u": "lat", "n": "latitude"},
        ]
        entries += [
            {"v": "" if value is None else str(value), "u": "far" if name == "temperature" else "per", "n": name}
            for name, value in zip(FIELDS[:5], reading.values, strict=False)
        ]
        yield _senml(entries, reading.at_ms)


def _city_metadata(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    for number, name in enumerate(sensor_names(seed, sensors or CITY_SENSORS)):
        yield f"{name}:building{number % 9},{('analog', 'heat', 'ultrasound')[number % 3]}"


def _taxi(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    names = (
        *(("taxi_identifier", "string"), ("hack_license", "string"), ("pickup_datetime", "time")),
        *(("dropoff_datetime", ""), ("trip_time_in_secs", "second"), ("trip_distance", "meter")),
        *(("pickup_longitude", "lon"), ("pickup_latitude", "lat"), ("dropoff_longitude", "lon")),
        *(("dropoff_latitude", "lat"), ("payment_type", "string"), ("fare_amount", "dollar")),
        *(("surcharge", "percentage"), ("mta_tax", "percentage"), ("tip_amount", "dollar")),
        *(("tolls_amount", "dollar"), ("total_amount", "dollar")),
    )
    for line in taxi_lines(seed):
        columns = line.split(",")
        at_ms = int(datetime.fromisoformat(columns[3]).replace(tzinfo=UTC).timestamp()) * 1000
        is_text = [unit in ("string", "time", "lon", "lat") for _, unit in names]
        yield _senml(
            [
                {"u": unit, "n": name, "sv" if text else "v": value}
                for (name, unit), text, value in zip(names, is_text, columns, strict=True)
                if unit
            ],
            at_ms,
        )


def _taxi_metadata(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    for number, name in enumerate(medallions(seed)):
        yield f"{name}:{('carpool', 'jam', 'yellow')[number % 3]},driver{number % 97},{('San Jose', 'San Diego')[number % 2]}"


def _fit(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    draw = RandomStream(seed, "fit")
    levels = [[0.0] * len(FIT_FIELDS) for _ in range(SUBJECTS)]
    number = 0
    while True:
        turn, subject = divmod(number, SUBJECTS)
        level = levels[subject]
        for place in range(len(level)):
            level[place] = 0.97 * level[place] + 2.5 * (draw.uniform() - 0.5)
        entries = [{"u": "string", "n": "subjectId", "sv": f"subject{subject + 1}"}]
        entries += [
            {"v": f"{value:.5g}", "u": "m/s2", "n": name} for name, value in zip(FIT_FIELDS, level, strict=True)
        ]
        yield _senml([*entries, {"v": "0", "u": "number ", "n": "label"}], START_MS + 20 * turn)
        number += 1


def _fit_metadata(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    for subject in range(SUBJECTS):
        yield f"subject{subject + 1}:{20 + 4 * subject},{'FM'[subject % 2]}"


def _cities(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    draw = RandomStream(seed, "cities")
    at_ms = START_MS
    while True:
        for place in PLACES:
            values = [value * (0.98 + 0.04 * draw.uniform()) for value in mean_values(place.name, at_ms)[:5]]
            time = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
            yield f"{time},{place.name},{','.join(f'{value:.4f}' for value in values)}"
        at_ms += 300_000


def _urban(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    for reading in sensor_readings(seed, sensors or URBAN_SENSORS):
        values = ",".join("" if value is None else str(value) for value in reading.values)
        yield f"{reading.at_ms},{reading.place.name},{reading.sensor},{values}"


def _models(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    """Models with the rounded figures of the benchmark's own."""
    models: dict[str, object] = {}
    for name, splits, attr, selected, coefficients in (
        ("CITY", (22.0, 29.0), 4, (True, True, False, True, False), (-0.51069, 0.155035, -0.0043941, 37.4427)),
        ("TAXI", (10.0, 18.5), 2, (True, True, False), (0.0021678, 2.347247, 3.574165)),
    ):
        leaves = [{"leaf": True, "class_index": kind} for kind in range(3)]
        upper = {"leaf": False, "attr": attr, "split": splits[1], "sons": leaves[1:]}
        tree = {"leaf": False, "attr": attr, "split": splits[0], "sons": [leaves[0], upper]}
        classes = {"values": ["BAD", "GOOD", "VERYGOOD", "EXCELLENT"]}
        models[f"{name}-DTC-1"] = {"class_index_attr": 0, "attributes": [classes], "tree": tree}
        models[f"{name}-MLR-1"] = {"selected": selected, "coefficients": coefficients}
    yield json.dumps({"models": models})


def _timer(first_ms: int, span_ms: int) -> Callable[[int, int, int], Iterator[str]]:
    def lines(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
        for number in range(7):
            start = first_ms + number * 3_600_000
            yield f"{number + 1},{1_443_033_000 + 120 * number},{start},{start + span_ms}"

    return lines


def _timed(values: Callable[[RandomStream], str]) -> Callable[[int, int, int], Iterator[str]]:
    """Return a stream of lines `running number,milliseconds,value`."""

    def lines(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
        draw = RandomStream(seed, "storm-pool")
        number = 0
        while True:
            yield f"{number},{START_MS + number * interval_ms},{values(draw)}"
            number += 1

    return lines


def _of_machines(lines: Callable[[int, int], Iterator[str]]) -> Callable[[int, int, int], Iterator[str]]:
    return lambda seed, sensors, interval_ms: lines(seed, sensors)


def _uuid(draw: RandomStream) -> str:
    text = f"{draw.bits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _genders(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    return (f"{i},{START_MS + i * interval_ms},{('male', 'female')[i % 2]}" for i in range(10))


def _ages(seed: int, sensors: int, interval_ms: int) -> Iterator[str]:
    return (f"{9 - i},{START_MS + i * interval_ms},{29 - i}" for i in range(10))


_STREAMS: dict[str, Callable[[int, int, int], Iterator[str]]] = {
    "ages": _ages,
    "cities": _cities,
    "city": _city,
    "city-metadata": _city_metadata,
    "city-timer": _timer(START_MS, 1_000_000),
    "fit": _fit,
    "fit-metadata": _fit_metadata,
    "genders": _genders,
    "integers": _timed(lambda draw: str(draw.index(1000))),
    "machine-availability": _of_machines(availability_lines),
    "machine-production": _of_machines(production_lines),
    "machine-temperature": _of_machines(temperature_lines),
    "models": _models,
    "requests": _timed(lambda draw: f"page{int(draw.uniform() ** 3 * 200)} user{draw.index(50)}"),
    "sentences": _timed(lambda draw: draw.choice(SENTENCES)),
    "taxi": _taxi,
    "taxi-metadata": _taxi_metadata,
    "taxi-timer": _timer(1_357_545_600_000, 864_000),
    "urban": _urban,
    "uuids": _timed(_uuid),
    "words": _timed(lambda draw: draw.choice(WORDS)),
}
