"""Names of rows: the same for a row that comes again, another for every other row; over MQTT and in a webhook's header."""

import json
import queue
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from agiledart import ReadTime
from agiledart_connectors.opening import open_sink
from agiledart_connectors.remote.row_ids import RowIds
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from tests.broker import Broker, needs_broker
from tests.unit.connectors.test_http import Hook

RUN = SinkOrigin("rooms", 3, run=0x5F0C, step="report")


class Row(NamedTuple):
    """A row that is sent."""

    room: str
    number: int


class Timed(NamedTuple):
    """Time of its reading."""

    number: int
    read_at: ReadTime


ROWS = [Row("attic", number % 3) for number in range(25)]


def test_a_repeated_row_keeps_its_id_and_no_other_row_has_it() -> None:
    ids = RowIds(7, "report", Row)
    names = [ids.next(text) for text in (b"a", b"a", b"b")]
    assert len(set(names)) == 3
    ids.resume_at(1)
    assert [ids.next(b"a"), ids.next(b"c")] == [names[1], f"2-{crc32c(b'c'):08x}"]
    assert ids.prefix == "0000000000000007/report/"
    timed = RowIds(7, "report", Timed)
    assert timed.next(b"read now") == "0", "read again it is another text"
    assert RowIds(0, "sink", Row).prefix != RowIds(0, "sink", Row).prefix


def posted(port: int, rows: list[Row], begin: int, batch: int = 10) -> None:
    writer: Any = open_sink(parse_connector(f"http://127.0.0.1:{port}/x?batch={batch}&duplicates=1"), Row, origin=RUN)
    writer.resume_at(begin)
    writer.write(rows)
    writer.close()


def test_a_webhook_sends_each_rows_id_in_any_batch() -> None:
    named: dict[str, Any] = {}
    with Hook() as hook:
        posted(hook.port, ROWS, 0)
        posted(hook.port, ROWS[7:], 7)
        for _, headers, body in hook.requests:
            prefix, *names = headers["AgileDart-Row-Ids"].split(" ")
            assert prefix == "0000000000005f0c/report/"
            for name, row in zip(names, json.loads(body), strict=True):
                assert named.setdefault(name, row) == row
        assert list(named.values()) == [row._asdict() for row in ROWS]
        posted(hook.port, ROWS, 0, batch=5_000)
        assert "AgileDart-Row-Ids" not in hook.requests[-1][1], "servers refuse headers that long"


@needs_broker
@pytest.mark.parametrize("version", [5, 3])
def test_a_message_has_its_row_id_as_user_property(tmp_path: Path, version: int) -> None:
    paho = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")
    came: queue.Queue[tuple[list[tuple[str, str]], bytes]] = queue.Queue()
    with Broker(tmp_path) as broker:
        client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        subscribed: queue.Queue[int] = queue.Queue()
        client.on_message = lambda _client, _data, message: came.put(
            (getattr(message.properties, "UserProperty", []), message.payload)
        )
        client.on_subscribe = lambda *_: subscribed.put(1)
        client.connect("127.0.0.1", broker.port)
        client.subscribe("n", 1)
        client.loop_start()
        subscribed.get(timeout=30)
        url = f"mqtt://127.0.0.1:{broker.port}/n?qos=1&duplicates=1&version={version}"
        for begin in (0, 20):
            writer: Any = open_sink(parse_connector(url), Row, origin=RUN)
            writer.resume_at(begin)
            writer.write(ROWS[begin:])
            writer.close()
        found = [came.get(timeout=30) for _ in range(30)]
        client.loop_stop()
    if version == 3:
        assert not any(properties for properties, _ in found)
        return
    named: dict[str, bytes] = {}
    for properties, payload in found:
        ((name, value),) = properties
        assert name == "row-id"
        assert named.setdefault(value, payload) == payload
    assert [json.loads(payload) for payload in named.values()] == [row._asdict() for row in ROWS]
