"""MQTT → three agents → a table: the broker goes and comes back, `status` says so, nothing is lost."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker, needs_broker
from tests.e2e.mesh import cli, mesh, wait_for

paho = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")
pytest.importorskip("sqlalchemy", reason="no SQLAlchemy here: pip install 'agiledart[sql]'")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_broker]

ROOMS = """
from typing import Any, NamedTuple

from agiledart import Sink, Source, Topic, Topology


class Reading(NamedTuple):
    topic: Topic
    number: int
    celsius: float


class Warm(NamedTuple):
    number: int
    room: str
    celsius: float


def named(reading: Reading) -> Warm:
    return Warm(reading.number, reading.topic.split("/")[1], reading.celsius)


def rooms(readings: Source[Reading], report: Sink[Any]) -> Topology:
    topology = Topology("rooms")
    topology.source("readings", readings).map(named).sink("report", report)
    return topology
"""
COUNT = 3_000


def test_nothing_is_lost_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rooms.py").write_text(ROOMS)
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    (credentials / "plant").write_text(f"sqlite:///{tmp_path}/plant.db")
    (credentials / "plant").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(credentials))
    with Broker(tmp_path) as broker, mesh(3) as made:
        state_dir = str(made.agents[0].state_dir)
        source = f"readings=mqtt://127.0.0.1:{broker.port}/rooms/+/t?qos=1@a2"
        words = ["--set", source, "--set", "report=sql:plant?table=warm&key=number&create=1@a3", "--agent", state_dir]
        dry = cli("submit", "--dry-run", "rooms.py:rooms", *words, cwd=tmp_path)
        assert dry.returncode == 0, dry.stdout + dry.stderr
        assert "connected (MQTT 5.0)" in dry.stdout
        assert "table will be made" in dry.stdout
        submitted = cli("submit", "rooms.py:rooms", *words, cwd=tmp_path)
        assert submitted.returncode == 0, submitted.stderr

        client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False)
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        status = lambda: json.loads(cli("status", "rooms", "--agent", state_dir, "-o", "json").stdout)  # noqa: E731
        wait_for(
            lambda: "connection_status" not in status()["stages"][0]["instances"][0], 30, "the source is connected"
        )

        def publish(numbers: range) -> None:
            for number in numbers:
                payload = json.dumps({"number": number, "celsius": number / 2})
                told = client.publish(f"rooms/{number % 7}/t", payload, qos=1)
            told.wait_for_publish(60)

        publish(range(COUNT // 2))
        broker.stop()
        told = lambda: cli("status", "rooms", "--agent", state_dir).stdout  # noqa: E731
        wait_for(lambda: f"readings: not connected to 127.0.0.1:{broker.port} for " in told(), 30, "status says so")
        broker.start()
        wait_for(client.is_connected, 60, "the publisher is back")
        publish(range(COUNT // 2, COUNT))
        with sqlite3.connect(tmp_path / "plant.db") as database:
            rows = lambda: database.execute("select count(*), count(distinct room) from warm").fetchone()  # noqa: E731
            wait_for(lambda: rows() == (COUNT, 7), 60, "all rows in the table")
        client.loop_stop()
        shown = told() + cli("logs", "rooms", "--agent", state_dir).stdout + cli("list", "--agent", state_dir).stdout
        assert "sqlite:" not in shown, "the URL of a credential is reported nowhere"
        for agent in made.agents:
            for executor in agent.state_dir.parent.glob("*.log"):
                assert "sqlite:" not in executor.read_text()
        command_lines = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
        assert not any(b"sqlite:///" + str(tmp_path).encode() in _content(path) for path in command_lines)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
