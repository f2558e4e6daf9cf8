"""With a real broker: topics, sessions, retained messages, shared topics, a broker that dies: nothing is lost at QoS 1."""

import json
import queue
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

from agiledart import Alias, Retained, Topic, Topology, mqtt, records
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import run_topology
from tests.broker import Broker, needs_broker

paho = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")

from agiledart_connectors.mqtt.mqtt_probe import end_session, own_session  # noqa: E402
from agiledart_connectors.opening import open_sink, open_source  # noqa: E402
from agiledart_connectors.probing import probe_source  # noqa: E402
from agiledart_connectors.source_origin import SourceOrigin, session_name  # noqa: E402

pytestmark = needs_broker


class Reading(NamedTuple):
    """A received message."""

    topic: Topic
    celsius: Annotated[float, Alias("t")]
    kept: Retained


class Alarm(NamedTuple):
    """A sent message."""

    room: str
    number: int


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as running:
        yield running


class Reader:
    """A source that a test reads as an executor does: waiting for its descriptor."""

    def __init__(self, url: str, kind: Any = Reading, origin: SourceOrigin | None = None) -> None:
        self.reader: Any = open_source(parse_connector(url), kind, origin=origin)
        self.rows: list[Any] = []
        self.notes: list[str] = []
        self.malformed: dict[str, int] = {}

    def once(self) -> int:
        reading = self.reader.read(500, 0)
        self.rows += reading.rows
        self.notes += reading.notes
        for reason, count in reading.malformed.items():
            self.malformed[reason] = self.malformed.get(reason, 0) + count
        return int(reading.lines)

    def until(self, done: Any) -> None:
        deadline = time.monotonic() + 60
        while not done():
            if not self.once():
                select.select([self.reader.fileno()], [], [], 0.25)
            assert time.monotonic() < deadline, (len(self.rows), self.notes[-3:])

    def subscribed(self, sink: "Writer") -> None:
        """Wait until messages arrive here: earlier messages are lost."""
        before = len(self.rows) + sum(self.malformed.values())
        deadline = time.monotonic() + 60
        while len(self.rows) + sum(self.malformed.values()) == before:
            sink.writer.write([sink.probe])
            select.select([self.reader.fileno()], [], [], 0.1)
            self.once()
            assert time.monotonic() < deadline
        self.rows.clear()


class Writer:
    """A sink, and a row to try it with."""

    def __init__(self, url: str, kind: Any, probe: Any) -> None:
        self.writer: Any = open_sink(parse_connector(url), kind)
        self.probe = probe


def published(broker: Broker, topic: str, payload: str | bytes, *, retain: bool = False, qos: int = 1) -> None:
    """Publish a message and wait until the broker has it."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    info = client.publish(topic, payload, qos, retain)
    info.wait_for_publish(20)
    client.disconnect()
    client.loop_stop()


def test_topics_retained_and_malformed_messages_are_read(broker: Broker) -> None:
    published(broker, "rooms/a/t", '{"t": 1}', retain=True)
    here = Reader(f"mqtt://127.0.0.1:{broker.port}/rooms/+/t")
    here.until(lambda: here.rows)
    published(broker, "rooms/b/t", '[{"celsius": 2}, {"celsius": 3}]')
    published(broker, "rooms/b/t", '{"celsius": "cold"}')
    published(broker, "rooms/b/t", b"\xff" * (2 << 20))
    here.until(lambda: here.malformed.get("size"))
    assert here.rows == [
        Reading(Topic("rooms/a/t"), 1.0, Retained(True)),
        Reading(Topic("rooms/b/t"), 2.0, Retained(False)),
        Reading(Topic("rooms/b/t"), 3.0, Retained(False)),
    ]
    assert here.malformed == {"type": 1, "size": 1}
    assert sorted(here.notes) == ["rooms/b/t: a message of 2,097,152 bytes", "rooms/b/t: celsius: 'cold' is no number"]
    here.reader.close()
    here.reader.close()


@pytest.mark.parametrize("version", [5, 3])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_keeps_messages_that_arrive_while_no_reader_is_connected(
    broker: Broker, version: int, qos: int
) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/n?qos={qos}&session=s&format=text&version={version}"
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/n?qos={qos}&format=text&version={version}", str, "probe")
    here = Reader(url, str)
    here.subscribed(there)
    here.until(lambda: not here.once())
    here.reader.acknowledge(here.reader.receipt())
    here.reader.close()
    sent = [f"{i}" for i in range(3_000)]
    there.writer.write(sent)
    there.writer.close()
    again = Reader(url, str)
    again.until(lambda: set(sent) <= set(again.rows))
    assert [row for row in again.rows if row != "probe"] == sent  # none lost, none twice, in order
    again.reader.close()


def test_a_sink_reports_delivered_messages(broker: Broker) -> None:
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text&duplicates=1", str, "probe")
    told: queue.Queue[Any] = queue.Queue()
    there.writer.write([f"{number}" for number in range(500)])
    there.writer.when_delivered(told.put)
    assert told.get(timeout=30) is None
    assert there.writer._left() == 0
    broker.stop()
    there.writer.write(["one more"])
    there.writer.when_delivered(told.put)
    assert told.empty()
    broker.start()
    assert told.get(timeout=60) is None
    there.writer.close()


def test_unacknowledged_messages_are_redelivered(broker: Broker) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&session=s&format=text"
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text", str, "probe")
    first = Reader(url, str)
    first.subscribed(there)
    there.writer.write(["one", "two"])
    first.until(lambda: "two" in first.rows)
    first.reader.close()  # as if its process had died before the next reading
    second = Reader(url, str)
    second.until(lambda: "two" in second.rows)
    second.reader.close()
    there.writer.close()


def test_readers_of_one_group_share_the_messages(broker: Broker) -> None:
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text", str, "probe")
    readers = [Reader(f"mqtt://127.0.0.1:{broker.port}/$share/g/n?qos=1&format=text", str) for _ in range(2)]
    deadline = time.monotonic() + 60
    while not all(one.rows for one in readers):
        there.writer.write(["probe"] * 10)
        for one in readers:
            select.select([one.reader.fileno()], [], [], 0.05)
            one.once()
        assert time.monotonic() < deadline
    sent = [f"{i}" for i in range(1_000)]
    there.writer.write(sent)
    there.writer.close()

    def all_came() -> bool:
        for one in readers:
            one.once()
        return set(sent) <= {row for one in readers for row in one.rows}

    readers[0].until(all_came)
    got = sorted((row for one in readers for row in one.rows if row != "probe"), key=int)
    assert got == sent
    assert all(len([row for row in one.rows if row != "probe"]) > 100 for one in readers)
    for one in readers:
        one.reader.close()


def test_a_topic_may_hold_fields_and_a_retained_last_message(broker: Broker) -> None:
    topology = Topology("alarms")
    rows = [Alarm("kitchen", 1), Alarm("a/b+#", 2), Alarm("kitchen", 3)]
    topology.source("rows", records(rows)).sink(
        "out", mqtt(f"mqtt://127.0.0.1:{broker.port}/alarms/{{room}}", qos=1, retain=True)
    )
    run_topology(topology)
    here = Reader(f"mqtt://127.0.0.1:{broker.port}/alarms/#?format=text", str)
    here.until(lambda: len(here.rows) == 2)
    assert sorted(map(json.loads, here.rows), key=str) == [
        {"room": "a/b+#", "number": 2},
        {"room": "kitchen", "number": 3},
    ]
    here.reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_a_broker_that_dies_loses_nothing_and_is_reported(broker: Broker, qos: int) -> None:
    address = f"127.0.0.1:{broker.port}"
    there = Writer(f"mqtt://{address}/n?qos={qos}&format=text", str, "probe")
    here = Reader(f"mqtt://{address}/n?qos={qos}&session=s&format=text", str)
    here.subscribed(there)
    sent = [f"{i}" for i in range(20_000)]
    for start in range(0, len(sent), 500):
        while not there.writer.ready():
            if not here.once():
                select.select([here.reader.fileno()], [], [], 0.05)
        there.writer.write(sent[start : start + 500])
        here.once()
        if start in (4_000, 12_000):
            broker.stop()
            broker.start()
    here.until(lambda: set(sent) <= set(here.rows))
    there.writer.close()
    repeated = len([row for row in here.rows if row != "probe"]) - len(sent)
    assert 0 <= repeated <= 2 * 4_096
    assert any(f"connection to {address} broke" in note for note in here.notes)
    assert f"connected to {address}" in here.notes
    assert any("broke" in note for note in there.writer.take_notices())
    here.reader.close()


def test_a_sink_with_an_absent_broker_takes_a_bounded_number_of_rows(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text", str, "")
    written = 0
    while there.writer.ready():
        there.writer.write(["x"] * 1_000)
        written += 1_000
    assert 5_000 <= written <= 6_000
    with broker:
        here = Reader(f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text&session=s", str)
        there.writer.close()
        here.reader.close()
    assert any("not connected" in note for note in there.writer.take_notices())


def test_a_broker_that_refuses_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = tmp_path / "passwords"
    tool = Path("/usr/bin/mosquitto_passwd")
    if not tool.exists():
        pytest.skip("no mosquitto_passwd here")
    subprocess.run([tool, "-b", "-c", passwords, "ann", "secret"], check=True, capture_output=True)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for name, text in (("good", "ann:secret"), ("bad", "ann:guess")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    with Broker(tmp_path, "allow_anonymous false", f"password_file {passwords}") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text"
        refused = Reader(url + "&credentials=bad", str)
        refused.until(lambda: refused.notes)
        assert "refuses us: Not authorized" in refused.notes[0]
        assert "guess" not in "".join(refused.notes)
        refused.reader.close()
        there = Writer(url + "&credentials=good", str, "probe")
        here = Reader(url + "&credentials=good", str)
        here.subscribed(there)
        here.reader.close()
        there.writer.close()


def test_messages_after_the_opening_of_a_reader_arrive(broker: Broker) -> None:
    """A user submits, sees that the application runs, and publishes; without a session the broker remembers nothing."""
    url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text"
    there, first = Writer(url, str, "probe"), Reader(f"{url}&session=none", str)
    first.subscribed(there)
    first.reader.close()
    for number in range(20):
        here = Reader(f"{url}&session=none", str)
        there.writer.write([f"row {number}"])
        here.until(lambda here=here: [row for row in here.rows if row != "probe"])
        assert here.rows[-1] == f"row {number}"
        here.reader.close()
    there.writer.close()


def test_opening_a_reader_does_not_wait_long_for_a_broker_that_is_away(broker: Broker) -> None:
    broker.stop()
    began = time.monotonic()
    reader: Any = open_source(parse_connector(f"mqtt://127.0.0.1:{broker.port}/n"), Reading)
    assert time.monotonic() - began < 30
    assert not reader.wait_for_subscription(0)
    reader.close()


def test_a_link_reports_its_status(broker: Broker, tmp_path: Path) -> None:
    reader: Any = open_source(parse_connector(f"mqtt://127.0.0.1:{broker.port}/t"), Reading)
    deadline = time.monotonic() + 60

    def wait(wanted: bool) -> str:
        while bool(text := reader.connection_status()) is not wanted:
            select.select([reader.fileno()], [], [], 0.02)
            reader.read(10, 0)
            assert time.monotonic() < deadline, text
        return str(text)

    wait(False)
    broker.stop()
    text = wait(True)
    while "refused" not in text:
        text = wait(True)
    assert text.startswith(f"not connected to 127.0.0.1:{broker.port} for ")
    assert ", next try in " in text
    broker.start()
    wait(False)
    reader.close()


BEGINS = SourceOrigin(b"net", "rooms", "readings")
RETURNS = SourceOrigin(b"net", "rooms", "readings", begins=False)


@pytest.mark.parametrize("version", [5, 3])
def test_a_source_on_a_mesh_has_a_session_of_its_own(broker: Broker, version: int) -> None:
    options = f"?qos=1&format=text&version={version}"
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/b/n{options}", str, "probe")
    first = Reader(f"mqtt://127.0.0.1:{broker.port}/a/#{options}", str, BEGINS)
    published(broker, "a/n", "probe")
    deadline = time.monotonic() + 60
    while not first.rows:  # it has subscribed
        published(broker, "a/n", "probe")
        first.once()
        assert time.monotonic() < deadline
    first.reader.acknowledge(first.reader.receipt())
    first.reader.close()
    published(broker, "a/n", "meanwhile")
    moved = Reader(f"mqtt://127.0.0.1:{broker.port}/a/#{options}", str, RETURNS)  # perhaps on another node
    moved.until(lambda: "meanwhile" in moved.rows)
    moved.reader.acknowledge(moved.reader.receipt())
    moved.reader.close()
    published(broker, "a/n", "of the run before")
    anew = Reader(f"mqtt://127.0.0.1:{broker.port}/b/#{options}", str, BEGINS)
    anew.subscribed(there)
    published(broker, "a/n", "not wanted")
    there.writer.write(["last"])
    anew.until(lambda: "last" in anew.rows)
    assert set(anew.rows) <= {"probe", "last"}
    assert not anew.malformed
    anew.reader.close()
    there.writer.close()


@pytest.mark.parametrize("version", [5, 3])
def test_a_session_that_was_ended_keeps_nothing_and_its_loss_is_noted(broker: Broker, version: int) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text&version={version}"
    name = own_session(parse_connector(url), b"net", "rooms", "readings", 0)
    assert name == session_name(b"net", "rooms", "readings")
    assert len(name) == 23
    there = Writer(url, str, "probe")
    first = Reader(url, str, BEGINS)
    first.subscribed(there)
    first.reader.close()
    end_session(parse_connector(url), name)
    published(broker, "n", "meanwhile")
    again = Reader(url, str, RETURNS)
    again.subscribed(there)
    assert "meanwhile" not in again.rows
    assert any(f"it has no session {name} any more" in note for note in again.notes)
    again.reader.close()
    there.writer.close()


def test_two_clients_of_one_session_are_noted_and_get_no_rows_of_other_topics(broker: Broker) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/%s?qos=1&format=text&session=shared"
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/a?qos=1&format=text", str, "probe")
    first = Reader(url % "a", str)
    first.subscribed(there)
    second = Reader(url % "b", str)
    first.until(lambda: any("the name shared" in note and "throws the other out" in note for note in first.notes))
    first.reader.close()
    there.writer.write(["not of b"])
    second.until(lambda: second.malformed.get("topic"))
    assert not second.rows
    assert "not of b: another client has subscribed" in second.notes[-1]
    second.reader.close()
    there.writer.close()


def test_without_a_session_the_time_without_a_listener_is_shown(broker: Broker) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text&session=none"
    there = Writer(f"mqtt://127.0.0.1:{broker.port}/n?qos=1&format=text", str, "probe")
    here = Reader(url, str, BEGINS)
    here.subscribed(there)
    broker.stop()
    here.until(lambda: "messages of this time are lost (session=none)" in here.reader.connection_status())
    broker.start()
    here.until(lambda: "s in all: messages of that time are lost" in here.reader.connection_status())
    here.until(lambda: any("messages of that time are lost (no session)" in note for note in here.notes))
    here.reader.close()
    there.writer.close()


def test_a_dry_run_reports_the_limits_of_the_broker(broker: Broker) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}/n?format=text"
    assert probe_source(parse_connector(url), str).text == "connected (MQTT 5.0)"
    assert "max_queued_messages, 1000 by default" in probe_source(parse_connector(url + "&qos=1"), str).text
    assert "are lost (session=none)" in probe_source(parse_connector(url + "&qos=1&session=none"), str).text
