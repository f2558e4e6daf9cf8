"""`KeyedStore`: the entries of a keyed step, by key and key group; `MemoryStore`: all of them in memory."""

from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from agiledart_dataflow.data.partitioning import key_group
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

    def snapshot(self) -> list[tuple[int, bytes]]:
        """`snapshot_group` of all groups that hold something, in order of group."""
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
    """All entries in one dictionary. Which key is in which group is found out when a snapshot first asks, and then kept."""

    saves = False

    def __init__(self, codec: EntryCodec) -> None:
        self._codec = codec
        self._entries: dict[Any, Entry] = {}
        self._grouped: dict[int, dict[Any, None]] | None = None
        self.near: list[Timer] = []
        self.get = self._entries.get

    def save(self, key: Any, entry: Entry) -> None:
        self._entries[key] = entry
        if self._grouped is not None:
            self._grouped.setdefault(key_group(key), {})[key] = None

    def drop(self, key: Any) -> None:
        del self._entries[key]
        if self._grouped is not None:
            del self._grouped[key_group(key)][key]

    def push(self, timer: Timer) -> None:
        heappush(self.near, timer)

    def pop(self) -> Timer:
        return heappop(self.near)

    def __len__(self) -> int:
        return len(self._entries)

    def snapshot_group(self, group: int) -> bytes:
        keys = self._by_group().get(group, {})
        return self._bytes(keys, sorted((timer for timer in self.near if timer[1] in keys), key=_position))

    def snapshot(self) -> list[tuple[int, bytes]]:
        by_group = self._by_group()
        group_of = {key: group for group, keys in by_group.items() for key in keys}
        timers: dict[int, list[Timer]] = {}
        for timer in sorted(self.near, key=_position):
            timers.setdefault(group_of[timer[1]], []).append(timer)
        return [(group, self._bytes(keys, timers.get(group, []))) for group, keys in sorted(by_group.items()) if keys]

    def restore_group(self, group: int, data: bytes) -> None:
        _, entries, timers = self._codec.decode_group(data)
        keys = self._by_group().pop(group, {})
        self.near[:] = [timer for timer in self.near if timer[1] not in keys] + timers
        heapify(self.near)
        for key in keys:
            del self._entries[key]
        for plain in entries:
            self.save(*self._codec.entry(plain))

    def groups(self) -> list[int]:
        return sorted(group for group, keys in self._by_group().items() if keys)

    def close(self) -> None:
        return None

    def _bytes(self, keys: dict[Any, None], timers: list[Timer]) -> bytes:
        return self._codec.encode_group([self._codec.plain(key, self._entries[key]) for key in keys], timers)

    def _by_group(self) -> dict[int, dict[Any, None]]:
        """Keys by group, in the order in which they came."""
        if self._grouped is None:
            self._grouped = {}
            for key in self._entries:
                self._grouped.setdefault(key_group(key), {})[key] = None
        return self._grouped


def _position(timer: Timer) -> tuple[int, ...]:
    return timer[0]
