"""`IndexedStateSnapshot`: state that lies in dictionaries of its own as of a moment, encoded bit by bit while rows go on.

    parted   all keys, or those that were noted, are looked through and put to their groups, with the places of their entries
    encoded  group by group: each entry as it is, or as it was kept; the group is given, and what was kept of it forgotten

A key that is about to change is kept before (`keep`), as a copy of plain data: whoever touches a key for the first time since the
moment says so. What goes as a whole, as a window that closes, need not be told: it is held here until it is encoded.
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
"""Keys that a step puts to their groups: below half a millisecond where no group is remembered."""

STEP_LISTED: Final = 32_768
"""Keys of one dictionary that are listed at once."""

Run = tuple[Any, Sequence[Any], Iterable[int]]
"""(what all of these entries are of, their keys, a number for each)."""

_GROUPS: msgspec.msgpack.Decoder[list[tuple[int, bytes]]] = msgspec.msgpack.Decoder(list[tuple[int, bytes]])


class IndexedStateSnapshot(AsyncSnapshotBase):
    """All of a state, or what has become of some keys.

    Args:
        codec: of a group's list of entries.
        group_of: key → group.
        lists: of keys that were noted, to which it is confined; None: all.
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
        """Of all keys, in small pieces, as of the moment."""

    @abstractmethod
    def _copy(self, key: Any) -> Any:
        """What `_entries` needs of a key that is about to change; None where it is not there."""

    @abstractmethod
    def _entries(self, of: Any, places: Iterable[tuple[Any, int]], kept: Mapping[Any, Any]) -> list[Any]:
        """The entries of (key, number), as plain data; what was kept of keys takes the place of what they are now."""

    def keep(self, key: Any) -> None:
        """A key may change from now on."""
        group = self._group_of[key]
        if not self._is_done[group] and (self._lists is None or self._is_asked(key)):
            copy = self._copy(key)
            if copy is not None:
                self._kept.setdefault(group, {})[key] = copy

    def _is_asked(self, key: Any) -> bool:
        assert self._lists is not None  # the caller has looked
        for keys in self._lists:  # noqa: SIM110  for each key: without a generator
            if key in keys:
                return True
        return False

    def _all_steps(self) -> Iterator[None]:
        parted: dict[int, list[tuple[Any, list[Any], array[int]]]] = {}
        group_of, whole = self._group_of, self._lists is None
        for of, keys, numbers in self._runs():
            for key, number in zip(keys, numbers, strict=False):
                if whole or self._is_asked(key):
                    runs = parted.setdefault(group_of[key], [])
                    if not runs or runs[-1][0] is not of:
                        runs.append((of, [], array("q")))
                    runs[-1][1].append(key)
                    runs[-1][2].append(number)
            yield
        self._count = sum(len(keys) for runs in parted.values() for _, keys, _ in runs)
        self._ready.append(array_header(len(parted)))
        for group in sorted(parted):
            yield from self._group_steps(group, parted.pop(group))

    def _group_steps(self, group: int, runs: list[tuple[Any, list[Any], "array[int]"]]) -> Iterator[None]:
        part, kept = self._part(group), self._kept.setdefault(group, {})
        met: set[Any] = set()  # of several entries of a key the first counts
        for of, keys, numbers in runs:
            places = zip(keys, numbers, strict=True)
            while chunk := list(islice(places, self._step_keys())):
                items = self._entries(of, chunk, kept)
                if items:
                    size = part.put(0, len(items), self._encoded(items))
                    self._mean = 1 + size // len(items)
                    self.size += size
                before = len(met)
                met.update(key for key, _ in chunk)
                self.keys += len(met) - before
                self._count -= len(chunk) - (len(met) - before)
                yield
        self._is_done[group] = 1
        del self._parts[group], self._kept[group]
        self._ready += part.pieces(group)
        yield

    def _frozen(self, plain: Any) -> Any:
        """Plain data that nobody changes. Raises `UserCodeError` for what is none."""
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
    """A state with one entry a key; which keys there are is copied at the moment.

    Args:
        given: as of every `IndexedStateSnapshot`.
        held: key → what is held of it; it goes on changing.
    """

    def __init__(self, *given: Any, held: Mapping[Any, T]) -> None:
        super().__init__(*given)
        self._held = held
        self._there = [dict.fromkeys(held)] if self._lists is None else self._lists
        self._count = sum(map(len, self._there))

    @abstractmethod
    def _describe(self, held: T) -> Any:
        """What is told of a key, as plain data, which may change with it."""

    @abstractmethod
    def _entry(self, key: Any, described: Any | None) -> Any:
        """The entry of a key; None: it is gone."""

    def _runs(self) -> Iterator[Run]:
        for keys in dirty_keys_in(self._there):
            yield None, keys, repeat(0)

    def _copy(self, key: Any) -> Any:
        held = self._held.get(key)
        if held is None:
            return None if self._lists is None else _GONE
        return self._frozen(self._describe(held))

    def _entries(self, of: None, places: Iterable[tuple[Any, int]], kept: Mapping[Any, Any]) -> list[Any]:
        made = []
        for key, _ in places:
            described = kept.get(key)
            if described is None:
                held = self._held.get(key)
                described = _GONE if held is None else self._describe(held)
            made.append(self._entry(key, None if described is _GONE else described))
        return made


def listed(keys: Mapping[Any, Any], count: int) -> Iterator[list[Any]]:
    """The first keys of a dictionary that others may come to, some at a time; none of them goes."""
    for start in range(0, count, STEP_LISTED):
        stop = min(count, start + STEP_LISTED)
        if start <= len(keys) // 2:
            found = list(islice(keys, start, stop))
        else:  # from the nearer end, for whatever is passed over is counted, too
            behind = len(keys) - stop
            found = list(islice(reversed(keys), behind, behind + stop - start))[::-1]
        for place in range(0, len(found), STEP_INDEXED):
            yield found[place : place + STEP_INDEXED]


def dirty_keys_in(lists: Sequence[DirtyKeys]) -> Iterator[list[Any]]:
    """The keys of lists to which nobody adds, each once, a part at a time."""
    for number, dirty_keys in enumerate(lists):
        before = lists[:number]
        for keys in listed(dirty_keys, len(dirty_keys)):
            yield [key for key in keys if not any(key in one for one in before)]


def all_of(opened: AsyncSnapshot) -> list[tuple[int, bytes]]:
    """What it gives, at once."""
    pieces: list[bytes] = []
    while opened.step():
        pieces += opened.taken()
    return _GROUPS.decode(b"".join([*pieces, *opened.taken()]))
