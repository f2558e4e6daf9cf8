"""Source `ws://HOST:PORT/PATH` (and `wss:`): the messages of a server.

    wss://feed.example/trades?hello={"subscribe":"trades"}     `hello` is sent first, at each connection
    ws://gateway:8080/live?format=senml&credentials=gateway    Authorization: Bearer …, the text of the credential

A message is one payload of the format. While rows wait nothing is read of the connection, so that pressure reaches the server. A
connection that breaks is made again, ever later; what was sent meanwhile is lost.
"""

import threading
from typing import Any, Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.connectors.codecs.faults import SIZE
from agiledart_executor.connectors.codecs.formats import open_decoder
from agiledart_executor.connectors.incoming import Incoming, IncomingReader
from agiledart_executor.connectors.options import SourceWish
from agiledart_executor.connectors.websocket.session import AWAY, Session, told
from agiledart_kernel.limits import MAX_LINE_BYTES

_TOO_BIG: Final = 1009
_QUIET_SECONDS: Final = 1.0


class Listening:
    """The thread: connects, receives, connects again."""

    def __init__(self, connector: Connector) -> None:
        self.session = Session(connector)
        self._hello = connector.option("hello")
        self._lock = threading.Lock()
        self._connection: ClientConnection | None = None
        self._ended = False

    def __call__(self, incoming: Incoming) -> None:
        while not incoming.is_closed:
            try:
                connection = self.session.connected()
            except AWAY as error:
                if not incoming.gone(f"{self.session.name} cannot be reached ({told(error)})"):
                    return
                continue
            with self._lock:
                self._connection = connection
                is_late = self._ended
            try:
                if not is_late:
                    self._receive(connection, incoming)
            except ConnectionClosed as error:
                if error.sent is not None and error.sent.code == _TOO_BIG:
                    incoming.lose(SIZE, f"{self.session.name}: a message of more than {MAX_LINE_BYTES:,} bytes")
                if not incoming.gone(f"{self.session.name} went away ({told(error)})"):
                    return
            finally:
                connection.close()

    def interrupt(self) -> None:
        """End the receiving."""
        with self._lock:
            self._ended = True
            if self._connection is not None:
                self._connection.close()

    def _receive(self, connection: ClientConnection, incoming: Incoming) -> None:
        if self._hello:
            connection.send(self._hello)
        count = 0
        while True:
            try:
                message = connection.recv(None if count else _QUIET_SECONDS, decode=False)
            except TimeoutError:  # it does not throw us out at once, and has nothing to say
                incoming.there()
                continue
            if not count:
                incoming.there()
            count += 1
            if not incoming.put(message, f"{self.session.name}:{count}"):
                return


def open_source(connector: Connector, row_type: Any, wish: SourceWish) -> IncomingReader:
    """The reader of a `ws:` or `wss:` connector."""
    listening = Listening(connector)
    decoder = open_decoder(connector.option("format", "json"), row_type)
    return IncomingReader(listening.session.name, decoder, listening, listening.interrupt)
