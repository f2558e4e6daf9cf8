"""Rows that Flink's sink wrote, a file for each attempt of the job: time of the next result, and lost or duplicate rows.

A sink that is not transactional aborts nothing. So the next result after a failure is the first row of a later attempt whose time
is beyond that of every row of earlier attempts. Duplicates are no results, and rows that were under way at the failure do not
count, as with a file that is truncated.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Final

from agiledart_experiments.recovery.polling_thread import PollingThread

LOOK_SECONDS: Final = 0.005


def number_of(file: Path) -> int:
    """Return the number of the attempt that wrote the file."""
    return int(file.stem.rpartition("-")[2])


@dataclass
class AttemptRows:
    """Rows as they arrive, by attempt.

    Attributes:
        highest: time of the latest row of earlier attempts, in ms of the input; -1 before any.
        latest: time of the latest row of all attempts.
        began: attempt → when its first row arrived.
        beyond: attempt → when its first row beyond those of all earlier attempts arrived.
    """

    highest: int = -1
    latest: int = -1
    began: dict[int, float] = field(default_factory=dict)
    beyond: dict[int, float] = field(default_factory=dict)
    _attempt: int = -1

    def saw(self, attempt: int, times: Iterable[int], now: float) -> None:
        """Note that rows of an attempt with these times arrived. Rows of an attempt before the present one raise `highest`."""
        if attempt > self._attempt:
            self._attempt, self.highest = attempt, max(self.highest, self.latest)
        for at in times:
            self.began.setdefault(attempt, now)
            self.latest = max(self.latest, at)
            if attempt < self._attempt:
                if at > self.highest:
                    self.highest = at
                    self.beyond.pop(self._attempt, None)
            elif at > self.highest:
                self.beyond.setdefault(attempt, now)

    def next_result(self, since: float) -> float | None:
        """Return the seconds from a failure to the first row beyond all earlier ones; None: not yet."""
        came = [when for attempt, when in list(self.beyond.items()) if self.began[attempt] >= since]
        return min(came) - since if came else None


class AttemptRowsWatch(PollingThread):
    """Reader of a folder's growing files; a context manager."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LOOK_SECONDS)
        self.attempt_rows = AttemptRows()
        self._folder = folder
        self._read: dict[Path, int] = {}

    def next_result(self, since: float) -> float | None:
        """Return the same as `AttemptRows.next_result`."""
        return self.attempt_rows.next_result(since)

    def has_come(self, at: int) -> bool | None:
        """Tell whether a row of this time or a later one has arrived; None: not yet."""
        return True if self.attempt_rows.latest >= at else None

    def look(self) -> None:
        """Read what has been added since the last look."""
        for file in sorted(self._folder.glob("out-*.csv"), key=number_of):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                text = lines.read()
            whole = text[: text.rfind(b"\n") + 1]  # the last line may be incomplete
            if whole:
                self._read[file] = self._read.get(file, 0) + len(whole)
                times = [int(line.split(b",", 1)[0]) for line in whole.splitlines()]
                self.attempt_rows.saw(number_of(file), times, time.monotonic())


def readings(keys: int, load_ms: int, rows_a_second: int) -> Iterator[tuple[int, int, int]]:
    """Yield the job's endless input: (time in ms, key, value)."""
    for number in range(keys):
        yield number * load_ms // keys, number, number % 101
    number = 0
    while True:
        yield load_ms + number * 1_000 // rows_a_second, number * 7_919 % keys, number % 101
        number += 1


def sums(read: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield a plain loop's results: (time, key, sum of the key so far)."""
    totals: dict[int, int] = {}
    for at, key, value in read:
        totals[key] = totals.get(key, 0) + value
        yield at, key, totals[key]


def ledger(files: Iterable[Path], read: Iterable[tuple[int, int, int]]) -> dict[str, int]:
    """Compare rows of all attempts with those of a plain loop, without the last millisecond, which may be read in part."""
    wrote: Counter[tuple[int, ...]] = Counter()
    for file in files:
        text = file.read_text()
        wrote.update(tuple(map(int, line.split(","))) for line in text[: text.rfind("\n") + 1].splitlines())
    top = max((row[0] for row in wrote), default=0)
    theirs = Counter({row: count for row, count in wrote.items() if row[0] < top})
    expected = Counter[tuple[int, ...]](takewhile(lambda row: row[0] < top, sums(read)))
    return {
        "rows": sum(expected.values()),
        "lost": sum((expected - theirs).values()),
        "twice": sum((theirs - expected).values()),
    }
