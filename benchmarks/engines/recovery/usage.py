"""CPU time of processes that come and go, including killed ones: the tree below this process, sampled repeatedly."""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Final

from agiledart_experiments.recovery.polling_thread import PollingThread
from benchmarks.processes import tree

LOOK_SECONDS: Final = 0.25
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Usage(PollingThread):
    """Total CPU time of every process below this one, without this one; a context manager.

    CPU time between the last sample and a process's death is missed: at most a quarter of a second for each process.
    """

    def __init__(self) -> None:
        super().__init__(LOOK_SECONDS)
        self._ticks: dict[tuple[int, str], int] = {}
        self._looks: list[tuple[float, float]] = []
        self._lock = threading.Lock()

    def seconds(self) -> float:
        """Return the CPU seconds so far."""
        with self._lock:
            self._sample()
            return sum(self._ticks.values()) / _TICKS

    def at(self, moment: float) -> tuple[float, float]:
        """Return (time, CPU seconds by then) of the first sample from a moment on, which may be long past; wait for it."""
        time.sleep(max(0.0, moment - time.monotonic()))
        first = next((look for look in self._looks if look[0] >= moment), None)
        return first or (time.monotonic(), self.seconds())

    def look(self) -> None:
        """Record the CPU time used so far."""
        seconds = self.seconds()
        self._looks.append((time.monotonic(), seconds))

    def _sample(self) -> None:
        for pid in tree(os.getpid())[1:]:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._ticks[pid, fields[19]] = int(fields[11]) + int(fields[12])
