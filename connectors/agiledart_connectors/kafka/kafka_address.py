"""`kafka://HOST:PORT[,HOST:PORT]/TOPIC?…` as values: the brokers' addresses, and the client's login."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agiledart_connectors.credentials import UserPassword, credentials
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_MAX_BROKERS: Final = 16
MECHANISMS: Final = {"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"}
"""Value of `sasl=` → name of the mechanism on the wire."""


@dataclass(frozen=True)
class KafkaAddress:
    """Addresses of brokers, and how to talk to them.

    Attributes:
        brokers: (host, port) of the brokers to ask first for all others.
        tls: encrypted; `ca`, `cert`, `cert_key`: files, "" for the system's authorities and for no certificate.
        login: for SASL; None: no login.
    """

    brokers: tuple[tuple[str, int], ...]
    topic: str
    tls: bool
    ca: str
    cert: str
    cert_key: str
    login: UserPassword | None
    mechanism: str

    @property
    def broker(self) -> str:
        """Return the brokers as users read them."""
        return ",".join(self.servers)

    @property
    def servers(self) -> list[str]:
        """`HOST:PORT` of each."""
        return [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.brokers]


def kafka_address(connector: Connector) -> KafkaAddress:
    """Return the address that a connector's URL gives.

    Raises:
        ConfigurationError: the URL is no address of brokers, or an option is invalid.
        OperationFailed: a file that the URL names is missing, or its credential.
    """
    name, form = f"{connector.kind}:{connector.path}", f"{connector.kind}://HOST:PORT[,HOST:PORT]/TOPIC"
    if "/" in connector.at:
        raise ConfigurationError(
            f"{connector.kind}: a password never stands in a URL: write it into a file and give ?credentials=NAME"
        )
    where, _, topic = connector.path.removeprefix("//").partition("/")
    if not connector.path.startswith("//") or not where:
        raise ConfigurationError(f"{name}: write {form}")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ConfigurationError(
            f"{name}: which topic? Write {form}; its name has letters, digits, dots, underscores and hyphens"
        )
    brokers = tuple(_host_and_port(server, name, form) for server in where.split(","))
    if len(brokers) > _MAX_BROKERS:
        raise ConfigurationError(f"{name}: {_MAX_BROKERS} brokers are enough to find the others")
    files = {option: connector.option(option) for option in ("ca", "cert", "cert_key")}
    for file in files.values():
        if file and not (Path(file).is_file() and os.access(file, os.R_OK)):
            raise OperationFailed(f"{name}: {file} cannot be read here")
    mechanism = connector.option("sasl", "plain")
    if mechanism not in MECHANISMS:
        raise ConfigurationError(f"{name}: sasl is one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if connector.option("sasl") and not connector.option("credentials"):
        raise ConfigurationError(f"{name}: sasl={mechanism} of whom? Give ?credentials=NAME")
    return KafkaAddress(
        brokers, topic, connector.kind == "kafkas", files["ca"], files["cert"], files["cert_key"],
        credentials(connector.option("credentials")), MECHANISMS[mechanism],
    )  # fmt: skip


def _host_and_port(text: str, name: str, form: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, "9092"
    if not host or any(c.isspace() for c in host) or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigurationError(f"{name}: {text!r} is no HOST:PORT; write {form}")
    return host.removeprefix("[").removesuffix("]"), int(port)
