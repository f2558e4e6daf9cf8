"""Does a broker answer, and does it let us in? For `submit --dry-run`."""

import threading
from typing import Any, Final

import paho.mqtt.client as paho

from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.mqtt.broker_address import broker_address, check_filter
from agiledart_connectors.mqtt.broker_link import client_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import OperationFailed

SECONDS: Final = 5.0


def probe_source(connector: Connector, row_type: Any) -> str:
    """Also whether its payloads can become rows."""
    check_filter(f"{connector.kind}:{connector.path}", broker_address(connector).topic)
    open_decoder(connector.option("format", "json"), row_type)
    return _connected(connector)


def probe_sink(connector: Connector, row_type: Any) -> str:
    """Publishes nothing."""
    return _connected(connector)


def _connected(connector: Connector) -> str:
    """Connects under a name of its own, so that a client that runs is not thrown out."""
    address = broker_address(connector)
    answered = threading.Event()
    faults: list[str] = []
    client = client_of(address, client_id="", session=False)

    def connected(_client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        faults.append(f"the broker {address.broker} refuses us: {reason}" if reason.is_failure else "")
        answered.set()

    client.on_connect = connected
    try:
        client.connect(address.host, address.port, keepalive=30)
    except OSError as error:
        raise OperationFailed(f"the broker {address.broker} does not answer: {error.strerror or error}") from None
    client.loop_start()
    try:
        if not answered.wait(SECONDS):
            raise OperationFailed(f"the broker {address.broker} took the call and said nothing for {SECONDS:.0f} s")
    finally:
        client.disconnect()
        client.loop_stop()
    if faults[0]:
        raise OperationFailed(faults[0])
    return f"connected (MQTT {'5.0' if address.version == 5 else '3.1.1'})"
