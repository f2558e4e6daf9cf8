"""Snapshots of key groups as of one moment, encoded in small steps while rows flow: copy on write by key.

`AsyncSnapshot` gives the bytes of `list[tuple[int, bytes]]` in MessagePack, equal to those of a snapshot made in one go, in pieces:
an array is its header and its items, so parts that were encoded separately are concatenated. A key that is about to change is
encoded first (`keep`), once: the store reports each key at its first lookup since the moment. Later changes are not in the
snapshot.

`FullEntriesSnapshot` goes through the groups in order and gives each when it is done; `ChangedEntriesSnapshot` goes through lists
of keys. Timers are not ordered by key, so they are copied by reference at the beginning and first split by group. Source: recovery
specification §11.
"""

from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from agiledart_dataflow.data.partitioning import key_group
from agiledart_dataflow.state.dirty_keys import DirtyKeys
from agiledart_dataflow.state.entries import EntryCodec, KeyEntry, Timer
from agiledart_dataflow.state.plain_codec import array_header, begin_of, bytes_header, int_bytes
from agiledart_kernel.limits import KEY_GROUPS

STEP_BYTES: Final = 32 << 10
"""Bytes that a step encodes, about: a tenth of a millisecond. One key is one piece, whatever its size."""

STEP_KEYS: Final = 32
"""Most keys that a step encodes; they may be small, and each is looked up."""

STEP_TIMERS: Final = 256
"""Timers that a step splits by group."""

STEP_FREED: Final = 1_024
"""References that a step releases: to free hundreds of thousands takes milliseconds, too."""


class AsyncSnapshot(Protocol):
    """Snapshot of key groups as of when it began.

    Attributes:
        keys, size: number of keys encoded so far, and their bytes.
        left: number of keys that it may still have to encode.
        is_over: all of it is encoded, or it was cancelled.
        is_dropped: it was cancelled.
        common: of changes, as `StateChanges.common`.
    """

    keys: int
    size: int
    is_over: bool
    is_dropped: bool
    common: bytes

    @property
    def left(self) -> int: ...

    def step(self) -> bool:
        """Encode a little more; False when nothing is left. Raises `UserCodeError` for a state that is not plain data."""
        ...

    def taken(self) -> list[bytes]:
        """Return the pieces that became ready since the last call, in order."""
        ...

    def drop(self) -> None:
        """Cancel the snapshot."""
        ...


class GroupEncoder:
    """Encoded items of one group, of one array after the other, and their numbers.

    Args:
        arrays: number of arrays; a single one is the data itself, several are wrapped in an array.
    """

    __slots__ = ("counts", "is_wide", "items", "size")

    def __init__(self, arrays: int) -> None:
        self.items: list[list[bytes]] = [[] for _ in range(arrays)]
        self.counts = [0] * arrays
        self.size = 0
        self.is_wide = False

    def put(self, array: int, count: int, encoded: tuple[bytes, bool]) -> int:
        """Append encoded items to an array; return the number of bytes."""
        data, is_wide = encoded
        self.items[array].append(data)
        self.counts[array] += count
        self.size += len(data)
        self.is_wide |= is_wide
        return len(data)

    def pieces(self, group: int) -> list[bytes]:
        """Return (group, bytes) in MessagePack, in pieces."""
        heads = [array_header(count) for count in self.counts]
        begin = begin_of(is_wide=self.is_wide) + (array_header(len(heads)) if len(heads) > 1 else b"")
        size = len(begin) + sum(map(len, heads)) + self.size
        pieces = [array_header(2) + int_bytes(group) + bytes_header(size) + begin]
        for head, items in zip(heads, self.items, strict=True):
            pieces.append(head)
            pieces += items
        return pieces


class AsyncSnapshotBase:
    """Base of all snapshots that are encoded in small steps.

    Args:
        closed: callback for when the snapshot is over.
        waste: key lists to free when all is encoded.
    """

    _arrays: int

    def __init__(self, closed: Callable[[], None], waste: Iterable[DirtyKeys]) -> None:
        self._closed, self._waste = closed, list(waste)
        self._parts: dict[int, GroupEncoder] = {}  # groups that are partly encoded and not given yet
        self._passed: dict[Any, None] = {}  # keys that are done, where no other record says so
        self._ready: list[bytes] = []
        self._steps = self._encode_and_free()
        self._mean = STEP_BYTES  # bytes of one key; the first guess lets a step encode one key
        self.keys = self.size = 0
        self._count = 0  # of keys, at most
        self.is_over = self.is_dropped = False
        self.common = b""

    @property
    def left(self) -> int:
        """See `AsyncSnapshot`."""
        return max(0, self._count - self.keys)

    def step(self) -> bool:
        """Encode a little more; see `AsyncSnapshot`."""
        if not self.is_over and next(self._steps, self) is self:
            self._end()
        return not self.is_over

    def taken(self) -> list[bytes]:
        """Return the ready pieces; see `AsyncSnapshot`."""
        ready, self._ready = self._ready, []
        return ready

    def finish(self) -> None:
        """Encode the rest at once, before groups come or go."""
        while self.step():
            pass

    def drop(self) -> None:
        """Cancel the snapshot; see `AsyncSnapshot`."""
        if not self.is_over:
            self.is_dropped = True
            self._ready = []
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._steps.close()
        self._closed()

    def _encode_and_free(self) -> Generator[None, None, None]:
        yield from self._all_steps()
        self._count = 0
        for used in (self._passed, *self._waste):
            while used:
                for _ in range(min(len(used), STEP_FREED)):
                    used.popitem()
                yield

    def _all_steps(self) -> Iterator[None]:
        raise NotImplementedError

    def _part(self, group: int) -> GroupEncoder:
        part = self._parts.get(group)
        if part is None:
            part = self._parts[group] = GroupEncoder(self._arrays)
        return part

    def _chunks(self, keys: Iterator[Any]) -> Iterator[list[Any]]:
        """Yield the keys of one step each, as many as the mean size of the last ones allows."""
        while chunk := list(islice(keys, self._step_keys())):
            yield chunk

    def _step_keys(self) -> int:
        return max(1, min(STEP_KEYS, STEP_BYTES // self._mean))


_ENTRIES = 0


class _EntriesSnapshot(AsyncSnapshotBase):
    """Snapshot of entries with timers.

    Args:
        codec: of entries and timers.
        entries: of the store; they keep changing.
        touched: keys that were looked up since the moment: they are encoded, or did not exist.
        timers: a copy, which the snapshot consumes.
        closed, waste: as of every `AsyncSnapshotBase`.
    """

    def __init__(
        self,
        codec: EntryCodec,
        entries: Mapping[Any, KeyEntry],
        touched: Container[Any],
        timers: list[Timer],
        closed: Callable[[], None],
        waste: Iterable[DirtyKeys],
    ) -> None:
        super().__init__(closed, waste)
        self._codec, self._entries, self._touched, self._timers = codec, entries, touched, timers

    def _encode(self, part: GroupEncoder, items: list[tuple[Any, KeyEntry]]) -> None:
        size = part.put(_ENTRIES, len(items), self._codec.encode_entries(items))
        self._mean = 1 + size // len(items)
        self.keys += len(items)
        self.size += size

    def _timer_steps(self, part: GroupEncoder, timers: list[Timer]) -> Iterator[None]:
        """Encode the timers of a group; they come after everything else."""
        for start in range(0, len(timers), STEP_KEYS):
            chunk = timers[start : start + STEP_KEYS]
            self.size += part.put(self._arrays - 1, len(chunk), self._codec.encode_timers(chunk))
            yield


class FullEntriesSnapshot(_EntriesSnapshot):
    """Snapshot of all groups.

    Args:
        keys_by_group: of the store; keys come and go in it.
    """

    _arrays = 2

    def __init__(self, *given: Any, keys_by_group: Mapping[int, Mapping[Any, None]]) -> None:
        super().__init__(*given)
        self._count = sum(map(len, keys_by_group.values()))
        self._keys_by_group = keys_by_group
        self._groups = sorted(group for group, keys in keys_by_group.items() if keys)
        self._is_done = bytearray(KEY_GROUPS)

    def keep(self, key: Any) -> None:
        """Encode a key before it may change."""
        group = key_group(key)
        entry = self._entries.get(key)
        if entry is not None and not self._is_done[group] and key not in self._passed:
            self._encode(self._part(group), [(key, entry)])

    def _all_steps(self) -> Iterator[None]:
        timed: dict[int, list[Timer]] = {}
        while self._timers:
            for timer in self._timers[-STEP_TIMERS:]:
                timed.setdefault(key_group(timer[1]), []).append(timer)
            del self._timers[-STEP_TIMERS:]
            yield
        self._ready.append(array_header(len(self._groups)))
        touched, entries = self._touched, self._entries
        for group in self._groups:
            part = self._part(group)
            for chunk in self._chunks(iter(list(self._keys_by_group.get(group, ())))):
                items = [(key, entries[key]) for key in chunk if key not in touched]
                self._passed.update(dict.fromkeys(chunk))
                if items:
                    self._encode(part, items)
                yield
            yield from self._timer_steps(part, timed.pop(group, []))
            self._is_done[group] = 1
            self._passed.clear()
            del self._parts[group]
            self._ready += part.pieces(group)
            yield


class ChangedEntriesSnapshot(_EntriesSnapshot):
    """Snapshot of dirty keys, and of those among them that are gone.

    Args:
        lists: of keys; no code writes into them any more.
    """

    _arrays = 3
    _gone = 1

    def __init__(self, *given: Any, lists: Sequence[DirtyKeys]) -> None:
        super().__init__(*given)
        self._count = sum(map(len, lists))
        self._lists = lists
        self._has_timers = False

    def keep(self, key: Any) -> None:
        """Encode a key before it may change."""
        if key not in self._passed and self._is_asked(key):
            self._take([key])

    def _is_asked(self, key: Any) -> bool:
        for keys in self._lists:  # noqa: SIM110  for each key and timer: without a generator
            if key in keys:
                return True
        return False

    def _take(self, keys: Iterable[Any]) -> None:
        """Encode the present state of keys, or the fact that they are gone."""
        by_group: dict[int, list[tuple[Any, KeyEntry]]] = {}
        for key in keys:
            self._passed[key] = None
            group = key_group(key)
            entry = self._entries.get(key)
            if entry is None:
                part = self._part(group)
                self.size += part.put(self._gone, 1, self._codec.encode_keys([key]))
            else:
                self._has_timers |= entry.waiting > 0
                by_group.setdefault(group, []).append((key, entry))
        for group, items in by_group.items():
            self._encode(self._part(group), items)

    def _all_steps(self) -> Iterator[None]:
        touched = self._touched
        for keys in self._lists:
            for chunk in self._chunks(iter(keys)):
                self._take([key for key in chunk if key not in touched and key not in self._passed])
                yield
        timed: dict[int, list[Timer]] = {}
        while self._timers:
            if self._has_timers:
                for timer in self._timers[-STEP_TIMERS:]:
                    if self._is_asked(timer[1]):
                        timed.setdefault(key_group(timer[1]), []).append(timer)
            del self._timers[-STEP_TIMERS:]
            yield
        self._ready.append(array_header(len(self._parts)))
        for group in sorted(self._parts):
            part = self._parts[group]
            yield from self._timer_steps(part, timed.pop(group, []))
            self._ready += part.pieces(group)
            yield
