"""Manufacturing is exact against a plain loop, at every parallelism and under hostile schedules."""

from typing import Any, TypeVar

import pytest

from agiledart import collect, records
from agiledart.testing import run_local
from agiledart_examples.equipment_effectiveness import (
    REPORT_EVERY,
    SERVICE_LEVELS_MS,
    AvailabilityReading,
    ProductionReading,
    TemperatureReading,
    manufacturing,
)
from agiledart_examples.generated_streams import generate
from agiledart_examples.machines import HOT_CELSIUS

R = TypeVar("R")

MINUTES = 160
"""Rows of four machines: two reports, and 40 results. The results wait for the third report."""


def lines(kind: str, per_minute: int) -> list[list[str]]:
    return [line.split(",") for line in generate(f"machine-{kind}", 1, 4 * per_minute * MINUTES)]


STOPS = [AvailabilityReading(int(at), name, text == "true", 0) for at, name, text in lines("availability", 5)]  # type: ignore[arg-type]
IMAGES = [ProductionReading(int(at), name, text, 0) for at, name, text in lines("production", 1)]  # type: ignore[arg-type]
HEAT = [TemperatureReading(int(at), name, float(text), 0) for at, name, text in lines("temperature", 10)]  # type: ignore[arg-type]


def effectiveness(image: str) -> float:
    """The product of the three factors, from the text of an image."""
    produced, defective, ideal_ms, scheduled, unscheduled = (int(text) for text in image.split(";")[:5])
    quality = (produced - defective) / produced if produced else 0.0
    return round(produced * ideal_ms / 1000 / 60 * ((60 - scheduled - unscheduled) / 60) * quality, 6)


def expected() -> list[tuple[int, str]]:
    messages = [(row.at_ms, f"stop: {row.machine} does not run") for row in STOPS if not row.is_available]
    messages += [
        (row.at_ms, f"heat: {row.machine} has {row.celsius:.1f} °C") for row in HEAT if row.celsius > HOT_CELSIUS
    ]
    values = [effectiveness(row.image) for row in IMAGES]
    for end in range(REPORT_EVERY, len(values) + 1, REPORT_EVERY):
        mean = sum(values[end - REPORT_EVERY : end]) / REPORT_EVERY
        text = f"report: effectiveness {mean:.4f} of the last {REPORT_EVERY} results"
        messages.append((IMAGES[end - 1].at_ms, text))
    return sorted(messages)


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (2, 3), (4, 4)])
def test_messages_are_exact(parallelism: int, seed: int | None) -> None:
    topology = manufacturing(records(STOPS), records(IMAGES), records(HEAT), collect, work_ms=0)
    result: Any = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    assert [row.at_ms for row in result] == sorted(row.at_ms for row in result)
    assert sorted((row.at_ms, row.text) for row in result) == expected()
    assert sum(row.subject == "report" for row in result) == 2


def test_the_streams_have_the_published_rates_and_sizes() -> None:
    assert len("".join(IMAGES[0].image)) == pytest.approx(12_500, abs=200)
    assert 1 / 80 < sum(not row.is_available for row in STOPS) / len(STOPS) < 1 / 35
    assert 1 / 150 < sum(row.celsius > HOT_CELSIUS for row in HEAT) / len(HEAT) < 1 / 70


def test_each_operator_has_its_published_duration_as_service_level() -> None:
    steps = {step.name: step.slo_ms for step in manufacturing().specification().steps}
    assert {name: steps[name] for name in SERVICE_LEVELS_MS} == {
        name: float(ms) for name, ms in SERVICE_LEVELS_MS.items()
    }
