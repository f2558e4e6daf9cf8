"""Timers of a step on disk: a table ordered by position, with the next ones in memory as a heap."""

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
"""Timers that are loaded into memory at once; up to twice as many stay there."""

_SHIFT: Final = 2**63


def sortable(position: Position) -> bytes:
    """Return bytes that compare like positions of one length."""
    return struct.pack(f">{len(position)}Q", *[part + _SHIFT for part in position])


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the writes of the block in one transaction."""
    with database:
        database.execute("begin")
        yield


class TimerFile:
    """Timers of one instance of a step.

    Args:
        database: that gets its table.
        codec: of timers.
        near: number of timers that are loaded into memory at once.

    Attributes:
        near: heap of all timers up to `_horizon`; it holds at least one while any timer waits.
        moved: called with timers that leave the table and were in it at the last call of `frozen`, as (place, group, bytes).
    """

    def __init__(self, database: sqlite3.Connection, codec: EntryCodec, near: int = NEAR) -> None:
        self._db, self._codec, self._size = database, codec, near
        self.near: list[Timer] = []
        self._horizon: Position | None = None  # None when all timers are in memory
        self._far: list[tuple[bytes, int, bytes]] = []
        self._moment = 0
        self.moved: Callable[[list[tuple[bytes, int, bytes]]], None] | None = None
        database.execute("create table timers (p blob primary key, g integer, v blob, n integer) without rowid")

    def push(self, timer: Timer) -> None:
        """Add a timer."""
        if self._horizon is not None and timer[0] > self._horizon:
            self._far.append(self._row(timer))
            if len(self._far) >= self._size:
                self._write()
            return
        heappush(self.near, timer)
        if len(self.near) > 2 * self._size:
            self.near.sort()  # by position, which is unique
            later = [self._row(timer) for timer in self.near[self._size :]]
            del self.near[self._size :]
            self._horizon = self.near[-1][0]
            self._far += later
            self._write()

    def pop(self) -> Timer:
        """Remove and return the first timer."""
        timer = heappop(self.near)
        if not self.near and self._horizon is not None:
            self._refill()
        return timer

    def of_group(self, group: int) -> list[Timer]:
        """Return the timers of one key group, in order."""
        self._write()
        far = self._db.execute("select v from timers where g = ? order by p", (group,)).fetchall()
        near = [timer for timer in self.near if key_group(timer[1]) == group]
        return sorted([*near, *(self._codec.decode_timer(row[0]) for row in far)], key=_position)

    def replace_group(self, group: int, timers: list[Timer]) -> None:
        """Replace the timers of one key group."""
        self._write()
        self._db.execute("delete from timers where g = ?", (group,))
        self.near[:] = [timer for timer in self.near if key_group(timer[1]) != group]
        heapify(self.near)
        for timer in timers:
            self.push(timer)
        if not self.near and self._horizon is not None:
            self._refill()

    def by_group(self) -> None:
        """Create an index by group, so that later reads of a group do not scan all timers."""
        self._db.execute("create index if not exists timers_by_group on timers (g)")

    def frozen(self) -> tuple[list[Timer], list[tuple[bytes, int, bytes]]]:
        """Return copies of the timers outside the table: those in memory, and those that wait to be written."""
        self._moment += 1  # timers that are written from now on do not belong to the snapshot
        return self.near.copy(), self._far.copy()

    def some(self, group: int, behind: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Return the next timers of a group that were in the table at the last `frozen` and still are, as (place, bytes)."""
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
        self.near += near  # sorted, so it is a heap
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
