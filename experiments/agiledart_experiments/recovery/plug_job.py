"""Job of the experiment `pull-the-plug`: readings by key, and a running sum for each key, with a large state.

The experiment submits this file as a user's file; the job does not depend on the experiment.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from agiledart import Context, KeyedOperator, Sink, Source, Topology

Delivery = Literal["exactly-once", "at-most-once"]


class KeyedReading(NamedTuple):
    """One line of input: time in milliseconds, key and value."""

    at: int
    key: int
    value: int


class Total(NamedTuple):
    """Sum of a key up to a reading."""

    at: int
    key: int
    total: int


@dataclass
class SumState:
    """State of a key; `padding` makes it large, so that saving, moving and restoring it takes time."""

    padding: str
    total: int = 0


class RunningSums(KeyedOperator[int, KeyedReading, SumState, Total]):
    """Operator that emits the running sum of each key."""

    def __init__(self, padding_bytes: int) -> None:
        self._padding_bytes = padding_bytes

    def initial(self, key: int) -> SumState:
        return SumState(f"{key:016d}" * (self._padding_bytes // 16))

    def on_record(self, key: int, record: KeyedReading, state: SumState, context: Context[Total]) -> None:
        state.total += record.value
        context.emit(Total(record.at, key, state.total))


def plug(
    readings: Source[KeyedReading],
    report: Sink[Total],
    name: str = "plug",
    padding_bytes: int = 432,
    delivery: Delivery = "exactly-once",
) -> Topology:
    """Build the topology of readings and their sums; the state of each key has `padding_bytes` bytes of padding."""
    topology = Topology(name, delivery=delivery)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.key_by(lambda reading: reading.key).stateful("sums", RunningSums(padding_bytes)).sink("report", report)
    return topology
