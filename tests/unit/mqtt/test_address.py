"""Addresses of brokers, filters and credentials: an invalid one is reported before anything is connected."""

from pathlib import Path
from typing import NamedTuple

import pytest

from agiledart import ConfigurationError, OperationFailed, mqtt
from agiledart_connectors.credentials import UserPassword, credentials
from agiledart_connectors.mqtt.broker_address import broker_address, check_filter
from agiledart_dataflow.plan.connectors import parse_connector

pytest.importorskip("paho.mqtt", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")

from agiledart_connectors.opening import open_sink


class Row(NamedTuple):
    """A row."""

    room: str


def test_an_address_is_read_from_its_url() -> None:
    found = broker_address(parse_connector("mqtt://pi2/rooms/+/t?qos=1&session=rooms@pi1"))
    assert (found.broker, found.topic, found.qos, found.client, found.tls) == (
        "pi2:1883",
        "rooms/+/t",
        1,
        "rooms",
        False,
    )
    found = broker_address(mqtt("mqtts://[::1]:99/$share/g/#", version=3))
    assert (found.host, found.port, found.topic, found.version, found.tls) == ("::1", 99, "$share/g/#", 3, True)
    assert broker_address(parse_connector("mqtts://x/t")).port == 8883


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt:broker/t", "write mqtt://HOST:PORT/TOPIC"),
        ("mqtt://broker", "which topic"),
        ("mqtt://broker:x/t", "write mqtt://HOST:PORT/TOPIC"),
        ("mqtt://:1883/t", "write mqtt://HOST:PORT/TOPIC"),
        ("mqtt://broker/t?qos=3", "qos is a number from 0 to 2"),
        ("mqtt://broker/t?version=4", "version is 5 or 3"),
        ("mqtt://user:hunter2@broker/t", "a password never stands in a URL"),
        ("mqtts://broker/t?ca=/none.pem", "/none.pem cannot be read here"),
        ("mqtt://broker/t?credentials=none", "no credential 'none' on this node"),
        ("mqtt://broker/t?credentials=../x", "is no name of a credential"),
    ],
)
def test_invalid_options_are_rejected(url: str, words: str) -> None:
    with pytest.raises((ConfigurationError, OperationFailed), match=words) as error:
        broker_address(parse_connector(url))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("topic", ["a+/b", "a/#/b", "a#", "$share/g", "$share//t", "$share/+/t"])
def test_invalid_filters_are_rejected(topic: str) -> None:
    with pytest.raises(ConfigurationError):
        check_filter("x", topic)
    for good in ("+", "#", "a/+/b", "a/#", "$share/g/a/+", "$SYS/#"):
        check_filter("x", good)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mqtt://broker/alarms/{rom}", "rows have no field 'rom'; its fields are room"),
        ("mqtt://broker/alarms/+", "filters only"),
        ("mqtt://broker/alarms/{room}?will=gone", "will_topic=TOPIC"),
        ("mqtt://broker/alarms?format=text", "rows that are str"),
        ("mqtt://broker/alarms?format=jsno", "format is one of"),
    ],
)
def test_invalid_sinks_are_rejected(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_sink(parse_connector(url), Row)


def test_credentials_are_private_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    file = tmp_path / "plant"
    file.write_text("ann:pa:ss\n")
    file.chmod(0o640)
    with pytest.raises(OperationFailed, match=r"may be read by others \(mode 640\): chmod 600"):
        credentials("plant")
    file.chmod(0o600)
    assert credentials("plant") == UserPassword("ann", "pa:ss")
    assert "pa:ss" not in repr(credentials("plant"))
    assert "pa:ss" not in repr(broker_address(parse_connector("mqtt://b/t?credentials=plant")))
    file.write_text("nothing")
    with pytest.raises(OperationFailed, match="no user:password") as error:
        credentials("plant")
    assert "nothing" not in str(error.value)
