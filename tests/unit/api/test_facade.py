"""The public package: light to import, complete, and three lines for a test."""

import subprocess
import sys
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

import agiledart
from agiledart import Pane, Source, Topology, collect, mean_of, records, tumbling
from agiledart.testing import run_local

HEAVY = ("cryptography", "uvloop", "rich", "click", "pyspark", "pyarrow", "asyncio", "ssl", "prometheus_client")


@pytest.mark.parametrize("module", ["agiledart", "agiledart.connectors", "agiledart.aggregates", "agiledart.testing"])
def test_importing_a_public_module_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_all_names_exist_and_are_documented() -> None:
    for name in agiledart.__all__:
        public = getattr(agiledart, name)
        if isinstance(public, type) or callable(public):
            assert public.__doc__, name


class Reading(NamedTuple):
    """A row."""

    at: int
    room: str
    celsius: float


def room_temperatures(readings: Source[Reading], report: Any) -> Topology:
    """The topology of the package's docstring."""
    topology = Topology("room-temperatures")
    (
        topology.source("readings", readings, event_time=lambda reading: reading.at)
        .key_by(lambda reading: reading.room)
        .window(tumbling(timedelta(minutes=1)))
        .aggregate("per-minute", mean_of(lambda reading: reading.celsius))
        .sink("report", report)
    )
    return topology


def test_a_users_test_takes_three_lines() -> None:
    readings = records([Reading(0, "hall", 20.0), Reading(1, "hall", 21.0), Reading(60_000, "hall", 22.0)])
    assert run_local(room_temperatures(readings, report=collect)) == [
        Pane("hall", 0, 60_000, 20.5),
        Pane("hall", 60_000, 120_000, 22.0),
    ]


def test_a_callable_is_called_again_for_each_run() -> None:
    topology = room_temperatures(records(lambda: iter([Reading(0, "hall", 20.0)]), row_type=Reading), collect)
    assert run_local(topology) == run_local(topology) == [Pane("hall", 0, 60_000, 20.0)]


def test_several_collecting_sinks_are_distinguished_by_name() -> None:
    topology = Topology("two")
    stream = topology.source("numbers", records([1, 2, 3]), event_time=lambda n: n)
    stream.filter(lambda n: n % 2, name="is-odd").sink("odd", collect)
    stream.sink("all", collect)
    assert run_local(topology) == {"all": [1, 2, 3], "odd": [1, 3]}
