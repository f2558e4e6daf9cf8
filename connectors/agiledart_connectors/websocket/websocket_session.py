"""`ws://HOST:PORT/PATH` and `wss://`: how a server is called, and what is wrong when it cannot be."""

from typing import Any, Final

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from agiledart_connectors.http.http_address import HttpAddress, client_context, http_address
from agiledart_connectors.http.webhook import bearer
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, system_text
from agiledart_kernel.limits import MAX_LINE_BYTES

OPEN_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 1.0
PING_SECONDS: Final = 20.0
"""Between two pings; a server that does not answer one for as long is away."""

AWAY: Final = (OSError, WebSocketException, TimeoutError)
"""Errors raised when a server is away, or goes away."""


class WebsocketSession:
    """Client that calls one server, again and again.

    Args:
        connector: the server's address, and the client's credentials.

    Raises:
        ConfigurationError: the URL is no valid address.
        OperationFailed: a certificate or credential cannot be used.
    """

    def __init__(self, connector: Connector) -> None:
        address = http_address(connector)
        if not address.host:
            raise ConfigurationError(f"{connector.url()}: which server? Write {connector.kind}://HOST:PORT/PATH")
        self.address: HttpAddress = address
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._uri = f"{connector.kind}://{host}:{address.port}{address.path}"
        self._headers = bearer(connector)
        self._context = client_context(connector) if address.tls else None

    @property
    def name(self) -> str:
        """Return the server as users read it."""
        return f"{self.address.server}{self.address.path}"

    def connected(self) -> ClientConnection:
        """A new connection. Raises one of `AWAY`."""
        extra: dict[str, Any] = {} if self._context is None else {"ssl": self._context}
        calling = connect(
            self._uri,
            additional_headers=self._headers,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            max_size=MAX_LINE_BYTES,
            proxy=None,
            **extra,
        )
        made: ClientConnection = calling.__enter__()
        return made


def error_text(error: BaseException) -> str:
    """Why a server is away, in a few words."""
    if isinstance(error, InvalidStatus):
        return f"it answered {error.response.status_code} {error.response.reason_phrase}".strip()
    if isinstance(error, ConnectionClosed):
        close = error.rcvd or error.sent
        return f"closed: {close.code} {close.reason}".strip() if close is not None else "the connection broke"
    return (system_text(error) or type(error).__name__).lower()


def probe(connector: Connector, row_type: Any) -> str:
    """Does a server let us in? For `submit --dry-run`."""
    from agiledart_connectors.codecs.decoder_options import decoder_options
    from agiledart_connectors.codecs.formats import open_decoder
    from agiledart_kernel.errors import OperationFailed

    session = WebsocketSession(connector)
    if connector.option("format"):
        open_decoder(connector.option("format"), row_type, decoder_options(connector))
    try:
        session.connected().close()
    except AWAY as error:
        raise OperationFailed(f"{session.name} cannot be reached: {error_text(error)}") from None
    return "connected"
