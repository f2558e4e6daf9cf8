"""J3 as our engine does it gives what its arithmetic says, in both forms."""

from typing import Any

import pytest
from benchmarks.engines.jobs import ZoneAggregate, derive, keep
from benchmarks.engines.ours.taxi_pipeline import latency, latency_columns
from benchmarks.engines.trips import EngineTrip

from agiledart import collect, records
from agiledart.testing import run_local
from agiledart_kernel.randomness import RandomStream


def trips(count: int) -> list[EngineTrip]:
    random = RandomStream(3, "trips")

    def number(low: float, high: float) -> float:
        return round(low + (high - low) * random.uniform(), 6)

    return [
        EngineTrip(
            *(n * 1_000_000, f"m{n}", f"l{n}", random.index(5), random.index(99), "p", "d"),
            *(number(-74, -73), number(40, 41), number(0, 9), number(2, 30), number(0, 9)),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("build", [latency, latency_columns])
def test_each_tuple_that_passes_has_its_result(build: Any) -> None:
    given = trips(300)
    running = ZoneAggregate()
    wanted = []
    for trip in filter(keep, given):
        row = derive(trip)
        zone, due, number, fares, mean = running.next(row[3], row[0], row[10], row[12])
        wanted.append((zone, due, due, number, fares, mean))
    topology = build(records(given), collect)
    assert [tuple(row) for row in run_local(topology)] == wanted
    assert 100 < len(wanted) < 300
