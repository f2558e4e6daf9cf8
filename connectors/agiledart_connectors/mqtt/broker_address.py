"""`mqtt://HOST:PORT/TOPIC?…` as values: the broker's address, how to talk to it, and the client's login."""

import os
from dataclasses import dataclass
from pathlib import Path

from agiledart_connectors.credentials import UserPassword, credentials
from agiledart_connectors.options import number
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

MAX_TOPIC_BYTES = 65_535
NO_SESSION = "none"
"""Value of `session=` for none."""


@dataclass(frozen=True)
class BrokerAddress:
    """Address of a broker, and how to talk to it.

    Attributes:
        topic: a filter for a source, a topic (perhaps with fields) for a sink.
        tls: encrypted; `ca`, `cert`, `key`: files, "" for the system's authorities and for no certificate.
        version: of the protocol, 5 or 3 (for 3.1.1).
        client: identifier; "" for a new one at each start.
    """

    host: str
    port: int
    topic: str
    tls: bool
    ca: str
    cert: str
    key: str
    version: int
    qos: int
    client: str
    login: UserPassword | None

    @property
    def broker(self) -> str:
        """Return the broker as users read it."""
        return f"{self.host}:{self.port}"


def broker_address(connector: Connector) -> BrokerAddress:
    """Return the address that a connector's URL gives.

    Raises:
        ConfigurationError: the URL is no address of a broker, or an option is invalid.
        OperationFailed: a file that the URL names is missing, or its credential.
    """
    name, example = f"{connector.kind}:{connector.path}", f"{connector.kind}://broker:1883/rooms/+/temperature"
    if "/" in connector.at or (":" in connector.at and not connector.path.count("/") > 2):
        raise ConfigurationError(
            f"{connector.kind}: a password never stands in a URL: write it into a file and give ?credentials=NAME"
        )
    where, slash, topic = connector.path.removeprefix("//").partition("/")
    host, colon, port = where.rpartition(":")
    if not colon or "]" in port:
        host, port = where, "8883" if connector.kind == "mqtts" else "1883"
    if (
        not connector.path.startswith("//")
        or not host
        or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536)
    ):
        raise ConfigurationError(f"{name}: write {connector.kind}://HOST:PORT/TOPIC, for example {example}")
    if not slash or not topic or "\0" in topic or len(topic.encode()) > MAX_TOPIC_BYTES:
        raise ConfigurationError(
            f"{name}: which topic? Write {connector.kind}://HOST:PORT/TOPIC, for example {example}"
        )
    version = number(connector, "version", 5, 3, 5)
    if version == 4:
        raise ConfigurationError(f"{name}: version is 5 or 3 (for 3.1.1), not 4")
    session = connector.option("session")
    client = connector.option("client") or ("" if session == NO_SESSION else session)
    files = [connector.option(option) for option in ("ca", "cert", "key")]
    ca, cert, key = files
    for file in files:
        if file and not (Path(file).is_file() and os.access(file, os.R_OK)):
            raise OperationFailed(f"{name}: {file} cannot be read here")
    return BrokerAddress(
        host.removeprefix("[").removesuffix("]"), int(port), topic, connector.kind == "mqtts", ca, cert, key, version,
        number(connector, "qos", 0, 0, 2), client,
        credentials(connector.option("credentials")),
    )  # fmt: skip


def check_filter(name: str, topic: str) -> None:
    """Raise `ConfigurationError` for what is no topic filter (MQTT 5, section 4.7), shared ones included."""
    levels = topic.split("/")
    if levels[0] == "$share" and (len(levels) < 3 or not levels[1] or set(levels[1]) & set("+#")):
        raise ConfigurationError(f"{name}: a shared subscription is $share/GROUP/FILTER, not {topic}")
    for place, level in enumerate(levels):
        if (
            (level != "+" and "+" in level)
            or (level != "#" and "#" in level)
            or (level == "#" and place + 1 < len(levels))
        ):
            raise ConfigurationError(
                f"{name}: in a filter + stands for a whole level and # for all at the end; {topic} is none"
            )
