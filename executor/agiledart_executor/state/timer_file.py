"""Timers of a step on disk: a table in order of position, the next ones in memory as a heap."""

import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from typing import Final

from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.entries import EntryCodec, Timer

NEAR: Final = 4_096
"""Timers that are brought into memory at once; up to twice as many stay there."""

_SHIFT: Final = 2**63


def sortable(position: Position) -> bytes:
    """Bytes that compare as positions of one length do."""
    return struct.pack(f">{len(position)}Q", *[element + _SHIFT for element in position])


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All that is written within, or nothing of it."""
    with database:
        database.execute("begin")
        yield


class TimerFile:
    """The timers of one instance of a step.

    Args:
        database: where its table is made.
        codec: of timers.
        near: how many are brought into memory at once.

    Attributes:
        near: a heap; holds all timers up to `_horizon`, and at least one while any waits.
        moved: told of timers that come out of the table and were in it when `frozen` was called last: (place, group, bytes).
    """

    def __init__(self, database: sqlite3.Connection, codec: EntryCodec, near: int = NEAR) -> None:
        self._db, self._codec, self._size = database, codec, near
        self.near: list[Timer] = []
        self._horizon: Position | None = None  # None: there are none but the near ones
        self._far: list[tuple[bytes, int, bytes]] = []
        self._moment = 0
        self.moved: Callable[[list[tuple[bytes, int, bytes]]], None] | None = None
        database.execute("create table timers (p blob primary key, g integer, v blob, n integer) without rowid")

    def push(self, timer: Timer) -> None:
        """Let a timer wait."""
        if self._horizon is not None and timer[0] > self._horizon:
            self._far.append(self._row(timer))
            if len(self._far) >= self._size:
                self._write()
            return
        heappush(self.near, timer)
        if len(self.near) > 2 * self._size:
            self.near.sort()  # by position, which no two share
            later = [self._row(timer) for timer in self.near[self._size :]]
            del self.near[self._size :]
            self._horizon = self.near[-1][0]
            self._far += later
            self._write()

    def pop(self) -> Timer:
        """Take the first timer."""
        timer = heappop(self.near)
        if not self.near and self._horizon is not None:
            self._refill()
        return timer

    def of_group(self, group: int) -> list[Timer]:
        """The timers of one key group, in order."""
        self._write()
        far = self._db.execute("select v from timers where g = ? order by p", (group,)).fetchall()
        near = [timer for timer in self.near if key_group(timer[1]) == group]
        return sorted([*near, *(self._codec.decode_timer(row[0]) for row in far)], key=_position)

    def replace_group(self, group: int, timers: list[Timer]) -> None:
        """Put these in the place of the timers of one key group."""
        self._write()
        self._db.execute("delete from timers where g = ?", (group,))
        self.near[:] = [timer for timer in self.near if key_group(timer[1]) != group]
        heapify(self.near)
        for timer in timers:
            self.push(timer)
        if not self.near and self._horizon is not None:
            self._refill()

    def by_group(self) -> None:
        """Timers of a group are going to be asked for: from now on without a look at all others."""
        self._db.execute("create index if not exists timers_by_group on timers (g)")

    def frozen(self) -> tuple[list[Timer], list[tuple[bytes, int, bytes]]]:
        """All that is not in the table, as it is now: those in memory, and those that wait to be written."""
        self._moment += 1  # what is written from now on is another's
        return self.near.copy(), self._far.copy()

    def some(self, group: int, behind: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """The next timers of a group that were in the table when `frozen` was called last, and still are: (place, bytes)."""
        return self._db.execute(
            "select p, v from timers where g = ? and p > ? and n < ? order by p limit ?",
            (group, behind, self._moment, count),
        ).fetchall()

    def _refill(self) -> None:
        self._write()
        rows = self._db.execute("select p, g, v, n from timers order by p limit ?", (self._size,)).fetchall()
        near = [self._codec.decode_timer(row[2]) for row in rows]
        if self.moved is not None:
            self.moved([(place, group, data) for place, group, data, moment in rows if moment < self._moment])
        is_all = len(rows) < self._size
        if is_all:
            self._db.execute("delete from timers")
        else:
            self._db.execute("delete from timers where p <= ?", (rows[-1][0],))
        self.near += near  # in order, so a heap
        self._horizon = None if is_all else near[-1][0]

    def _write(self) -> None:
        if self._far:
            with transaction(self._db):
                self._db.executemany(
                    "insert into timers values (?, ?, ?, ?)", [(*row, self._moment) for row in self._far]
                )
            self._far = []

    def _row(self, timer: Timer) -> tuple[bytes, int, bytes]:
        return sortable(timer[0]), key_group(timer[1]), self._codec.encode_timer(timer)


def _position(timer: Timer) -> Position:
    return timer[0]
