"""Snapshot of state on disk as of a moment, read and encoded step by step while rows go on; memory holds one group at a time.

    changed  keys whose newest entry was only in memory at the moment: read from where they are, unless a row has touched them
    read     the other keys in the order of the file; a key that a row touches meanwhile is encoded before that (`keep`)
    timers   those in memory, copied by reference; those in the file, except later ones; those taken out of the file since (`moved`)

A second connection with its own view would need a log of writes that grows while it reads, and a file with a name.
Source: recovery specification §11.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from agiledart_dataflow.data.partitioning import canonical, key_group
from agiledart_dataflow.state.async_snapshot import STEP_TIMERS, AsyncSnapshotBase, GroupEncoder
from agiledart_dataflow.state.dirty_keys import DirtyKeys
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry, Timer
from agiledart_dataflow.state.indexed_state_snapshot import dirty_keys_in
from agiledart_dataflow.state.plain_codec import array_header
from agiledart_kernel.limits import KEY_GROUPS

_ENTRIES: Final = 0


def place_of(key: Any) -> tuple[int, bytes]:
    """Return a key's group, and bytes that are equal exactly for equal keys: together the place of its entry in the file."""
    return key_group(key), canonical(key).encode("utf-8", "surrogatepass")


class SnapshotSource(Protocol):
    """File of entries and timers that a snapshot reads."""

    def has_group(self, group: int) -> bool:
        """Return True when the file has entries of a group."""
        ...

    def some_entries(self, group: int, behind: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Return the next entries of a group behind a place, as (place, bytes)."""
        ...

    def some_timers(self, group: int, behind: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Return the next timers of a group that were in the file when the snapshot was opened, as (place, bytes)."""
        ...

    def entry_or_bytes(self, key: Any) -> KeyEntry | bytes | None:
        """Return the entry of a key, or its bytes, without moving it; None when there is none."""
        ...


class SqliteSnapshot(AsyncSnapshotBase):
    """Snapshot of all groups, or of some keys of them.

    Args:
        codec: of entries and timers.
        filed: file that holds them.
        touched: keys that rows have looked up since the moment.
        changed, gone: keys whose newest entries, or whose deletion, were not in the file at the moment; copies.
        timers: copy of those in memory; the snapshot consumes it.
        lists: lists of dirty keys to which the snapshot is limited; None for all keys.
        count: number of all keys.
        closed, waste: as in `AsyncSnapshotBase`.
    """

    def __init__(
        self,
        codec: EntryCodec,
        filed: SnapshotSource,
        touched: Container[Any],
        changed: DirtyKeys,
        gone: Container[Any],
        timers: list[Timer],
        lists: Sequence[DirtyKeys] | None,
        count: int,
        closed: Callable[[], None],
        waste: Iterable[DirtyKeys],
    ) -> None:
        self._arrays = 2 if lists is None else 3
        super().__init__(closed, waste)
        self._codec, self._filed, self._touched, self._gone, self._lists = codec, filed, touched, gone, lists
        self._changed, self._timers = changed, timers
        self._count = count if lists is None else sum(map(len, lists))
        self._met: dict[int, dict[Any, None]] = {}  # group → keys that need not be read from the file any more
        self._moved: dict[int, list[bytes]] = {}
        self._is_done = bytearray(KEY_GROUPS)  # groups whose entries are all encoded
        self._is_given = bytearray(KEY_GROUPS)  # groups whose timers are encoded, too
        self._group = -1  # the group that is being read; the next fields say how far
        self._behind = self._timer_behind = b""
        self._has_timers = True

    def keep(self, key: Any, entry: KeyEntry | None) -> None:
        """Encode a key's entry, None for no entry, before a row may change it."""
        group, place = place_of(key)
        if self._is_done[group] or (self._lists is not None and not self._is_asked(key)):
            return
        met = self._met.setdefault(group, {})
        if key in met or (self._lists is None and group == self._group and place <= self._behind):
            return
        met[key] = None
        self._take(group, key, entry)

    def moved(self, rows: Iterable[tuple[bytes, int, bytes]]) -> None:
        """Keep timers that were in the file at the moment and are taken out of it now, as (place, group, bytes)."""
        for place, group, data in rows:
            if not self._is_given[group] and not (group == self._group and place <= self._timer_behind):
                self._moved.setdefault(group, []).append(data)

    def _is_asked(self, key: Any) -> bool:
        for keys in self._lists or ():  # noqa: SIM110  called for each key, so without the cost of a generator
            if key in keys:
                return True
        return False

    def _take(self, group: int, key: Any, entry: KeyEntry | bytes | None) -> None:
        """Encode an entry, or the deletion of its key."""
        if entry is None:
            if self._lists is not None:
                self.size += self._part(group).put(1, 1, self._codec.encode_keys([key]))
                self.keys += 1
            return
        if isinstance(entry, bytes):
            _, waiting, item = self._codec.item_of(entry)
        else:
            waiting, item = entry.waiting, self._codec.encode_entries([(key, entry)])
        self._put(group, waiting, item)

    def _put(self, group: int, waiting: int, item: tuple[bytes, bool]) -> None:
        size = self._part(group).put(_ENTRIES, 1, item)
        self._has_timers |= waiting > 0
        self.size += size
        self.keys += 1
        self._mean = (7 * self._mean + size) // 8 + 1

    def _all_steps(self) -> Iterator[None]:
        timers: dict[int, list[Timer]] = {}
        while self._timers:
            for timer in self._timers[-STEP_TIMERS:]:
                if self._lists is None or self._is_asked(timer[1]):
                    timers.setdefault(key_group(timer[1]), []).append(timer)
            del self._timers[-STEP_TIMERS:]
            yield
        parted: dict[int, list[Any]] = {}
        for keys in dirty_keys_in([self._changed] if self._lists is None else self._lists):
            for key in keys:
                parted.setdefault(key_group(key), []).append(key)
            yield
        there = {group for group in range(KEY_GROUPS) if self._lists is None and self._filed.has_group(group)}
        groups = sorted(there | set(parted) | set(self._parts))
        self._ready.append(array_header(len(groups)))
        for group in groups:
            self._group, self._behind, self._timer_behind = group, b"", b""
            self._has_timers = self._lists is None or bool(self._parts.get(group))
            part = self._part(group)
            yield from self._listed_steps(group, parted.pop(group, []))
            if self._lists is None:
                yield from self._file_steps(group)
            self._is_done[group] = 1
            if self._has_timers:
                yield from self._timer_steps(group, part, timers.pop(group, []))
            self._is_given[group] = 1
            self._moved.pop(group, None)
            self._met.pop(group, None)
            del self._parts[group]
            self._ready += part.pieces(group)
            yield

    def _listed_steps(self, group: int, keys: list[Any]) -> Iterator[None]:
        met = self._met.setdefault(group, {})
        for chunk in self._chunks(iter(keys)):
            for key in chunk:
                if key not in self._touched and key not in met:
                    met[key] = None
                    self._take(group, key, self._filed.entry_or_bytes(key))
            yield

    def _file_steps(self, group: int) -> Iterator[None]:
        met = self._met[group]
        while rows := self._filed.some_entries(group, self._behind, self._step_keys()):
            for _, data in rows:
                key, waiting, item = self._codec.item_of(data)
                if key not in self._touched and key not in met and key not in self._gone:
                    self._put(group, waiting, item)
            self._behind = rows[-1][0]
            yield

    def _timer_steps(self, group: int, part: GroupEncoder, timers: list[Timer]) -> Iterator[None]:
        for chunk in self._chunks(iter(timers)):
            self.size += part.put(self._arrays - 1, len(chunk), self._codec.encode_timers(chunk))
            yield
        while rows := self._filed.some_timers(group, self._timer_behind, STEP_TIMERS):
            self._put_timers(part, [data for _, data in rows])
            self._timer_behind = rows[-1][0]
            yield
        moved = iter(self._moved.pop(group, []))
        while rows_moved := list(islice(moved, STEP_TIMERS)):
            self._put_timers(part, rows_moved)
            yield

    def _put_timers(self, part: GroupEncoder, encoded: list[bytes]) -> None:
        for data in encoded:
            if self._lists is None or self._is_asked(self._codec.decode_timer(data)[1]):
                self.size += part.put(self._arrays - 1, 1, (data, False))
