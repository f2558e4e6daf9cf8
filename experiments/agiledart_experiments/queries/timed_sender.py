"""`TimedSender`: a TCP server that sends lines at a rate to the engine that connects, and knows when each line was due."""

import socket
import time
from collections.abc import Sequence
from typing import Final

from agiledart_kernel.errors import OperationFailed

TICK_S: Final = 0.001
"""Shortest pause between two sends: lines that are due within it go together."""

CONNECT_TIMEOUT_S: Final = 120.0


class TimedSender:
    """A server for one connection.

    Args:
        lines: to send.
        rate: lines in a second.

    Attributes:
        port: on 127.0.0.1.
        began: monotonic time at which the first line was due; 0 before.
    """

    def __init__(self, lines: Sequence[str], rate: int) -> None:
        self._lines = [f"{line}\n".encode() for line in lines]
        self._rate = rate
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(CONNECT_TIMEOUT_S)
        self.port: int = self._server.getsockname()[1]
        self.began = 0.0

    def due(self, index: int) -> float:
        """Return the monotonic time at which a line was due. A line that the engine does not take in time is late from then on."""
        return self.began + index / self._rate

    def accept(self) -> socket.socket:
        """Wait for the engine; return the connection. Raises `OperationFailed` when it does not connect."""
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            raise OperationFailed(f"the engine did not connect within {CONNECT_TIMEOUT_S:.0f} s") from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def send(self, connection: socket.socket, timeout_s: float) -> None:
        """Send all lines, each when it is due or as soon as the engine takes it. Raises `OperationFailed` when it takes none."""
        connection.settimeout(timeout_s)
        self.began = time.monotonic()
        done, count = 0, len(self._lines)
        try:
            while done < count:
                until = min(count, int((time.monotonic() - self.began) * self._rate) + 1)
                if until > done:
                    connection.sendall(b"".join(self._lines[done:until]))
                    done = until
                if done < count:
                    time.sleep(max(TICK_S, self.due(done) - time.monotonic()))
        except OSError as error:
            raise OperationFailed(f"the engine stopped reading after about {done} lines: {error}") from None

    def close(self) -> None:
        """Stop listening."""
        self._server.close()
