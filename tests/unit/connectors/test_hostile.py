"""Attacks of a hostile or broken sender: memory stays bounded, no other sender is blocked, and it is counted by its reason."""

import http.client
import json
import resource
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, col, collect, tumbling
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import run_topology
from tests.broker import Broker, needs_broker
from tests.unit.connectors.reading import Taken

MB = 1 << 20
LARGE = 100 * MB
GOOD = b'{"at": 1780315240000, "room": "attic", "celsius": 20.5}'


class Reading(NamedTuple):
    at: int
    room: str
    celsius: float


def grown_mb(work: Callable[[], object]) -> float:
    """By how much the greatest memory of this process grew, in MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def large_line(place: Path) -> None:
    with place.open("wb") as file:
        file.write(GOOD + b"\n" + b'{"room": "')
        for _ in range(100):
            file.write(b"x" * MB)
        file.write(b'"}\n' + b"[" * 100_000 + b"\n" + b'{"room": "\xff\xfe"}\n' + GOOD + b"\n")


def test_a_file_with_a_line_of_a_hundred_megabytes_is_bounded(tmp_path: Path) -> None:
    place = tmp_path / "r.jsonl"
    large_line(place)
    found = Taken(open_source(parse_connector(f"jsonl:{place}"), Reading))
    assert grown_mb(lambda: found.until(lambda it: it.exhausted)) < 40
    assert len(found.rows) == 2
    assert found.malformed == {"columns": 1, "form": 2}


def test_a_connection_that_sends_a_huge_line_is_bounded(tmp_path: Path) -> None:
    place = tmp_path / "r.jsonl"
    large_line(place)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            with door.accept()[0] as peer, place.open("rb") as file:
                peer.sendfile(file)

        threading.Thread(target=serve, daemon=True).start()
        url = f"tcp:127.0.0.1:{door.getsockname()[1]}?format=json"
        found = Taken(open_source(parse_connector(url), Reading))
        assert grown_mb(lambda: found.until(lambda it: it.exhausted)) < 40
    assert len(found.rows) == 2
    assert sum(found.malformed.values()) == 3


def test_an_oversized_request_is_refused_before_it_is_read_and_counted() -> None:
    reader: Any = open_source(parse_connector("http://:0/in?listen=1"), Reading)
    found = Taken(reader)
    connection = http.client.HTTPConnection("127.0.0.1", reader.port, timeout=20)
    connection.putrequest("POST", "/in")
    connection.putheader("Content-Length", str(LARGE))
    connection.endheaders()
    assert connection.getresponse().status == 413
    found.until(lambda it: bool(it.malformed))
    assert found.malformed == {"size": 1}
    assert found.notes == ["POST /in: a body of 104,857,600 bytes; at most 1,048,576 are taken"]
    reader.close()


@needs_broker
def test_a_flood_of_messages_is_bounded_and_counted(tmp_path: Path) -> None:
    paho: Any = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")
    with Broker(tmp_path) as broker:
        reader: Any = open_source(parse_connector(f"mqtt://127.0.0.1:{broker.port}/#"), Reading)
        found = Taken(reader)
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", broker.port)
        client.loop_start()

        def is_heard(it: Taken) -> bool:
            client.publish("a", GOOD)
            return bool(it.rows)

        found.until(is_heard)

        def flood() -> None:
            client.publish("a", b"x" * LARGE, 1).wait_for_publish(60)
            for number in range(12_000):  # no reader meanwhile
                told = client.publish(f"topic/{number}", GOOD, 0)
            told.wait_for_publish(60)
            found.until(lambda it: len(it.rows) + it.malformed.get("overflow", 0) >= 12_000)

        grown = grown_mb(flood)
        assert found.malformed["size"] == 1
        assert len(reader._waiting) == 0
        assert grown < 6 * LARGE / MB, "of one message at a time"
        client.disconnect()
        client.loop_stop()
        reader.close()


def test_a_clock_in_the_future_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "r.jsonl"
    times = [1_780_315_210_000, 32_485_276_810_000, *(1_780_315_210_000 + 60_000 * minute for minute in range(1, 30))]
    place.write_text("".join(json.dumps({"at": at, "room": "attic", "celsius": 1.0}) + "\n" for at in times))
    topology = Topology("future")
    readings = topology.source("readings", parse_connector(f"jsonl:{place}"), rows=Reading, event_time="at")
    window = readings.key_by(col("room")).window(tumbling(timedelta(minutes=1)))
    window.aggregate("each", mean=col("celsius").mean()).sink("out", collect)
    told: list[str] = []
    run = run_topology(topology, on_log=told.append)
    assert len(run.collected["out"]) == 2
    assert run.summary.late == 29
    (text,) = told
    assert "an earlier row has the time 2999-06-" in text
    assert "max_ahead" in text
