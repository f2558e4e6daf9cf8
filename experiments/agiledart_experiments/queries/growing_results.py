"""`GrowingResults`: a file of results that an engine appends to, and the moments at which its lines were there."""

import threading
import time
from pathlib import Path
from typing import Final

POLL_S: Final = 0.0005
"""Pause between two looks at the file: an error of a quarter of a millisecond on average, the same for all engines."""


class GrowingResults:
    """A thread that looks at a file.

    Args:
        path: of the file; it may come later.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = b""
        self._times: list[float] = []
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def times(self) -> list[float]:
        """Return the monotonic times at which the lines so far were there."""
        return list(self._times)

    @property
    def text(self) -> str:
        """Return the whole lines so far."""
        return self._text.decode()

    def wait_for(self, lines: int, timeout_s: float) -> bool:
        """Wait until so many lines are there; return whether they came in time."""
        end = time.monotonic() + timeout_s
        while len(self._times) < lines:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def close(self) -> None:
        """End the thread."""
        self._stops.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._path.exists() and not self._stops.is_set():
            time.sleep(POLL_S)
        if self._stops.is_set():
            return
        rest = b""
        with self._path.open("rb") as file:
            while not self._stops.is_set():
                data = file.read()
                if not data:
                    time.sleep(POLL_S)
                    continue
                now = time.monotonic()
                whole, newline, rest = (rest + data).rpartition(b"\n")
                self._times += [now] * (whole.count(b"\n") + 1 if newline else 0)
                self._text += whole + newline
