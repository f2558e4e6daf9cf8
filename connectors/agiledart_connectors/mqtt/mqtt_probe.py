"""Does a broker answer, and does it let us in? For `submit --dry-run`; and the end of a session that no source needs any more."""

import threading
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.properties import Properties

from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.mqtt.broker_address import BrokerAddress, broker_address, check_filter
from agiledart_connectors.mqtt.broker_link import client_of
from agiledart_connectors.mqtt.session_settings import session_settings
from agiledart_connectors.source_origin import SourceOrigin, session_name
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import OperationFailed, system_text

SECONDS: Final = 5.0

LIMITS_TEXT: Final = (
    "messages of an absent source wait at the broker, up to its own limit (mosquitto: max_queued_messages, 1000 by default, and"
    " persistence for its own restarts); those beyond it are lost"
)


def probe_source(connector: Connector, row_type: Any) -> str:
    """Also whether its payloads can become rows, and what the broker grants of the session."""
    address = broker_address(connector)
    check_filter(f"{connector.kind}:{connector.path}", address.topic)
    open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
    session = session_settings(connector, address, SourceOrigin(application="dry-run"))
    granted = connect_once(address)
    text = _connected_text(address)
    if granted is not None and address.qos > granted.get("MaximumQoS", 2):
        raise OperationFailed(f"the broker {address.broker} takes no QoS {address.qos}")
    if session.is_refused:
        return f"{text}; messages sent while the source is away are lost (session=none)"
    return f"{text}; {LIMITS_TEXT}" if session.name else text


def probe_sink(connector: Connector, row_type: Any) -> str:
    """Publishes nothing."""
    address = broker_address(connector)
    connect_once(address)
    return _connected_text(address)


def own_session(connector: Connector, network: bytes, application: str, step: str, index: int) -> str:
    """Return the name of the session that this program has given to a source; empty: it has none, or the user has named it."""
    address = broker_address(connector)
    if not address.qos or address.client or connector.option("session"):
        return ""
    return session_name(network, application, step, index)


def end_session(connector: Connector, name: str) -> None:
    """Let the broker forget a session. Raises `OperationFailed`: it does not answer, or refuses us."""
    connect_once(broker_address(connector), name)


def connect_once(address: BrokerAddress, client_id: str = "") -> dict[str, int] | None:
    """Connect and disconnect without a session; return the broker's limits (MQTT 5).

    Args:
        client_id: "": one of its own, so that no running client is thrown out.

    Raises:
        OperationFailed: the broker does not answer, or refuses us.
    """
    answered = threading.Event()
    faults: list[str] = []
    limits: list[dict[str, int]] = []
    client = client_of(address, client_id=client_id, session=False)

    def connected(
        _client: paho.Client, _data: Any, _flags: Any, reason: Any, properties: Properties | None = None
    ) -> None:
        faults.append(f"the broker {address.broker} refuses us: {reason}" if reason.is_failure else "")
        limits.append({} if properties is None else properties.json())  # type: ignore[no-untyped-call]
        answered.set()

    client.on_connect = connected
    try:
        client.connect(address.host, address.port, keepalive=30)
    except OSError as error:
        raise OperationFailed(f"the broker {address.broker} does not answer: {system_text(error)}") from None
    client.loop_start()
    try:
        if not answered.wait(SECONDS):
            raise OperationFailed(f"the broker {address.broker} took the call and said nothing for {SECONDS:.0f} s")
    finally:
        client.disconnect()
        client.loop_stop()
    if faults[0]:
        raise OperationFailed(faults[0])
    return limits[0] if address.version == 5 else None


def _connected_text(address: BrokerAddress) -> str:
    return f"connected (MQTT {'5.0' if address.version == 5 else '3.1.1'})"
