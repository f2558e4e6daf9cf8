"""Store of a keyed step's entries and timers in an SQLite file, with a cache of the used ones in memory.

The file is scratch space: its name is deleted as soon as it is open, so it does not outlive the process. Snapshots of key groups
survive a node; they are the same bytes as those of the in-memory store.

SQLite comes with Python. Measured on this machine, µs for one of 200,000 keys, insert / get / replace: SQLite 4 / 7 / 9, LMDB
0.7 / 2 / 3; but LMDB is another native package for each kind of node, and needs as much address space as it has data, which
32-bit boards lack.
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.state.dirty_keys import DirtyKeys, DirtyKeyTracker, StateChanges
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry, PlainEntry, Timer
from agiledart_dataflow.state.indexed_state_snapshot import all_of
from agiledart_dataflow.state.store import Keep, tracking_lookup
from agiledart_executor.state.sqlite_snapshot import SqliteSnapshot, place_of
from agiledart_executor.state.timer_file import TimerFile, transaction
from agiledart_kernel.errors import OperationFailed

CACHED_KEYS: Final = 20_000
"""Entries in memory; a tenth of them is written to the file when there are more."""

_PRAGMAS: Final = (
    "journal_mode=MEMORY",  # without a journal, a write that fails would leave an unreadable file
    "synchronous=OFF",
    "locking_mode=EXCLUSIVE",
    "cache_size=-4096",
    "temp_store=MEMORY",
)


class SqliteStore:
    """`KeyedStore` on disk.

    Args:
        step: name, for messages.
        codec: of its entries.
        directory: of the file; created when it is missing.
        cached_keys: entries that stay in memory.

    Raises:
        OperationFailed: from any method, when the disk fails. Nothing is lost: the next write includes what was not written.
        UserCodeError: from any method, for a state or a timer that cannot be encoded; the text names its key.
    """

    saves = True

    def __init__(self, step: str, codec: EntryCodec, directory: Path, cached_keys: int = CACHED_KEYS) -> None:
        self._step, self._codec, self._limit = step, codec, max(1, cached_keys)
        self._cached: dict[Any, KeyEntry] = {}
        self._changed: dict[Any, None] = {}
        self._dropped: dict[Any, None] = {}
        self._count = 0
        self._dirty_tracker = DirtyKeyTracker()
        self._open: SqliteSnapshot | None = None
        self._retarget_dirty_keys: Callable[[DirtyKeys, Keep | None], None] | None = None
        self.get: Callable[[Any], KeyEntry | None] = self._get
        with self._translated_errors():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=directory, prefix="state-", suffix=".db") as file:
                self._db = sqlite3.connect(file.name, isolation_level=None)
                for pragma in _PRAGMAS:
                    self._db.execute(f"pragma {pragma}")
                self._db.execute("create table entries (g integer, k blob, v blob, primary key (g, k)) without rowid")
                self._timers = TimerFile(self._db, codec)
        self.near: list[Timer] = self._timers.near

    def _get(self, key: Any) -> KeyEntry | None:
        entry = self._cached.pop(key, None)
        if entry is None:
            if key in self._dropped:
                return None
            with self._translated_errors():
                row = self._db.execute("select v from entries where g = ? and k = ?", place_of(key)).fetchone()
            if row is None:
                return None
            entry = self._codec.decode(row[0])[1]
            self._evict_entries()
        self._cached[key] = entry  # the most recently used entry stands last
        return entry

    def save(self, key: Any, entry: KeyEntry) -> None:
        if key not in self._cached:
            self._evict_entries()
            self._cached[key] = entry
            self._count += 1
        self._changed[key] = None
        self._dropped.pop(key, None)

    def drop(self, key: Any) -> None:
        del self._cached[key]
        self._changed.pop(key, None)
        self._dropped[key] = None
        self._count -= 1
        if self._open is None:  # an open snapshot relies on the dirty keys
            self._dirty_tracker.bound(self._count)
        if len(self._dropped) >= self._limit:  # else short-lived keys would fill the memory with deletions
            with self._translated_errors():
                self._write([])

    def push(self, timer: Timer) -> None:
        with self._translated_errors():
            self._timers.push(timer)

    def pop(self) -> Timer:
        with self._translated_errors():
            return self._timers.pop()

    def __len__(self) -> int:
        return self._count

    def snapshot_group(self, group: int) -> bytes:
        with self._translated_errors():
            self._write(list(self._cached))
            rows = self._db.execute("select v from entries where g = ? order by k", (group,)).fetchall()
            entries = dict(self._codec.decode(row[0]) for row in rows)
            return self._codec.encode_group(entries, self._timers.of_group(group))

    def restore_group(self, group: int, data: bytes) -> None:
        entries, timers = self._codec.decode_group(data)
        self._replace_group(group, entries, timers)

    def drop_group(self, group: int) -> None:
        self._replace_group(group, [], [])

    def take_dirty_keys(self) -> DirtyKeys | None:
        if self._retarget_dirty_keys is None:
            self.get, self._retarget_dirty_keys = tracking_lookup(self._get)
        if self._open is not None:
            self._open.drop()
        keys = self._dirty_tracker.swap()
        self._retarget_dirty_keys(self._dirty_tracker.keys, None)
        return keys

    def begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()) -> SqliteSnapshot:
        assert self._retarget_dirty_keys is not None  # the caller calls `take_dirty_keys` first
        with self._translated_errors():
            timers, unwritten = self._timers.frozen()
        given = (
            self._codec,
            self,
            self._dirty_tracker.keys,
            self._changed.copy(),
            self._dropped.copy(),
            timers,
            lists,
            self._count,
        )
        opened = SqliteSnapshot(*given, self._close_groups, waste)
        opened.moved(unwritten)
        self._open, self._timers.moved = opened, opened.moved
        self._retarget_dirty_keys(self._dirty_tracker.keys, lambda key: opened.keep(key, self._get(key)))
        return opened

    def _close_groups(self) -> None:
        assert self._retarget_dirty_keys is not None  # as above
        self._open = self._timers.moved = None
        self._retarget_dirty_keys(self._dirty_tracker.keys, None)

    def _invalidate_dirty_keys(self) -> None:
        """Finish the open snapshot, which relies on the dirty keys, and invalidate these, because groups come or go."""
        if self._open is not None:
            self._open.finish()
        self._dirty_tracker.invalidate()

    def has_group(self, group: int) -> bool:
        with self._translated_errors():
            return self._db.execute("select 1 from entries where g = ? limit 1", (group,)).fetchone() is not None

    def some_entries(self, group: int, behind: bytes, count: int) -> list[tuple[bytes, bytes]]:
        with self._translated_errors():
            return self._db.execute(
                "select k, v from entries where g = ? and k > ? order by k limit ?", (group, behind, count)
            ).fetchall()

    def some_timers(self, group: int, behind: bytes, count: int) -> list[tuple[bytes, bytes]]:
        with self._translated_errors():
            return self._timers.some(group, behind, count)

    def entry_or_bytes(self, key: Any) -> KeyEntry | bytes | None:
        if key in self._cached or key in self._dropped:
            return self._cached.get(key)
        with self._translated_errors():
            row = self._db.execute("select v from entries where g = ? and k = ?", place_of(key)).fetchone()
        return None if row is None else row[0]

    def changes(self, keys: DirtyKeys) -> StateChanges:
        return StateChanges(all_of(self.begin_snapshot([keys])))

    def apply(self, changes: StateChanges) -> None:
        self._invalidate_dirty_keys()
        for group, data in changes.groups:
            plain, gone, timers = self._codec.decode_changes(data)
            entries = [self._codec.entry(encoded) for encoded in plain]
            touched = dict.fromkeys([*(key for key, _ in entries), *gone])
            for key in gone:
                if self.get(key) is not None:
                    self.drop(key)
            for key, entry in entries:
                self.get(key)  # loads it into the cache, so that it is counted once
                self.save(key, entry)
                self._cached[key] = entry
            with self._translated_errors():
                untouched = [timer for timer in self._timers.of_group(group) if timer[1] not in touched]
                self._timers.replace_group(group, sorted([*untouched, *timers], key=itemgetter(0)))
        self._dirty_tracker.invalidate()

    def _replace_group(self, group: int, entries: list[PlainEntry], timers: list[Timer]) -> None:
        self._invalidate_dirty_keys()
        with self._translated_errors():
            self._write(list(self._cached))
            rows = [self._row(*self._codec.entry(plain)) for plain in entries]
            with transaction(self._db):
                gone = self._db.execute("delete from entries where g = ?", (group,)).rowcount
                self._db.executemany("insert into entries values (?, ?, ?)", rows)
            if gone:  # all cached keys are in the file, too, by now
                self._cached = {key: entry for key, entry in self._cached.items() if key_group(key) != group}
            self._count += len(rows) - gone
            if gone or timers:  # a group without entries has no timers, either
                self._timers.replace_group(group, timers)

    def groups(self) -> list[int]:
        with self._translated_errors():
            self._timers.by_group()
            self._write(list(self._cached))
            return [row[0] for row in self._db.execute("select distinct g from entries order by g")]

    def close(self) -> None:
        if self._open is not None:
            self._open.drop()
        self._db.close()

    def _evict_entries(self) -> None:
        if len(self._cached) < self._limit:
            return
        oldest = list(self._cached)[: max(1, self._limit // 10)]
        with self._translated_errors():
            self._write(oldest)
        for key in oldest:
            del self._cached[key]

    def _write(self, keys: list[Any]) -> None:
        """Write changes of these keys, and all deletions, to the file. They count as written only when all of them are."""
        changed = [key for key in keys if key in self._changed]
        if not changed and not self._dropped:
            return
        gone = [place_of(key) for key in self._dropped]
        rows = [self._row(key, self._cached[key]) for key in changed]
        with transaction(self._db):
            self._db.executemany("delete from entries where g = ? and k = ?", gone)
            self._db.executemany("insert or replace into entries values (?, ?, ?)", rows)
        self._dropped = {}
        for key in changed:
            del self._changed[key]

    def _row(self, key: Any, entry: KeyEntry) -> tuple[int, bytes, bytes]:
        return (*place_of(key), self._codec.encode(key, entry))

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise OperationFailed(f"{self._step}: its state on disk cannot be kept: {error}") from None
