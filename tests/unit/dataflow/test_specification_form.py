"""The form of specifications has a number, which says when nodes of two versions cannot run each other's topologies."""

from datetime import timedelta
from typing import NamedTuple

from agiledart import Sink, Topology, collect, sliding, sum_of, tumbling
from agiledart_dataflow.plan.specification import FORMAT, release


class Reading(NamedTuple):
    at: int
    room: str
    celsius: float


def hotter(so_far: Reading, reading: Reading) -> Reading:
    return max(so_far, reading, key=lambda r: r.celsius)


def topology(report: Sink[object] = collect) -> Topology:
    made = Topology("form")
    rows = made.source("readings", [Reading(0, "attic", 20.0)], event_time=lambda reading: reading.at)
    warm = rows.filter(lambda reading: reading.celsius > 0, name="warm")
    rooms = warm.key_by(lambda reading: reading.room)
    rooms.window(tumbling(timedelta(seconds=1))).aggregate("sums", sum_of(lambda reading: reading.celsius)).sink(
        "a", report
    )
    rooms.window(sliding(timedelta(seconds=5))).count("counts").sink("b", report)
    rooms.reduce("hottest", hotter).sink("c", report)
    return made


def test_a_changed_specification_form_increments_its_version() -> None:
    """When this fails, specifications look different from now on: count FORMAT up, and write the new digest here."""
    digest = topology().specification().digest().hex()[:16]
    assert (FORMAT, digest) == (3, "e7f90ff72dfdce88")


def test_a_release_is_described_in_words() -> None:
    assert release("0.2.0", 2) == "agiledart 0.2.0 with specification 2"
    assert release("", 0) == "an older agiledart that does not say its version"
