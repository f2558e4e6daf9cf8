"""`EagerClient`: paho's client with a socket that takes all that has come in one call.

paho asks the kernel for a packet in three or four pieces, a byte or two each: more than half of what a message costs. It waits for
sockets that have bytes `pending`, as those of TLS have, without asking the kernel; so has this one. Acknowledgements, too, go
in one piece.
"""

import ssl
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.client import PUBACK
from paho.mqtt.enums import MQTTErrorCode

AHEAD_BYTES: Final = 64 << 10
_PUBACK: Final = struct.Struct("!BBH")
_MAX_PACKETS: Final = 1_000
"""Read in one turn of paho's loop, so that it also writes."""


class ReadAhead:
    """A socket of which small pieces are read."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._data, self._at = b"", 0
        self.fileno, self.send, self.close = sock.fileno, sock.send, sock.close
        self._inner_pending = sock.pending if isinstance(sock, ssl.SSLSocket) else None

    def recv(self, size: int) -> bytes:
        """Return at most `size` bytes; raises like the socket itself."""
        at, data = self._at, self._data
        if at >= len(data):
            data, at = self._sock.recv(max(size, AHEAD_BYTES)), 0
            self._data = data
        self._at = at + size
        return data[at : at + size]

    def pending(self) -> int:
        """Bytes that are here."""
        inner = 0 if self._inner_pending is None else self._inner_pending()
        return max(0, len(self._data) - self._at) + inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class EagerClient(paho.Client):
    """A client that reads ahead, and whose thread does not end with an error unseen.

    Attributes:
        on_thread_error: called in the thread with what it raised; returns whether to connect again.
        last_contact: monotonic time of the last bytes from the broker, in seconds; 0: none came.
    """

    on_thread_error: Callable[[BaseException], bool] | None = None
    last_contact: float = 0.0

    def _thread_main(self) -> None:
        try:
            while True:
                try:
                    self.loop_forever(retry_first_connection=True)
                    return
                except BaseException as error:  # noqa: BLE001  else the link would look as if it were idle
                    if self.on_thread_error is None or not self.on_thread_error(error):
                        return
                    self._sock_close()  # paho waits, and then connects again
        finally:
            self._thread = None

    def _create_socket(self) -> Any:
        return ReadAhead(super()._create_socket())

    def keep_session(self) -> None:
        """Connect again, and keep the session from now on: the connection that is open has dropped an earlier one."""
        if self._protocol == paho.MQTTv5:
            self._clean_start = False
        else:
            self._clean_session = False
        self._sock_close()  # paho waits a little, and then connects again

    def acknowledge(self, messages: Iterable[tuple[int, int]]) -> None:
        """Acknowledge messages, by identifier and QoS: those of QoS 1 leave in one piece and wake the link's thread once."""
        pieces = []
        for mid, qos in messages:
            if qos == 1:
                pieces.append(_PUBACK.pack(PUBACK, 2, mid))
            elif qos == 2:
                self.ack(mid, 2)
        if pieces:
            self._packet_queue(PUBACK, b"".join(pieces), 0, 1)

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read what is here, not one packet."""
        self.last_contact = time.monotonic()
        result = super().loop_read(max_packets)
        for _ in range(_MAX_PACKETS):
            sock = self._sock
            if result != MQTTErrorCode.MQTT_ERR_SUCCESS or not isinstance(sock, ReadAhead) or not sock.pending():
                break
            result = super().loop_read(max_packets)
        return result
