"""A small rule of an edge box: readings, those above a bound, counted and averaged by key each minute of event time."""

from datetime import timedelta
from typing import NamedTuple

from agiledart import Sink, Source, Topology, col, count, tumbling

BOUND = 15.0


class RuleReading(NamedTuple):
    """A reading of a sensor. `ts`: in milliseconds."""

    ts: int
    sensor: int
    value: float


def rule(readings: Source[RuleReading], results: Sink[object]) -> Topology:
    """Build the rule: readings and mean value by sensor, each minute."""
    topology = Topology("small-rule")
    (
        topology.source("readings", readings, rows=RuleReading, event_time="ts")
        .where(col("value") >= BOUND, name="high")
        .key_by(col("sensor"))
        .window(tumbling(timedelta(minutes=1)))
        .aggregate("minutes", readings=count(), mean=col("value").mean())
        .sink("results", results)
    )
    return topology
