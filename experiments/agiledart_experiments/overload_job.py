"""The job of the experiment `overload`: readings at a steady rate, and a step on another node that is too slow for them.

It travels to the agents as a user's file; it knows nothing of the experiment.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from agiledart import Overload, Sink, Source, Topology


class Reading(NamedTuple):
    """One line of a sensor: milliseconds since 1970, and something to carry."""

    at: int
    value: float
    text: str


def slowly(seconds_each: float, seconds: float) -> Callable[[Reading], Reading]:
    """A step that takes so long for each row, for so many seconds from its first row on; then it is as fast as it can."""
    until = 0.0

    def slow(reading: Reading) -> Reading:
        nonlocal until
        now = time.monotonic()
        until = until or now + seconds
        if now < until:
            time.sleep(seconds_each)
        return reading

    return slow


def event_time(reading: Reading) -> int:
    return reading.at


def slow_sink(
    readings: Source[Reading],
    report: Sink[Reading],
    name: str = "overload",
    policy: str = "block",
    rows: int = 10_000,
    spool_bytes: int = 256 << 20,
    seconds_each: float = 0.005,
    seconds: float = 15.0,
) -> Topology:
    """Readings, slowly, to a sink."""
    topology = Topology(name)
    overload = Overload(policy, rows=rows, spool_bytes=spool_bytes)
    stream = topology.source("readings", readings, event_time=event_time, overload=overload)
    stream = stream.map(slowly(seconds_each, seconds), name="slow", returns=Reading)
    topology.steps[-1] = replace(topology.steps[-1], at="a2")
    stream.sink("report", report)
    return topology
