"""MQTT over TLS with certificates, a last will, a broker that is killed: with a real one."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agiledart_dataflow.plan.connectors import parse_connector
from tests.authority import Authority
from tests.broker import Broker, needs_broker
from tests.unit.connectors.reading import Taken

pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")

from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.probing import probe_source
from agiledart_kernel.errors import OperationFailed

pytestmark = needs_broker


def test_tls_works_with_a_certificate_on_both_sides(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    server_cert, server_key = authority.issue("broker")
    cert, key = authority.issue("plant")
    wrong_cert, wrong_key = stranger.issue("nobody")
    settings = (
        f"cafile {authority.file}", f"certfile {server_cert}", f"keyfile {server_key}",
        "require_certificate true", "use_identity_as_username true", "allow_anonymous false",
    )  # fmt: skip
    with Broker(tmp_path, *settings) as broker:
        url = f"mqtts://127.0.0.1:{broker.port}/n?qos=1&format=text&ca={authority.file}"
        good = f"{url}&cert={cert}&key={key}"
        assert probe_source(parse_connector(good), str).text.startswith("connected (MQTT 5.0);")
        here = open_source(parse_connector(f"{good}&session=s"), str)
        there: Any = open_sink(parse_connector(good), str)

        def sent(it: Taken) -> bool:
            there.write(["one"])
            return "one" in it.rows

        Taken(here).until(sent)
        there.close()
        here.close()
        for other in (
            f"mqtts://127.0.0.1:{broker.port}/n?ca={stranger.file}&cert={cert}&key={key}",  # we do not know the broker
            f"{url}&cert={wrong_cert}&key={wrong_key}",  # it does not know us
            url,  # we prove nothing
        ):
            with pytest.raises(OperationFailed, match=f"127.0.0.1:{broker.port}"):
                probe_source(parse_connector(other.replace("&format=text", "") + "&format=text"), str)
        with pytest.raises(OperationFailed, match=r"certificates .* cannot be used"):
            open_source(parse_connector(f"{url}&cert={cert}&key={wrong_key}"), str)


WRITER = """
import sys, time
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_connectors.opening import open_sink
writer = open_sink(parse_connector(sys.argv[1]), str)
writer.write(["alive"])
while writer._left():
    time.sleep(0.01)
print("written", flush=True)
sys.stdin.read()
"""


def test_a_last_will_is_published_when_its_client_is_killed(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        address = f"mqtt://127.0.0.1:{broker.port}"
        here = Taken(open_source(parse_connector(f"{address}/status/%23?format=text&qos=1&session=s"), str))
        url = f"{address}/status/plant?qos=1&format=text&will=gone&will_topic=status/will"
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(30)
        here.until(lambda it: "gone" in it.rows)
        here.reader.close()
        writer.stdout.close()
        assert writer.stdin is not None
        writer.stdin.close()


def test_a_killed_broker_loses_the_session_and_the_client_reconnects(tmp_path: Path) -> None:
    """Messages that it had acknowledged but not kept are lost by it; messages sent after our return arrive."""
    with Broker(tmp_path) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text"
        there: Any = open_sink(parse_connector(url), str)
        here = Taken(open_source(parse_connector(f"{url}&session=s"), str))

        def probed(word: str) -> None:
            def has_come(it: Taken) -> bool:
                there.write([word])
                return word in it.rows

            here.until(has_come)

        probed("before")
        broker.kill()
        here.until(lambda it: bool(it.reader.connection_status()))
        there.write([f"{number}" for number in range(100)])  # waits here
        broker.start()
        probed("after")
        sent = [f"later {number}" for number in range(1_000)]
        there.write(sent)
        here.until(lambda it: set(sent) <= set(it.rows))
        there.close()
        here.reader.close()
