"""Watch of a sink's file: record its size many times a second to learn when rows arrive."""

import contextlib
import time
from pathlib import Path

from agiledart_experiments.recovery.polling_thread import PollingThread

LOOK_SECONDS = 0.005


class SinkWatch(PollingThread):
    """Context manager that records each change of a file's size."""

    def __init__(self, file: Path) -> None:
        super().__init__(LOOK_SECONDS)
        self._file = file
        self._sizes: list[tuple[float, int]] = []

    def look(self) -> None:
        """Record the size if it has changed."""
        with contextlib.suppress(OSError):
            size = self._file.stat().st_size
            if not self._sizes or size != self._sizes[-1][1]:
                self._sizes.append((time.monotonic(), size))

    def next_result(self, since: float, recovered: float | None = None) -> float | None:
        """Return the seconds from `since` to the first row beyond those in the file before it was truncated; None: not yet.

        Rows in transit at that moment still arrive for a while; they do not count, as the truncation may remove them.

        Args:
            since: moment of the fault, on the monotonic clock.
            recovered: moment by which a truncation must have happened, if any happens.
        """
        return next_beyond(list(self._sizes), since, recovered)


def next_beyond(sizes: list[tuple[float, int]], since: float, recovered: float | None = None) -> float | None:
    """Return the seconds from `since` to the first growth beyond the largest size before the last truncation; None: not yet.

    When no truncation was seen by `recovered`, the largest size at that moment counts. Then there was nothing to truncate, or
    the file grew again between two looks.
    """
    highest, high_water, delay = 0, None, None
    before = 0
    for when, size in sizes:
        if high_water is None and recovered is not None and when > recovered:
            high_water = highest
        if size < before and when >= since:
            high_water, delay = highest, None
        if high_water is not None and delay is None and size > high_water:
            delay = when - since
        highest, before = max(highest, size), size
    return delay
