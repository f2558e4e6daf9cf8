"""Rows that a sink's protocol cannot carry are rejected, and do not stay first in its queue."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from agiledart_connectors.mqtt import mqtt_writer
from agiledart_connectors.opening import open_sink
from agiledart_dataflow.plan.connectors import parse_connector
from tests.adversary.findings import probe, twin


@dataclass
class Alarm:
    """A row whose field fills a level of the topic."""

    room: str
    text: str


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[mqtt_writer.MqttWriter]:
    """A sink whose broker is away."""
    monkeypatch.setattr(mqtt_writer, "END_SECONDS", 0.0)
    made = open_sink(parse_connector("mqtt://127.0.0.1:1/alarms/{room}?qos=1"), Alarm)
    assert isinstance(made, mqtt_writer.MqttWriter)
    yield made
    made._link.close()


def taken(writer: mqtt_writer.MqttWriter) -> int:
    """Return how many rows wait for the broker."""
    return len(writer._queue) + writer._published


@probe(26)
@pytest.mark.parametrize("room", ["x" * 70_000, "\ud800", 5 * "\U0001f600" * 4_000])
def test_a_row_that_cannot_be_published_blocks_no_other(writer: mqtt_writer.MqttWriter, room: str) -> None:
    writer.write([Alarm(room, "fire"), Alarm("kitchen", "fire")])
    writer.flush()
    assert (taken(writer), cast(Any, writer).take_rejected()) == (1, 1)


@twin(26)
@pytest.mark.parametrize("room", ["kitchen", "a/b+c#d", "", "x" * 60_000])
def test_a_row_with_a_lawful_field_is_published(writer: mqtt_writer.MqttWriter, room: str) -> None:
    writer.write([Alarm(room, "fire")])
    assert (taken(writer), writer.take_rejected()) == (1, 0)
