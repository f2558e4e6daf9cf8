"""Lateness of results, measured from outside: the last line of a file now, and the time at which it was due."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LOOK_SECONDS = 0.02


def percentile(figures: list[float], share: float) -> float | None:
    """Return the smallest figure that this share of the figures does not exceed."""
    ordered = sorted(figures)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else None


@dataclass
class Lateness:
    """Watch over a growing file, from a thread of its own.

    Args:
        due_of: lines that are there → when the next one was due, on the monotonic clock; None: it does not wait.

    Attributes:
        seen: (when, milliseconds for which the oldest line that is missing has been missing).
    """

    path: Path
    due_of: Callable[[int], float | None]
    seen: list[tuple[float, float]] = field(default_factory=list)
    lines: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._place = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if self.path.exists():
                with self.path.open("rb") as file:
                    file.seek(self._place)
                    more = file.read()
                self._place += len(more)
                self.lines += more.count(b"\n")
            now = time.monotonic()
            due = self.due_of(self.lines)
            self.seen.append((now, 0.0 if due is None else max(0.0, 1_000 * (now - due))))

    def between(self, start: float, end: float) -> list[float]:
        """Return the delays seen in a span of time."""
        return [late for at, late in self.seen if start <= at < end]

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()
