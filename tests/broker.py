"""A mosquitto of a test's own: on a free port of 127.0.0.1, killed and begun again as the test wants, its store kept."""

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

from tests.ports import lasting_port

PROGRAM = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")

needs_broker = pytest.mark.skipif(PROGRAM is None, reason="no mosquitto here (Debian: apt install mosquitto)")


class Broker:
    """A context manager.

    Args:
        folder: for its settings and its store.
        settings: further lines of its configuration.
    """

    def __init__(self, folder: Path, *settings: str) -> None:
        self.port = lasting_port()
        self._file = folder / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            "user root",
            *(settings or ("allow_anonymous true",)),
        ]
        self._file.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, and wait until it listens."""
        assert PROGRAM is not None
        self._process = subprocess.Popen([PROGRAM, "-c", str(self._file)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process.poll() is None, "mosquitto has ended"
                assert time.monotonic() < deadline, "mosquitto does not listen"

    def kill(self) -> None:
        """kill -9: unwritten data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def stop(self) -> None:
        """End it; its store is written."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None
