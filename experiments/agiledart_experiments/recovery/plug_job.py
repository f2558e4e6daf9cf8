"""The job of the experiment `pull-the-plug`: readings by key, and for each the running sum of its key, whose state is large.

It travels to the agents as a user's file; it knows nothing of the experiment.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from agiledart import Context, KeyedOperator, Sink, Source, Topology

Delivery = Literal["exactly-once", "at-most-once"]


class KeyedReading(NamedTuple):
    """One line of input: when, a key, a value."""

    at: int
    key: int
    value: int


class Total(NamedTuple):
    """The sum of a key up to a reading."""

    at: int
    key: int
    total: int


@dataclass
class SumState:
    """What is kept of a key; `padding` gives it a size to be saved, moved and restored."""

    padding: str
    total: int = 0


class RunningSums(KeyedOperator[int, KeyedReading, SumState, Total]):
    """The running sum of each key."""

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
    """Readings and their sums; `padding_bytes` bytes are kept with each key."""
    topology = Topology(name, delivery=delivery)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.key_by(lambda reading: reading.key).stateful("sums", RunningSums(padding_bytes)).sink("report", report)
    return topology
