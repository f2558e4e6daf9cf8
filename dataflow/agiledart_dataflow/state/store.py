"""`KeyedStore`: the entries of a keyed step, by key and key group; `MemoryStore`: all of them in memory."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Protocol

from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot, ChangedEntriesSnapshot, FullEntriesSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, DirtyKeyTracker, StateChanges
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry, Timer
from agiledart_dataflow.state.key_groups import KeyGroupStore


class KeyedStore(KeyGroupStore, Protocol):
    """Store of a keyed step. It belongs to one instance; no other code touches it.

    Attributes:
        saves: False when entries changed in place need no `save`.
    """

    saves: bool

    @property
    def near(self) -> list[Timer]:
        """Heap of the timers that fire next, never empty while any timer waits; read `near[0]`. It stays the same list until
        key groups come or go."""
        ...

    def get(self, key: Any) -> KeyEntry | None:
        """Return the entry of a key; a caller that changes it must call `save` before the next `get`."""
        ...

    def save(self, key: Any, entry: KeyEntry) -> None:
        """Store an entry that is new or was changed."""
        ...

    def drop(self, key: Any) -> None:
        """Drop a key that exists."""
        ...

    def push(self, timer: Timer) -> None:
        """Add a timer."""
        ...

    def pop(self) -> Timer:
        """Remove and return the first timer."""
        ...

    def close(self) -> None:
        """Release its external resources."""
        ...


class MemoryStore:
    """Store with all entries in one dictionary.

    The index of keys by group is built at the first request for groups, and then maintained. That of timers is built on request,
    and is valid until the next timer comes or goes.
    """

    saves = False

    def __init__(self, codec: EntryCodec) -> None:
        self._codec = codec
        self._entries: dict[Any, KeyEntry] = {}
        self._grouped: dict[int, dict[Any, None]] | None = None
        self._timed: dict[int, list[Timer]] | None = None
        self._waiting: list[Timer] = []  # a heap
        self._gone: dict[Any, None] = {}  # keys of groups that were dropped, whose timers are still in it
        self._dirty_tracker = DirtyKeyTracker()
        self._open: FullEntriesSnapshot | ChangedEntriesSnapshot | None = None
        self._retarget: Callable[[DirtyKeys, Keep | None], None] | None = None
        self.get: Callable[[Any], KeyEntry | None] = self._entries.get

    @property
    def near(self) -> list[Timer]:
        if self._gone:
            self._forget_gone()
        return self._waiting

    def save(self, key: Any, entry: KeyEntry) -> None:
        self._entries[key] = entry
        if self._grouped is not None:
            self._grouped.setdefault(key_group(key), {})[key] = None

    def drop(self, key: Any) -> None:
        del self._entries[key]
        if self._grouped is not None:
            del self._grouped[key_group(key)][key]
        if self._open is None:  # an open snapshot relies on the dirty keys
            self._dirty_tracker.bound(len(self._entries))

    def push(self, timer: Timer) -> None:
        self._timed = None
        if self._gone:
            self._forget_gone()
        heappush(self._waiting, timer)

    def pop(self) -> Timer:
        self._timed = None
        if self._gone:
            self._forget_gone()
        return heappop(self._waiting)

    def __len__(self) -> int:
        return len(self._entries)

    def groups(self) -> list[int]:
        return sorted(group for group, keys in self._by_group().items() if keys)

    def snapshot_group(self, group: int) -> bytes:
        keys = self._by_group().get(group, {})
        return self._codec.encode_group(
            {key: self._entries[key] for key in keys}, self._timers_by_group().get(group, [])
        )

    def take_dirty_keys(self) -> DirtyKeys | None:
        if self._retarget is None:
            self._by_group()  # builds the index; from now on it is maintained as keys come
            self.get, self._retarget = tracking_lookup(self._entries.get)
        if self._open is not None:
            self._open.drop()
        keys = self._dirty_tracker.swap()
        self._retarget(self._dirty_tracker.keys, None)
        return keys

    def begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()) -> AsyncSnapshot:
        assert self._retarget is not None  # callers call `take_dirty_keys` first
        arguments = self._codec, self._entries, self._dirty_tracker.keys, self.near.copy(), self._close_groups, waste
        snapshot = (
            FullEntriesSnapshot(*arguments, keys_by_group=self._by_group())
            if lists is None
            else ChangedEntriesSnapshot(*arguments, lists=lists)
        )
        self._open = snapshot
        self._retarget(self._dirty_tracker.keys, snapshot.keep)
        return snapshot

    def _close_groups(self) -> None:
        assert self._retarget is not None  # as above
        self._open = None
        self._retarget(self._dirty_tracker.keys, None)

    def _invalidate_dirty_keys(self) -> None:
        """Stop tracking because groups come or go; finish an open snapshot first, which relies on the dirty keys."""
        if self._open is not None:
            self._open.finish()
        self._dirty_tracker.invalidate()

    def changes(self, keys: DirtyKeys) -> StateChanges:
        parts: dict[int, tuple[dict[Any, KeyEntry], list[Any], list[Timer]]] = {}
        place: dict[Any, tuple[dict[Any, KeyEntry], list[Any], list[Timer]]] = {}
        find, waiting = self._entries.get, 0
        for key in keys:
            part = place[key] = parts.setdefault(key_group(key), ({}, [], []))
            entry = find(key)
            if entry is None:
                part[1].append(key)
            else:
                part[0][key] = entry
                waiting += entry.waiting
        if waiting:
            for timer in sorted((timer for timer in self.near if timer[1] in place), key=itemgetter(0)):
                place[timer[1]][2].append(timer)
        return StateChanges([(group, self._codec.encode_changes(*parts[group])) for group in sorted(parts)])

    def apply(self, changes: StateChanges) -> None:
        decoded = [(group, self._codec.decode_changes(data)) for group, data in changes.groups]
        self._invalidate_dirty_keys()
        touched: dict[Any, None] = {}
        timers: list[Timer] = []
        for group, (entries, gone, waiting) in decoded:
            keys = self._by_group().setdefault(group, {})
            for key in gone:
                self._entries.pop(key, None)
                keys.pop(key, None)
            for plain in entries:
                key, entry = self._codec.entry(plain)
                self._entries[key] = entry
                keys[key] = touched[key] = None
            touched.update(dict.fromkeys(gone))
            timers += waiting
        self._waiting = [timer for timer in self.near if timer[1] not in touched] + timers
        heapify(self._waiting)
        self._timed = None

    def restore_group(self, group: int, data: bytes) -> None:
        entries, timers = self._codec.decode_group(data)
        self.drop_group(group)
        near = self.near
        keys = self._by_group().setdefault(group, {})
        for plain in entries:
            key, entry = self._codec.entry(plain)
            self._entries[key] = entry
            keys[key] = None
        for timer in timers:
            heappush(near, timer)
        if self._timed is not None:
            self._timed[group] = timers

    def hand_over_group(self, group: int) -> tuple[dict[Any, KeyEntry], list[Timer]]:
        """Remove a group and return its entries and timers."""
        self._invalidate_dirty_keys()
        entries = {key: self._entries[key] for key in self._by_group().get(group, {})}
        timers = self._timers_by_group().get(group, [])
        self.drop_group(group)
        return entries, timers

    def adopt_group(self, group: int, entries: dict[Any, KeyEntry], timers: list[Timer]) -> None:
        """Add a group that another store has handed over; the group must be empty here."""
        self._invalidate_dirty_keys()
        near = self.near
        self._entries.update(entries)
        self._by_group().setdefault(group, {}).update(dict.fromkeys(entries))
        for timer in timers:
            heappush(near, timer)
        if self._timed is not None:
            self._timed[group] = timers

    def drop_group(self, group: int) -> None:
        self._invalidate_dirty_keys()
        timers = self._timers_by_group().pop(group, [])
        self._gone.update((timer[1], None) for timer in timers)
        for key in self._by_group().pop(group, {}):
            del self._entries[key]

    def _forget_gone(self) -> None:
        """Remove the timers of all groups that were dropped since the last lookup of timers."""
        self._waiting = [timer for timer in self._waiting if timer[1] not in self._gone]
        heapify(self._waiting)
        self._gone = {}

    def close(self) -> None:
        if self._open is not None:
            self._open.drop()

    def _by_group(self) -> dict[int, dict[Any, None]]:
        """Return keys by group, in the order in which they came."""
        if self._grouped is None:
            self._grouped = {}
            for key in self._entries:
                self._grouped.setdefault(key_group(key), {})[key] = None
        return self._grouped

    def _timers_by_group(self) -> dict[int, list[Timer]]:
        """Return timers by group, in order of position."""
        if self._timed is None:
            group_of = {key: group for group, keys in self._by_group().items() for key in keys}
            self._timed = {}
            for timer in sorted(self.near, key=itemgetter(0)):
                key = timer[1]
                self._timed.setdefault(group_of[key] if key in group_of else key_group(key), []).append(timer)
        return self._timed


Keep = Callable[[Any], None]
"""Callback with a key before any code may change it, for the first time since tracking began anew."""


def tracking_lookup(
    find: Callable[[Any], KeyEntry | None],
) -> tuple[Callable[[Any], KeyEntry | None], Callable[[DirtyKeys, Keep | None], None]]:
    """Return a lookup like `find` that also marks the key as dirty, and a function that sets the dirty keys and the callback.

    Loops hold the lookup, so its target is a variable in its closure: a key that is already dirty costs one look into the dirty
    keys.
    """
    dirty_keys: DirtyKeys = {}
    keep: Keep | None = None

    def get(key: Any) -> KeyEntry | None:
        if key not in dirty_keys:
            dirty_keys[key] = None
            if keep is not None:
                keep(key)
        return find(key)

    def retarget(dirty_tracker: DirtyKeys, keeper: Keep | None) -> None:
        nonlocal dirty_keys, keep
        dirty_keys, keep = dirty_tracker, keeper

    return get, retarget
