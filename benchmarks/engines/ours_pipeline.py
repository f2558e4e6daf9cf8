"""J3 as a user of ours writes it: submitted to agents; the modules that it imports travel with it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from agiledart import Context, KeyedOperator, ReadTime, Sink, Source, Topology, col
from benchmarks.engines.jobs import FARE_MIN
from benchmarks.engines.trips import Trip


class Derived(NamedTuple):
    """What is kept of a trip and made of it: all fields, as the other engines carry them."""

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


class Result(NamedTuple):
    """One result for each tuple; `due` is written as the milliseconds since."""

    zone: int
    due_ns: int
    due: ReadTime
    number: int
    fares: float
    mean: float


@dataclass
class Totals:
    """One zone's state."""

    count: int = 0
    fares: float = 0.0
    ratios: float = 0.0


class RunningTotals(KeyedOperator[int, Derived, Totals, Result]):
    """How many so far, the sum of fares, the mean share."""

    def initial(self, key: int) -> Totals:
        return Totals()

    def on_record(self, key: int, record: Derived, state: Totals, context: Context[Result]) -> None:
        state.count += 1
        state.fares += record.fare
        state.ratios += record.ratio
        mean = state.ratios / state.count
        context.emit(Result(key, record.due_ns, ReadTime(record.due_ns), state.count, state.fares, mean))


def derived(trip: Trip) -> Derived | None:
    """The tip's share and a cell, of about half of the trips; one step, because a pinned step stands alone."""
    if trip.fare < FARE_MIN:
        return None
    cell = int((trip.lon + 74.1) * 1000) * 1000 + int((trip.lat - 40.5) * 1000)
    return Derived(*trip, trip.tip / trip.fare, cell)


def latency(trips: Source[Trip], results: Sink[Result], name: str = "latency") -> Topology:
    """Parse, filter and derive where the source is; aggregate; write."""
    topology = Topology(name)
    (
        topology.source("trips", trips, event_time=lambda trip: trip.ts // 1_000_000)
        .flat_map(derived)
        .key_by(lambda row: row.zone)
        .stateful("totals", RunningTotals())
        .sink("results", results)
    )
    _pin(topology, {"derived": "a1", "totals": "a2"})
    return topology


def latency_columns(trips: Source[Trip], results: Sink[Result], name: str = "latency") -> Topology:
    """The same with expressions: all fields travel as columns, and become rows where each gives one result."""
    topology = Topology(name)
    east = ((col("lon") + 74.1) * 1000).cast(int)
    (
        topology.source("trips", trips, event_time=col("ts") // 1_000_000)
        .where(col("fare") >= FARE_MIN, step_name="kept")
        .with_columns(
            step_name="derived",
            ratio=col("tip") / col("fare"),
            cell=east * 1000 + ((col("lat") - 40.5) * 1000).cast(int),
        )
        .select("zone", "fare", "ratio", step_name="needed", due_ns=col("ts"))
        .key_by(col("zone"))
        .stateful("totals", RunningTotals())
        .sink("results", results)
    )
    _pin(topology, {"kept": "a1", "derived": "a1", "needed": "a2", "totals": "a2"})
    return topology


def _pin(topology: Topology, places: dict[str, str]) -> None:
    """Say where steps run, so that tuples cross the same two hops as with the other engines.

    Left to itself the placement spares a source's node, which makes it three.
    """
    for index, step in enumerate(topology.steps):
        topology.steps[index] = replace(step, at=places.get(step.name, step.at))
