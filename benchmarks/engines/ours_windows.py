"""J2 by zone in columns as a user submits it: this file is all that travels. For measuring memory."""

from datetime import timedelta
from typing import NamedTuple

from agiledart import Sink, Source, Topology, col, count, tumbling

FARE_MIN = 12.5


class Trip(NamedTuple):
    """The twelve fields of a line."""

    ts: int
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


def windows(trips: Source[Trip], results: Sink[object]) -> Topology:
    """Trips, mean fare and mean share of the tip by zone, each second."""
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
