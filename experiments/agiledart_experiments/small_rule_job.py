"""Job of `deployment-latency --real`: readings, and those above a bound; the experiment submits this file as a user's file."""

from typing import NamedTuple

from agiledart import ReadTime, Sink, Source, Topology


class BoundedReading(NamedTuple):
    """One line of input: time in milliseconds, and a value; the source adds the time at which it read the line."""

    at: int
    value: int
    read: ReadTime


def small_rule(readings: Source[BoundedReading], report: Sink[BoundedReading], bound: int = 50) -> Topology:
    """Build the topology: readings whose value is at least `bound`."""
    topology = Topology("small-rule")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.filter(lambda reading: reading.value >= bound, name="high").sink("report", report)
    return topology
