"""`http://HOST:PORT/PATH` and `https://…` as values."""

import ssl
from typing import Final, NamedTuple

from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

_TLS: Final = ("https", "influxs", "wss")


class HttpAddress(NamedTuple):
    """Address of a server. `host` may be empty: this machine, loopback."""

    host: str
    port: int
    path: str
    tls: bool

    @property
    def server(self) -> str:
        """Return the server as users read it."""
        return f"{self.host}:{self.port}"


def http_address(connector: Connector, *, default_port: int = 0) -> HttpAddress:
    """Return the address that a connector's URL gives. Raises `ConfigurationError`."""
    tls = connector.kind in _TLS
    name, example = f"{connector.kind}:{connector.path}", f"{connector.kind}://host:8080/path"
    if connector.at and ("/" in connector.at or ":" in connector.at):
        raise ConfigurationError(
            f"{connector.kind}: a password never stands in a URL: write it into a file and give ?credentials=NAME"
        )
    where, _, path = connector.path.removeprefix("//").partition("/")
    host, colon, port = where.rpartition(":")
    if not colon or "]" in port:
        host, port = where, str(default_port or (443 if tls else 80))
    sound = port.isascii() and port.isdigit() and 0 <= int(port) < 65_536
    if not connector.path.startswith("//") or not sound or any(c <= " " or c > "~" for c in connector.path):
        raise ConfigurationError(f"{name}: write {example}")
    return HttpAddress(host.removeprefix("[").removesuffix("]"), int(port), f"/{path}", tls)


def client_context(connector: Connector) -> ssl.SSLContext:
    """Return the TLS context for calls to servers: the system's authorities, or the file `ca`. Raises `OperationFailed`."""
    try:
        return ssl.create_default_context(cafile=connector.option("ca") or None)
    except (OSError, ssl.SSLError) as error:
        raise OperationFailed(f"certificates ({connector.option('ca')}) cannot be used: {error}") from None


def server_context(connector: Connector) -> ssl.SSLContext:
    """Return the TLS context for clients' calls: `cert` and `key` of the node. Raises `ConfigurationError`, `OperationFailed`."""
    cert, key = connector.option("cert"), connector.option("key")
    if not cert:
        raise ConfigurationError(f"{connector.kind}: a source over TLS needs cert=FILE and key=FILE of the node")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise OperationFailed(f"certificates ({cert}, {key}) cannot be used: {error}") from None
    return context
