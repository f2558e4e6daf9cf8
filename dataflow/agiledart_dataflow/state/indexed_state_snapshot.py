"""`IndexedStateSnapshot`: state in dictionaries of its own as of one moment, encoded in small steps while rows flow.

    split    all keys, or the dirty ones, are assigned to their groups, with the places of their entries
    encoded  group by group: each entry as it is now, or its copy; the group is given, and its copies are dropped

A key that is about to change is copied first (`keep`), as plain data: the state reports each key at its first lookup since the
moment. State that goes as a whole, as a closing window, need not be reported: the snapshot holds it until it is encoded.
Source: recovery specification §11.
"""

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final, Generic, TypeVar

import msgspec

from agiledart_dataflow.state.async_snapshot import AsyncSnapshot, AsyncSnapshotBase
from agiledart_dataflow.state.dirty_keys import DirtyKeys
from agiledart_dataflow.state.plain_codec import PlainCodec, array_header
from agiledart_kernel.limits import KEY_GROUPS

T = TypeVar("T")

STEP_INDEXED: Final = 512
"""Keys that a step assigns to their groups: below half a millisecond where no group is remembered."""

STEP_LISTED: Final = 32_768
"""Keys of one dictionary that are listed at once."""

Run = tuple[Any, Sequence[Any], Iterable[int]]
"""(common owner of these entries, their keys, a number for each)."""

_GROUPS: msgspec.msgpack.Decoder[list[tuple[int, bytes]]] = msgspec.msgpack.Decoder(list[tuple[int, bytes]])


class IndexedStateSnapshot(AsyncSnapshotBase):
    """Snapshot of all of a state, or of the changes of some keys.

    Args:
        codec: of a group's list of entries.
        group_of: key → group.
        lists: of dirty keys to which it is limited; None: all keys.
        closed, waste: as of every `AsyncSnapshotBase`.
    """

    _arrays = 1

    def __init__(
        self,
        codec: PlainCodec,
        group_of: Mapping[Any, int],
        lists: Sequence[DirtyKeys] | None,
        closed: Callable[[], None],
        waste: Iterable[DirtyKeys],
    ) -> None:
        super().__init__(closed, waste)
        self._codec, self._group_of, self._lists = codec, group_of, lists
        self._kept: dict[int, dict[Any, Any]] = {}
        self._is_done = bytearray(KEY_GROUPS)

    @abstractmethod
    def _runs(self) -> Iterator[Run]:
        """Yield all keys as of the moment, in small pieces."""

    @abstractmethod
    def _copy(self, key: Any) -> Any:
        """Return the data that `_entries` needs of a key that is about to change; None if the key does not exist."""

    @abstractmethod
    def _entries(self, of: Any, places: Iterable[tuple[Any, int]], copies: Mapping[Any, Any]) -> list[Any]:
        """Return the entries of (key, number) pairs as plain data; a copy of a key replaces its present state."""

    def keep(self, key: Any) -> None:
        """Copy a key before it may change."""
        group = self._group_of[key]
        if not self._is_done[group] and (self._lists is None or self._is_asked(key)):
            copy = self._copy(key)
            if copy is not None:
                self._kept.setdefault(group, {})[key] = copy

    def _is_asked(self, key: Any) -> bool:
        assert self._lists is not None  # the caller has checked
        for keys in self._lists:  # noqa: SIM110  for each key: without a generator
            if key in keys:
                return True
        return False

    def _all_steps(self) -> Iterator[None]:
        runs_by_group: dict[int, list[tuple[Any, list[Any], array[int]]]] = {}
        group_of, whole = self._group_of, self._lists is None
        for of, keys, numbers in self._runs():
            for key, number in zip(keys, numbers, strict=False):
                if whole or self._is_asked(key):
                    runs = runs_by_group.setdefault(group_of[key], [])
                    if not runs or runs[-1][0] is not of:
                        runs.append((of, [], array("q")))
                    runs[-1][1].append(key)
                    runs[-1][2].append(number)
            yield
        self._count = sum(len(keys) for runs in runs_by_group.values() for _, keys, _ in runs)
        self._ready.append(array_header(len(runs_by_group)))
        for group in sorted(runs_by_group):
            yield from self._group_steps(group, runs_by_group.pop(group))

    def _group_steps(self, group: int, runs: list[tuple[Any, list[Any], "array[int]"]]) -> Iterator[None]:
        part, copies = self._part(group), self._kept.setdefault(group, {})
        seen: set[Any] = set()  # a key with several entries counts once
        for of, keys, numbers in runs:
            places = zip(keys, numbers, strict=True)
            while chunk := list(islice(places, self._step_keys())):
                items = self._entries(of, chunk, copies)
                if items:
                    size = part.put(0, len(items), self._encoded(items))
                    self._mean = 1 + size // len(items)
                    self.size += size
                before = len(seen)
                seen.update(key for key, _ in chunk)
                self.keys += len(seen) - before
                self._count -= len(chunk) - (len(seen) - before)
                yield
        self._is_done[group] = 1
        del self._parts[group], self._kept[group]
        self._ready += part.pieces(group)
        yield

    def _frozen(self, plain: Any) -> Any:
        """Return plain data that no code changes later. Raises `UserCodeError` if `plain` is not plain data."""
        try:
            return msgspec.to_builtins(plain, builtin_types=(bytes,))
        except (TypeError, ValueError, OverflowError, RecursionError):
            self._codec.encode(plain)  # raises, with the name of the step
            raise

    def _encoded(self, items: list[Any]) -> tuple[bytes, bool]:
        try:
            return self._codec.encode_items(items)
        except (TypeError, ValueError, OverflowError, RecursionError):
            self._codec.encode(items)  # raises, with the name of the step
            raise


_GONE: Final = object()


class KeysSnapshot(IndexedStateSnapshot, Generic[T]):
    """Snapshot of a state with one entry per key; the list of keys is copied at the moment.

    Args:
        given: as of every `IndexedStateSnapshot`.
        held: key → its state; it keeps changing.
    """

    def __init__(self, *given: Any, held: Mapping[Any, T]) -> None:
        super().__init__(*given)
        self._held = held
        self._there = [dict.fromkeys(held)] if self._lists is None else self._lists
        self._count = sum(map(len, self._there))

    @abstractmethod
    def _describe(self, held: T) -> Any:
        """Return the state of a key as plain data, which may change with it."""

    @abstractmethod
    def _entry(self, key: Any, described: Any | None) -> Any:
        """Return the entry of a key; `described` is None when the key is gone."""

    def _runs(self) -> Iterator[Run]:
        for keys in dirty_keys_in(self._there):
            yield None, keys, repeat(0)

    def _copy(self, key: Any) -> Any:
        held = self._held.get(key)
        if held is None:
            return None if self._lists is None else _GONE
        return self._frozen(self._describe(held))

    def _entries(self, of: None, places: Iterable[tuple[Any, int]], copies: Mapping[Any, Any]) -> list[Any]:
        entries = []
        for key, _ in places:
            described = copies.get(key)
            if described is None:
                held = self._held.get(key)
                described = _GONE if held is None else self._describe(held)
            entries.append(self._entry(key, None if described is _GONE else described))
        return entries


def listed(keys: Mapping[Any, Any], count: int) -> Iterator[list[Any]]:
    """Yield the first `count` keys of a dictionary in pieces; keys may be added meanwhile, and none of these is removed."""
    for start in range(0, count, STEP_LISTED):
        stop = min(count, start + STEP_LISTED)
        if start <= len(keys) // 2:
            piece = list(islice(keys, start, stop))
        else:  # from the nearer end, because skipped keys cost time, too
            behind = len(keys) - stop
            piece = list(islice(reversed(keys), behind, behind + stop - start))[::-1]
        for start_of_piece in range(0, len(piece), STEP_INDEXED):
            yield piece[start_of_piece : start_of_piece + STEP_INDEXED]


def dirty_keys_in(lists: Sequence[DirtyKeys]) -> Iterator[list[Any]]:
    """Yield the keys of lists that no longer grow, each once, in pieces."""
    for number, dirty_keys in enumerate(lists):
        before = lists[:number]
        for keys in listed(dirty_keys, len(dirty_keys)):
            yield [key for key in keys if not any(key in earlier for earlier in before)]


def all_of(opened: AsyncSnapshot) -> list[tuple[int, bytes]]:
    """Return the groups of a snapshot, encoded at once."""
    pieces: list[bytes] = []
    while opened.step():
        pieces += opened.taken()
    return _GROUPS.decode(b"".join([*pieces, *opened.taken()]))
