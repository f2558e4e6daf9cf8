"""CPU time of processes that come and go, those that are killed too: the tree below this process, looked at again and again."""

import contextlib
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.processes import tree

LOOK_SECONDS: Final = 0.25
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Usage:
    """Adds up what every process below this one has used, this one left out; a context manager.

    What a process uses between the last look and its death is not seen: at most a quarter of a second of each.
    """

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, str], int] = {}
        self._looks: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Usage":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def seconds(self) -> float:
        """CPU seconds so far."""
        with self._lock:
            self._sample()
            return sum(self._ticks.values()) / _TICKS

    def at(self, moment: float) -> tuple[float, float]:
        """(when, CPU seconds by then) of the first look from a moment on, which may be long past; waits for it."""
        time.sleep(max(0.0, moment - time.monotonic()))
        found = next((look for look in self._looks if look[0] >= moment), None)
        return found or (time.monotonic(), self.seconds())

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            seconds = self.seconds()
            self._looks.append((time.monotonic(), seconds))

    def _sample(self) -> None:
        for pid in tree(os.getpid())[1:]:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._ticks[pid, fields[19]] = int(fields[11]) + int(fields[12])
