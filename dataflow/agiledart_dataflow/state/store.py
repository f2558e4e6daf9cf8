"""`KeyedStore`: the entries of a keyed step, by key and key group; `MemoryStore`: all of them in memory."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from agiledart_dataflow.partitioning import key_group
from agiledart_dataflow.state.entries import Entry, EntryCodec, Timer


class KeyedStore(Protocol):
    """What a keyed step remembers. One instance has one; nobody else touches it.

    Attributes:
        near: a heap of the timers that fire next, never empty while any timer waits; look at `near[0]`.
        saves: False when entries changed in place need no `save`.
    """

    near: list[Timer]
    saves: bool

    def get(self, key: Any) -> Entry | None:
        """The entry of a key; what the caller changes in it must be told by `save` before the next `get`."""
        ...

    def save(self, key: Any, entry: Entry) -> None:
        """Keep an entry that is new or was changed."""
        ...

    def drop(self, key: Any) -> None:
        """Forget a key that is there."""
        ...

    def push(self, timer: Timer) -> None:
        """Let a timer wait."""
        ...

    def pop(self) -> Timer:
        """Take the first timer."""
        ...

    def __len__(self) -> int:
        """How many keys there are."""
        ...

    def snapshot_group(self, group: int) -> bytes:
        """Entries and timers of one key group, typed and versioned; the others may go on changing."""
        ...

    def restore_group(self, group: int, data: bytes) -> None:
        """Put a key group in the place of what is there. Raises `StateFormatError`."""
        ...

    def groups(self) -> list[int]:
        """The key groups that hold something, in order."""
        ...

    def close(self) -> None:
        """Give back what it holds outside."""
        ...


class MemoryStore:
    """All entries in one dictionary; which key is in which group is found out when a snapshot first asks."""

    saves = False

    def __init__(self, codec: EntryCodec) -> None:
        self._codec = codec
        self._entries: dict[Any, Entry] = {}
        self._group_of: dict[Any, int] = {}
        self.near: list[Timer] = []
        self.get = self._entries.get
        self.save = self._entries.__setitem__
        self.drop = self._entries.__delitem__

    def push(self, timer: Timer) -> None:
        heappush(self.near, timer)

    def pop(self) -> Timer:
        return heappop(self.near)

    def __len__(self) -> int:
        return len(self._entries)

    def snapshot_group(self, group: int) -> bytes:
        keys = self._by_group().get(group, [])
        entries = [self._codec.plain(key, self._entries[key]) for key in keys]
        return self._codec.encode_group(entries, self._timers_of(group))

    def restore_group(self, group: int, data: bytes) -> None:
        _, entries, timers = self._codec.decode_group(data)
        for key in self._by_group().get(group, []):
            del self._entries[key]
        kept = [timer for timer in self.near if self._group_of[timer[1]] != group]
        self.near[:] = kept + timers
        heapify(self.near)
        for plain in entries:
            key, entry = self._codec.entry(plain)
            self._entries[key] = entry

    def groups(self) -> list[int]:
        return sorted(self._by_group())

    def close(self) -> None:
        return None

    def _by_group(self) -> dict[int, list[Any]]:
        """Keys by group; what is known from the last time is not computed again."""
        known = self._group_of
        found: dict[Any, int] = {}
        grouped: dict[int, list[Any]] = {}
        for key in self._keys():
            group = known.get(key)
            found[key] = group = key_group(key) if group is None else group
            grouped.setdefault(group, []).append(key)
        self._group_of = found
        return grouped

    def _keys(self) -> Iterator[Any]:
        return iter(self._entries)

    def _timers_of(self, group: int) -> list[Timer]:
        return sorted((timer for timer in self.near if self._group_of[timer[1]] == group), key=_position)


def _position(timer: Timer) -> tuple[int, ...]:
    return timer[0]
