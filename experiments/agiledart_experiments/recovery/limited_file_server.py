"""Program that serves parts of files of a folder over TCP, with an uplink of limited rate and a delay.

    python -m agiledart_experiments.recovery.limited_file_server FOLDER BYTES_A_SECOND DELAY_S

It prints its port. A request is a line `NAME OFFSET LENGTH`; the answer is the bytes. All connections share the uplink.
"""

import contextlib
import socket
import sys
import threading
import time
from pathlib import Path

PIECE = 65_536
"""Bytes that leave at a time."""


class LimitedUplink:
    """Uplink whose transfers share a rate: a piece leaves when those before it have left.

    Args:
        rate: bytes a second.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0
        self._lock = threading.Lock()

    def wait_for(self, size: int) -> None:
        """Wait until `size` bytes have left."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            left = self._free
        time.sleep(max(0.0, left - time.monotonic()))


def serve(connection: socket.socket, folder: Path, uplink: LimitedUplink, delay: float) -> None:
    """Answer the requests of one connection until it ends."""
    with connection, connection.makefile("r", encoding="utf-8") as requests, contextlib.suppress(OSError):
        for request in requests:
            name, offset, length = request.split()
            time.sleep(2 * delay)
            with (folder / Path(name).name).open("rb") as file:
                file.seek(int(offset))
                left = int(length)
                while left > 0 and (piece := file.read(min(PIECE, left))):
                    uplink.wait_for(len(piece))
                    connection.sendall(piece)
                    left -= len(piece)


def main(words: list[str]) -> None:
    """Serve until the standard input ends."""
    folder, rate, delay = Path(words[0]), float(words[1]), float(words[2])
    uplink = LimitedUplink(rate)
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)  # noqa: T201

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=serve, args=(connection, folder, uplink, delay), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
