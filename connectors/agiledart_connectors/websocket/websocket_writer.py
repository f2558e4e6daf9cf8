"""Sink `ws://HOST:PORT/PATH` (and `wss:`): each row a message, as JSON.

After each batch the sink asks the server for a sign of life, which confirms that it has received all of it. After a broken
connection the sink sends unconfirmed messages again: they may arrive twice.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from websockets.protocol import State
from websockets.sync.client import ClientConnection

from agiledart_connectors.codecs.rendering import json_of
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.remote.delivery_queue import DeliveryQueueWriter
from agiledart_connectors.remote.thread_errors import RetryLaterError
from agiledart_connectors.websocket.websocket_session import AWAY, PING_SECONDS, WebsocketSession, error_text
from agiledart_dataflow.plan.connectors import Connector

BATCH: Final = 100


class WebsocketWriter(DeliveryQueueWriter):
    """Sends rows."""

    def __init__(self, connector: Connector, row_type: Any, times: LatencyRecorder) -> None:
        self._session = WebsocketSession(connector)
        self._connection: ClientConnection | None = None
        value_for, encode = json_of(row_type), msgspec.json.Encoder().encode
        super().__init__(self._session.name, times, lambda row, now: encode(value_for(row, now)), max_batch_rows=BATCH)

    def deliver(self, batch: list[Any]) -> None:
        try:
            if self._connection is None:
                self._connection = self._session.connected()
            for row in batch:
                self._connection.send(row, text=True)
            has_come = self._connection.ping(ack_on_close=True)
            if not has_come.wait(PING_SECONDS) or self._connection.state is not State.OPEN:
                raise TimeoutError("it did not say that it has received all")
        except AWAY as error:
            self.disconnect()
            raise RetryLaterError(f"{self._session.name} cannot be reached ({error_text(error)})") from None

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: object) -> WebsocketWriter:
    """The writer of a `ws:` or `wss:` connector."""
    return WebsocketWriter(connector, row_type, LatencyRecorder(row_type, clock))
