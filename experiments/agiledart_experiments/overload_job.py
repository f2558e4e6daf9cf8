"""Job of the experiment `overload`: readings at a steady rate, and a step on another node that is too slow for them.

The experiment submits this file as a user's file; the job does not depend on the experiment.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from agiledart import Overload, Sink, Source, Topology


class SensorLine(NamedTuple):
    """One line of a sensor: milliseconds since 1970, a value, and payload text."""

    at: int
    value: float
    text: str


def slowly(seconds_each: float, until: Path) -> Callable[[SensorLine], SensorLine]:
    """Return a step that sleeps `seconds_each` for each row until the file `until` exists; then the step does not sleep."""
    is_slow = True

    def slow(reading: SensorLine) -> SensorLine:
        nonlocal is_slow
        if is_slow:
            time.sleep(seconds_each)
            is_slow = not until.exists()
        return reading

    return slow


def event_time(reading: SensorLine) -> int:
    return reading.at


def slow_sink(
    readings: Source[SensorLine],
    report: Sink[SensorLine],
    name: str = "overload",
    policy: str = "block",
    rows: int = 10_000,
    spool_bytes: int = 256 << 20,
    seconds_each: float = 0.005,
    until: str = "fast",
) -> Topology:
    """Build the topology: a source of readings, the slow step, and a sink."""
    topology = Topology(name, delivery="at-most-once")
    overload = Overload(policy, rows=rows, spool_bytes=spool_bytes)
    stream = topology.source("readings", readings, event_time=event_time, overload=overload)
    stream = stream.map(slowly(seconds_each, Path(until)), name="slow", returns=SensorLine)
    topology.steps[-1] = replace(topology.steps[-1], at="a2")
    stream.sink("report", report)
    return topology
