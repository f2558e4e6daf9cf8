"""Urban sensing is exact against plain sums, at every parallelism, in rows and columns."""

from collections import defaultdict
from math import fsum
from typing import Any

import pytest

from agiledart import batches, collect, plugin, records
from agiledart.testing import run_local
from agiledart_examples.city_sensors import FIELDS, PLACES, mean_values
from agiledart_examples.generated_streams import URBAN_SENSORS, generate
from agiledart_examples.urban_sensing import KINDS, UrbanReading, urban_sensing

COUNT, SENSORS = 2_500, 200


def readings(count: int = COUNT, sensors: int = SENSORS) -> list[UrbanReading]:
    """Generated rows: two minutes of 200 sensors."""
    rows = []
    for line in generate("urban", 1, count, sensors):
        at_ms, city, sensor, *values = line.split(",")
        rows.append(UrbanReading(int(at_ms), city, sensor, *[float(text) if text else None for text in values]))
    return rows


def expected(rows: list[UrbanReading]) -> dict[tuple[int, str, str], tuple[int, float, float, float]]:
    """(start, city, kind) → number, mean, least, greatest."""
    values: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for row in rows:
        for kind in KINDS:
            value = row._asdict()[kind]
            if value is not None:
                values[row.at_ms // 60_000 * 60_000, row.city, kind].append(value)
    return {
        key: (len(numbers), fsum(numbers) / len(numbers), min(numbers), max(numbers)) for key, numbers in values.items()
    }


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (2, 3), (4, 4)])
def test_summaries_are_exact(parallelism: int, seed: int | None) -> None:
    rows = readings()
    result: Any = run_local(urban_sensing(records(rows), collect), parallelism=parallelism, schedule_seed=seed)
    found = {(row.start_ms, row.city, row.kind): row[3:] for row in result}
    assert found == expected(rows)
    assert len(result) == len(found) == 3 * len(PLACES) * len(KINDS)
    assert [row.start_ms for row in result] == sorted(row.start_ms for row in result)


def test_columns_give_the_same_rows() -> None:
    rows = readings(1_500)

    def made() -> Any:
        import pyarrow as pa

        for start in range(0, len(rows), 500):
            yield pa.RecordBatch.from_pylist([row._asdict() for row in rows[start : start + 500]])

    by_columns = run_local(urban_sensing(batches(made, row_type=UrbanReading), collect))
    assert by_columns == run_local(urban_sensing(records(rows), collect))


def test_there_are_90_000_sensors_and_each_reports_every_ten_seconds() -> None:
    names: dict[str, int] = {}
    for line in generate("urban", 1, URBAN_SENSORS):
        at_ms, _, sensor, _ = line.split(",", 3)
        names[sensor] = int(at_ms)
    assert len(names) == URBAN_SENSORS == 90_000
    assert max(names.values()) - min(names.values()) < 10_000


def test_means_of_cities_are_those_of_the_table() -> None:
    """Two hours of a city are within a tenth of its means (light and dust: their factor has mean 1)."""
    sums: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in readings(12_000, 1_400):
        for kind, name in zip(("temperature", "humidity", "sound"), ("temperature", "humidity", "sound"), strict=True):
            value = row._asdict()[kind]
            sums[row.city, name] += [] if value is None else [value]
    for place in PLACES:
        means = dict(zip(FIELDS, mean_values(place.name, 1_422_748_800_000), strict=True))
        for name in ("temperature", "humidity", "sound"):
            values = sums[place.name, name]
            assert sum(values) / len(values) == pytest.approx(means[name], rel=0.1, abs=1.0)


def test_default_source_runs() -> None:
    rows: Any = run_local(urban_sensing(plugin("example", stream="urban", count=70, sensors=70), collect))
    assert {row.city for row in rows} == {place.name for place in PLACES}
