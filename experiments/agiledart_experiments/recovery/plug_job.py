"""The job of the experiment `pull-the-plug`: readings by key, and for each the running sum of its key, whose state is large.

It travels to the agents as a user's file; it knows nothing of the experiment.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from agiledart import Context, KeyedOperator, Sink, Source, Topology

Delivery = Literal["exactly-once", "at-most-once"]


class Reading(NamedTuple):
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
class Memory:
    """What is kept of a key; `notes` is there to be saved, moved and brought back."""

    notes: str
    total: int = 0


class Sums(KeyedOperator[int, Reading, Memory, Total]):
    """The running sum of each key."""

    def __init__(self, notes: int) -> None:
        self._notes = notes

    def initial(self, key: int) -> Memory:
        return Memory(f"{key:016d}" * (self._notes // 16))

    def on_record(self, key: int, record: Reading, state: Memory, context: Context[Total]) -> None:
        state.total += record.value
        context.emit(Total(record.at, key, state.total))


def plug(
    readings: Source[Reading],
    report: Sink[Total],
    name: str = "plug",
    notes: int = 432,
    delivery: Delivery = "exactly-once",
) -> Topology:
    """Readings and their sums; `notes` bytes are kept with each key."""
    topology = Topology(name, delivery=delivery)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.key_by(lambda reading: reading.key).stateful("sums", Sums(notes)).sink("report", report)
    return topology
