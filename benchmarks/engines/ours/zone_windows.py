"""J2 by zone in columns as a user submits it, to measure memory; the modules that it imports travel with it."""

from datetime import timedelta

from agiledart import Sink, Source, Topology, col, count, tumbling
from benchmarks.engines.jobs import FARE_MIN
from benchmarks.engines.trips import EngineTrip


def windows(trips: Source[EngineTrip], results: Sink[object]) -> Topology:
    """Build the job: trips, mean fare and mean share of the tip by zone, each second."""
    topology = Topology("windows")
    (
        topology.source("trips", trips, event_time="ts")
        .where(col("fare") >= FARE_MIN)
        .with_columns(ratio=col("tip") / col("fare"))
        .key_by(col("zone"))
        .window(tumbling(timedelta(seconds=1)))
        .aggregate("windows", trips=count(), fares=col("fare").sum(), mean=col("ratio").mean())
        .sink("results", results)
    )
    return topology
