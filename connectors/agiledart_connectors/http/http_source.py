"""Source `http:` and `https:`: with `listen=1` rows that others post, else rows that a server gives when it is asked."""

import socket
from typing import Any, Final

from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.http.http_address import client_context, http_address
from agiledart_connectors.options import ReadOptions, flag
from agiledart_dataflow.plan.connectors import Connector, SourceReader
from agiledart_kernel.errors import ConfigurationError, OperationFailed, system_text

SECONDS: Final = 5.0
_LISTENING: Final = ("cert", "key", "listen")
_ASKING: Final = ("ca", "cursor", "member", "poll", "since")


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> SourceReader:
    """The reader of an `http:` or `https:` connector."""
    listens = flag(connector, "listen")
    for name in _ASKING if listens else _LISTENING:
        if connector.option(name) and name != "listen":
            mode = "listens" if listens else "asks a server (listen=1 listens)"
            raise ConfigurationError(f"{connector.url()}: {name}= is not for a source that {mode}")
    if listens:
        from agiledart_connectors.http import push_reader

        return push_reader.open_source(connector, row_type, read_options)
    from agiledart_connectors.http.http_poller import open_polling

    return open_polling(connector, row_type, read_options)


def probe_source(connector: Connector, row_type: Any) -> str:
    """Would it open? A server is called, and not asked for rows."""
    if flag(connector, "listen"):
        open_source(connector, row_type, ReadOptions()).close()
        return "can listen"
    open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
    return check_server_answers(connector)


def check_server_answers(connector: Connector, default_port: int = 0) -> str:
    """Does a server take calls? Raises `OperationFailed`."""
    address = http_address(connector, default_port=default_port)
    context = client_context(connector) if address.tls else None
    try:
        with socket.create_connection((address.host, address.port), SECONDS) as peer:
            if context is not None:
                context.wrap_socket(peer, server_hostname=address.host).close()
    except OSError as error:
        raise OperationFailed(f"{address.server} does not answer: {system_text(error)}") from None
    return "takes calls"
