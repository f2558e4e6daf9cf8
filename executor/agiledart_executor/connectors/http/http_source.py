"""Source `http:` and `https:`: with `listen=1` rows that others post, else rows that a server gives when it is asked."""

import socket
from typing import Any, Final

from agiledart_dataflow.plan.connectors import Connector, SourceReader
from agiledart_executor.connectors.codecs.formats import open_decoder
from agiledart_executor.connectors.http.http_address import client_context, http_address
from agiledart_executor.connectors.options import SourceWish, flag
from agiledart_kernel.errors import ConfigurationError, OperationFailed

SECONDS: Final = 5.0
_LISTENING: Final = ("cert", "key", "listen")
_ASKING: Final = ("ca", "cursor", "member", "poll", "since")


def open_source(connector: Connector, row_type: Any, wish: SourceWish) -> SourceReader:
    """The reader of an `http:` or `https:` connector."""
    listens = flag(connector, "listen")
    for name in _ASKING if listens else _LISTENING:
        if connector.option(name) and name != "listen":
            who = "listens" if listens else "asks a server (listen=1 listens)"
            raise ConfigurationError(f"{connector.url()}: {name}= is not for a source that {who}")
    if listens:
        from agiledart_executor.connectors.http import push

        return push.open_source(connector, row_type, wish)
    from agiledart_executor.connectors.http.polling import open_polling

    return open_polling(connector, row_type, wish)


def probe_source(connector: Connector, row_type: Any) -> str:
    """Would it open? A server is called, and not asked for rows."""
    if flag(connector, "listen"):
        open_source(connector, row_type, SourceWish()).close()
        return "can listen"
    open_decoder(connector.option("format", "json"), row_type)
    return called(connector)


def called(connector: Connector, usual_port: int = 0) -> str:
    """Does a server take calls? Raises `OperationFailed`."""
    address = http_address(connector, usual_port=usual_port)
    context = client_context(connector) if address.tls else None
    try:
        with socket.create_connection((address.host, address.port), SECONDS) as peer:
            if context is not None:
                context.wrap_socket(peer, server_hostname=address.host).close()
    except OSError as error:
        raise OperationFailed(
            f"{address.server} does not answer: {getattr(error, 'strerror', None) or error}"
        ) from None
    return "takes calls"
