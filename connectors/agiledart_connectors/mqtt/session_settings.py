"""Session that a broker keeps for a source that is away: its name, and for how long."""

from dataclasses import dataclass
from typing import Final

from agiledart_connectors.mqtt.broker_address import NO_SESSION, BrokerAddress
from agiledart_connectors.options import SPANS_MS, quantity
from agiledart_connectors.source_origin import SourceOrigin, session_name
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

EXPIRY_SECONDS: Final = 86_400
"""Time after the last contact for which a broker of MQTT 5 keeps a session that this program has named."""

NAMED_EXPIRY_SECONDS: Final = 7 * 86_400
"""The same for a session that the user has named, which no agent ends."""

MAX_EXPIRY_SECONDS: Final = (1 << 32) - 2


@dataclass(frozen=True)
class SessionSettings:
    """Session of one source.

    Attributes:
        name: identifier of the client, and of its session; "": no session.
        expiry_seconds: as a broker of MQTT 5 is asked.
        begins: a session of an earlier run is dropped at the first connection.
        is_refused: the user wants none, although QoS 1 or 2 is asked for.
    """

    name: str = ""
    expiry_seconds: int = 0
    begins: bool = False
    is_refused: bool = False


def session_settings(connector: Connector, address: BrokerAddress, origin: SourceOrigin | None) -> SessionSettings:
    """Return the session of a source: the user's, or with QoS 1 and 2 on a mesh one of its own. Raises `ConfigurationError`."""
    given = connector.option("session")
    expiry = quantity(connector, "session_expiry", SPANS_MS, "1d") // 1_000
    if expiry > MAX_EXPIRY_SECONDS:
        raise ConfigurationError(f"{connector.url()}: session_expiry is at most {MAX_EXPIRY_SECONDS // 86_400:,} days")
    if given == NO_SESSION:
        return SessionSettings(is_refused=address.qos > 0)
    if given:
        return SessionSettings(address.client, expiry or NAMED_EXPIRY_SECONDS)
    if not address.qos or origin is None or not origin.application:
        return SessionSettings()
    name = address.client or session_name(origin.network, origin.application, origin.step, origin.index)
    return SessionSettings(name, expiry or EXPIRY_SECONDS, origin.begins)
