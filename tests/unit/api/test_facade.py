"""The public package: light to import, complete, and three lines for a test."""

import subprocess
import sys
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

import agiledart
from agiledart import Pane, Source, Topology, collect, mean_of, records, tumbling
from agiledart.testing import run_local
from agiledart_connectors import catalogue
from agiledart_connectors.rejections import check_policy

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


SINKS: dict[str, Any] = {
    "csv": agiledart.csv("a.csv", rejected="fail"),
    "jsonl": agiledart.jsonl("a.jsonl", rejected="fail"),
    "parquet": agiledart.parquet("a.parquet", rejected="fail"),
    "stdout": agiledart.stdout(rejected="fail"),
    "log": agiledart.log("a", rejected="fail"),
    "mqtt": agiledart.mqtt("mqtt://broker/a", rejected="fail"),
    "mqtts": agiledart.mqtt("mqtts://broker/a", rejected="fail"),
    "kafka": agiledart.kafka("kafka://broker:9092/a", rejected="fail"),
    "kafkas": agiledart.kafka("kafkas://broker:9092/a", rejected="fail"),
    "sql": agiledart.sql("plant", table="a", rejected="fail"),
    "http": agiledart.http("http://server/a", rejected="fail"),
    "https": agiledart.http("https://server/a", rejected="fail"),
    "influx": agiledart.influx("influx://server/a", measurement="m", rejected="fail"),
    "influxs": agiledart.influx("influxs://server/a", measurement="m", rejected="fail"),
    "ws": agiledart.plugin("ws", "//server/a", rejected="fail"),
    "wss": agiledart.plugin("wss", "//server/a", rejected="fail"),
}


def test_each_sink_takes_a_policy_for_rejected_rows() -> None:
    taking = {kind for kind in catalogue.SINKS if kind not in ("null", "collect")}
    assert taking == set(SINKS)
    for kind, connector in SINKS.items():
        assert connector.kind == kind
        assert check_policy(connector) == "fail"
    letters = agiledart.csv("a.csv", rejected="dead_letter", dead_letters="letters.jsonl")
    assert check_policy(letters) == "dead_letter"
