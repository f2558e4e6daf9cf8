"""What Flink's sink wrote, a file for each life of the job: when the next result came, and which rows are lost or there again.

A sink that is not transactional takes nothing back. So the next result after a failure is the first row of a later life whose
time is beyond that of every row of the lives before: rows that come again are no results, and rows that were under way at the
failure do not count, as with a file that is cut back.
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
    """Which life wrote it."""
    return int(file.stem.rpartition("-")[2])


@dataclass
class AttemptRows:
    """Rows as they come, by life.

    Attributes:
        highest: time of the latest row of the lives before the present one, in ms of the input; -1 before any.
        latest: time of the latest row of all.
        began: life → when its first row came.
        beyond: life → when its first row came that is beyond all before.
    """

    highest: int = -1
    latest: int = -1
    began: dict[int, float] = field(default_factory=dict)
    beyond: dict[int, float] = field(default_factory=dict)
    _attempt: int = -1

    def saw(self, attempt: int, times: Iterable[int], now: float) -> None:
        """Rows of a life with these times came. Those of an earlier life than the present one raise its mark."""
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
        """Seconds from a failure to the first row beyond; None: not yet."""
        came = [when for attempt, when in list(self.beyond.items()) if self.began[attempt] >= since]
        return min(came) - since if came else None


class AttemptRowsWatch(PollingThread):
    """Reads the files of a folder as they grow while it is entered; a context manager."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LOOK_SECONDS)
        self.attempt_rows = AttemptRows()
        self._folder = folder
        self._read: dict[Path, int] = {}

    def next_result(self, since: float) -> float | None:
        """As `AttemptRows` has it."""
        return self.attempt_rows.next_result(since)

    def has_come(self, at: int) -> bool | None:
        """Whether a row of this time or a later one has come; None: not yet."""
        return True if self.attempt_rows.latest >= at else None

    def look(self) -> None:
        """Read what has been added since the last look."""
        for file in sorted(self._folder.glob("out-*.csv"), key=number_of):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                text = lines.read()
            whole = text[: text.rfind(b"\n") + 1]  # the last line may be half there
            if whole:
                self._read[file] = self._read.get(file, 0) + len(whole)
                times = [int(line.split(b",", 1)[0]) for line in whole.splitlines()]
                self.attempt_rows.saw(number_of(file), times, time.monotonic())


def readings(keys: int, load_ms: int, rows_a_second: int) -> Iterator[tuple[int, int, int]]:
    """The input of the job without end: (time in ms, key, value)."""
    for number in range(keys):
        yield number * load_ms // keys, number, number % 101
    number = 0
    while True:
        yield load_ms + number * 1_000 // rows_a_second, number * 7_919 % keys, number % 101
        number += 1


def sums(read: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """What a plain loop makes of it: (time, key, sum of the key so far)."""
    totals: dict[int, int] = {}
    for at, key, value in read:
        totals[key] = totals.get(key, 0) + value
        yield at, key, totals[key]


def ledger(files: Iterable[Path], read: Iterable[tuple[int, int, int]]) -> dict[str, int]:
    """Rows of all lives beside those of a plain loop. The last millisecond, of which a part may have been read, is left out."""
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
