"""Sessions of sources at a broker: there while the application runs, and gone when it has ended, whoever was lost with it."""

import base64
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_connectors.source_origin import session_name
from tests.broker import Broker, needs_broker
from tests.e2e.mesh import cli, mesh, wait_for

paho = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_broker]

NUMBERS = """
from typing import Any, NamedTuple

from agiledart import Sink, Source, Topology


class Number(NamedTuple):
    n: int


def numbers(source: Source[Number], out: Sink[Any]) -> Topology:
    topology = Topology("numbers")
    topology.source("numbers", source).sink("out", out)
    return topology
"""


def absent_sessions(broker: Broker) -> Iterator[int]:
    """Yield how many sessions of absent clients the broker keeps, as it says every second."""
    counts: queue.Queue[int] = queue.Queue()
    client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _data, message: counts.put(int(message.payload))
    client.connect("127.0.0.1", broker.port)
    client.subscribe("$SYS/broker/clients/disconnected")
    client.loop_start()
    try:
        while True:
            yield counts.get(timeout=60)
    finally:
        client.loop_stop()


def name_of(agent: Any) -> str:
    """Return the name of the source's session."""
    known = json.loads((agent.state_dir / "network.json").read_text())
    return session_name(base64.b64decode(known["network"]), "numbers", "numbers")


def session_is_there(broker: Broker, name: str) -> bool:
    """Return whether the broker keeps the session of an absent client; looking does not end it."""
    answers: queue.Queue[bool] = queue.Queue()
    client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    client.on_connect = lambda _client, _data, flags, _reason, _properties: answers.put(flags.session_present)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        return answers.get(timeout=30)
    finally:
        client.disconnect()
        client.loop_stop()


def published(broker: Broker, numbers: range) -> None:
    client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    for number in numbers:
        sent = client.publish("numbers", json.dumps({"n": number}), qos=1)
    sent.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_session_ends_with_its_application(tmp_path: Path, end: str) -> None:
    (tmp_path / "counting.py").write_text(NUMBERS)
    with Broker(tmp_path, "allow_anonymous true", "sys_interval 1") as broker, mesh(3) as made:
        agent = str(made.agents[0].state_dir)
        source = f"source=mqtt://127.0.0.1:{broker.port}/numbers?qos=1@a2"
        words = ["--set", source, "--set", "out=log:numbers@a3", "--delivery", "at-most-once", "--agent", agent]
        submitted = cli("submit", "counting.py:numbers", *words, cwd=tmp_path)
        assert submitted.returncode == 0, submitted.stderr
        status = lambda: json.loads(cli("status", "numbers", "--agent", agent, "-o", "json").stdout)  # noqa: E731
        wait_for(
            lambda: "connection_status" not in status()["stages"][0]["instances"][0], 30, "the source is connected"
        )
        published(broker, range(10))
        wait_for(lambda: status()["summary"]["results"].get("out") == 10, 30, "the rows have come")
        if end == "stop":
            assert cli("stop", "numbers", "--agent", agent).returncode == 0
        else:
            made.agents[1].kill()
        wait_for(lambda: status()["state"] in ("stopped", "failed"), 60, "it has ended")
        counts = absent_sessions(broker)
        wait_for(lambda: next(counts) == 0, 60, "no session is left")
        counts.close()  # type: ignore[attr-defined]
        assert not session_is_there(broker, name_of(made.agents[0]))
