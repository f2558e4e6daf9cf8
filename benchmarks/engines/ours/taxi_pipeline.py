"""J3 as a user of ours writes it: submitted to agents; the modules that it imports travel with it."""

from dataclasses import replace
from typing import Any, NamedTuple

from agiledart import ReadTime, Sink, Source, Stream, Topology, col, count
from benchmarks.engines.jobs import FARE_MIN
from benchmarks.engines.trips import EngineTrip


class Derived(NamedTuple):
    """A trip's fields and the values derived from them; all fields, as the other engines carry them."""

    due_ns: int
    medallion: str
    license: str
    zone: int
    vehicle: int
    pickup: str
    dropoff: str
    lon: float
    lat: float
    dist: float
    fare: float
    tip: float
    ratio: float
    cell: int


def derived(trip: EngineTrip) -> Derived | None:
    """Add the tip's share and the cell to a trip; None for a fare below the bound, about half of the trips."""
    if trip.fare < FARE_MIN:
        return None
    cell = int((trip.lon + 74.1) * 1000) * 1000 + int((trip.lat - 40.5) * 1000)
    return Derived(*trip, trip.tip / trip.fare, cell)


def latency(trips: Source[EngineTrip], results: Sink[Any], name: str = "latency") -> Topology:
    """Build the job with functions: parse, filter and derive at the source; aggregate; write."""
    topology = Topology(name)
    rows = topology.source("trips", trips, event_time=lambda trip: trip.ts // 1_000_000).flat_map(derived)
    _totals(rows, results, "due_ns")
    _pin(topology, {"derived": "a1", "totals": "a2", "result": "a2"})
    return topology


def latency_columns(trips: Source[EngineTrip], results: Sink[Any], name: str = "latency") -> Topology:
    """Build the same job with expressions: all fields travel as columns."""
    topology = Topology(name)
    east = ((col("lon") + 74.1) * 1000).cast(int)
    columns = (
        topology.source("trips", trips, event_time=col("ts") // 1_000_000)
        .where(col("fare") >= FARE_MIN, name="kept")
        .with_columns(
            name="derived",
            ratio=col("tip") / col("fare"),
            cell=east * 1000 + ((col("lat") - 40.5) * 1000).cast(int),
        )
    )
    _totals(columns, results, "ts")
    _pin(topology, {"kept": "a1", "derived": "a1", "totals": "a2", "result": "a2"})
    return topology


def _totals(rows: Stream[Any], results: Sink[Any], due: str) -> None:
    """Add the totals by zone: count so far, sum of fares, mean share. The rows also have the milliseconds since `due`."""
    (
        rows.key_by(col("zone"))
        .running("totals", number=count(), fares=col("fare").sum(), mean=col("ratio").mean())
        .select(
            "zone",
            name="result",
            due_ns=col(due),
            due=col(due).cast(ReadTime),
            number=col("number"),
            fares=col("fares"),
            mean=col("mean"),
        )
        .sink("results", results)
    )


def _pin(topology: Topology, places: dict[str, str]) -> None:
    """Pin steps to agents, so that tuples cross the same two hops as with the other engines.

    Without pins the placement avoids a source's node, which makes three hops.
    """
    for index, step in enumerate(topology.steps):
        topology.steps[index] = replace(step, at=places.get(step.name, step.at))
