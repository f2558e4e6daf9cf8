"""Source `ws://HOST:PORT/PATH` (and `wss:`): the messages of a server.

    wss://feed.example/trades?hello={"subscribe":"trades"}     `hello` is sent first, at each connection
    ws://gateway:8080/live?format=senml&credentials=gateway    Authorization: Bearer …, the text of the credential

A message is one payload of the format. While rows wait nothing is read of the connection, so that pressure reaches the server. A
broken connection is made again, ever later; messages sent meanwhile are lost.
"""

import threading
from typing import Any, Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.malformed_examples import SIZE
from agiledart_connectors.options import ReadOptions
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_connectors.remote.thread_errors import RetryLaterError
from agiledart_connectors.websocket.websocket_session import AWAY, WebsocketSession, error_text
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.limits import MAX_LINE_BYTES

_TOO_BIG: Final = 1009
_QUIET_SECONDS: Final = 1.0


class WebsocketListener:
    """The thread: connects, receives, connects again."""

    def __init__(self, connector: Connector) -> None:
        self.session = WebsocketSession(connector)
        self._hello = connector.option("hello")
        self._lock = threading.Lock()
        self._connection: ClientConnection | None = None
        self._ended = False

    def __call__(self, incoming: PayloadQueue) -> None:
        """Receive until the reader is closed. Raises `RetryLaterError`: the server is not there, or went away."""
        try:
            connection = self.session.connected()
        except AWAY as error:
            raise RetryLaterError(f"{self.session.name} cannot be reached ({error_text(error)})") from None
        with self._lock:
            self._connection = connection
            is_late = self._ended
        try:
            if not is_late:
                self._receive(connection, incoming)
        except ConnectionClosed as error:
            if error.sent is not None and error.sent.code == _TOO_BIG:
                incoming.lose(SIZE, f"{self.session.name}: a message of more than {MAX_LINE_BYTES:,} bytes")
            raise RetryLaterError(f"{self.session.name} went away ({error_text(error)})") from None
        finally:
            connection.close()

    def interrupt(self) -> None:
        """End the receiving."""
        with self._lock:
            self._ended = True
            if self._connection is not None:
                self._connection.close()

    def _receive(self, connection: ClientConnection, incoming: PayloadQueue) -> None:
        if self._hello:
            connection.send(self._hello)
        count = 0
        while True:
            try:
                message = connection.recv(None if count else _QUIET_SECONDS, decode=False)
            except TimeoutError:  # it does not throw us out at once, and has nothing to say
                incoming.report_success()
                continue
            if not count:
                incoming.report_success()
            count += 1
            if not incoming.put(message, f"{self.session.name}:{count}"):
                return


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> PayloadQueueReader:
    """The reader of a `ws:` or `wss:` connector."""
    listening = WebsocketListener(connector)
    decoder = open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
    return PayloadQueueReader(listening.session.name, decoder, listening, listening.interrupt)
