"""When rows come to a sink that is a file: its size over time, looked at many times a second."""

import contextlib
import time
from pathlib import Path

from agiledart_experiments.recovery.polling_thread import PollingThread

LOOK_SECONDS = 0.005


class SinkWatch(PollingThread):
    """Remembers each change of a file's size while it is entered; a context manager."""

    def __init__(self, file: Path) -> None:
        super().__init__(LOOK_SECONDS)
        self._file = file
        self._sizes: list[tuple[float, int]] = []

    def look(self) -> None:
        """Remember the size if it is another one."""
        with contextlib.suppress(OSError):
            size = self._file.stat().st_size
            if not self._sizes or size != self._sizes[-1][1]:
                self._sizes.append((time.monotonic(), size))

    def next_result(self, since: float, recovered: float | None = None) -> float | None:
        """Seconds from a moment to the first row beyond all that were there before the file was cut back; None: not yet.

        Rows that were under way at that moment still come for a while; they do not count, as they may be cut away again.
        `recovered`: by then it had been cut back, if it was at all.
        """
        return next_beyond(list(self._sizes), since, recovered)


def next_beyond(sizes: list[tuple[float, int]], since: float, recovered: float | None = None) -> float | None:
    """The first growth beyond the high-water mark that stood when the file last became smaller, in seconds after `since`.

    Where it did not by `recovered`, there was nothing to cut, or it grew again between two looks: beyond what stood there then.
    """
    highest, mark, found = 0, None, None
    before = 0
    for when, size in sizes:
        if mark is None and recovered is not None and when > recovered:
            mark = highest
        if size < before and when >= since:
            mark, found = highest, None
        if mark is not None and found is None and size > mark:
            found = when - since
        highest, before = max(highest, size), size
    return found
