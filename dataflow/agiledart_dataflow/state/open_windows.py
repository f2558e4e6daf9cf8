"""`OpenWindows`: state of each (window, key) until the window closes, by key group on request."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.indexed_state_snapshot import IndexedStateSnapshot, Run, all_of, listed
from agiledart_dataflow.state.key_group_indexed_state import KeyGroupIndexedState
from agiledart_dataflow.state.plain_codec import PlainCodec

Windows = list[tuple[int, list[tuple[Any, Position | None, Any]]]]
"""[(end, [(key, position of its first row or None, plain state)])], by end, the keys in the order in which they came."""

WindowEntry = tuple[Any, int, Position, Any]
"""Entry of a key group: (key, end, position of its first row or (number of the key in its window,), plain state)."""

_COMMON: msgspec.msgpack.Decoder[list[list[int] | bool | int]] = msgspec.msgpack.Decoder(list[list[int] | bool | int])


def common_of(still_open: list[int], *, adds: bool = False) -> bytes:
    """Return the part of an increment that belongs to all groups.

    Args:
    still_open: the ends of the windows that were open before and still are.
        adds: the increment's rows come on top of the state; False: they replace it.
    """
    return msgspec.msgpack.encode((still_open, adds))


def _common_in(data: bytes) -> tuple[frozenset[int], bool]:
    """Return (still_open, adds) of `common_of`. Format 1 has the ends alone, and adds nothing. Raises msgspec.MsgspecError."""
    match _COMMON.decode(data):
        case [list(still_open), bool(adds)]:
            return frozenset(still_open), adds
        case ends:
            return frozenset(msgspec.convert(ends, list[int])), False


@dataclass(frozen=True, slots=True)
class Anew:
    """Mark among dirty keys: all of this window is new, because it was opened, or a part of it has closed."""

    end: int


_Slot = tuple[int, Any, int]
"""(end, key, number of the key in its window)."""


class OpenWindows(KeyGroupIndexedState[list[_Slot]]):
    """Open windows of an instance. Their owner writes into the dictionaries, after it has called `rows_come`.

    Args:
        codec: of a list of `WindowEntry`.
        positions: first rows have positions; else only the order of the keys of a window is known.
        new_pane: makes an empty pane.
        to_plain: (state, older part in `before`) → plain data.
        from_plain: the inverse.
        joined: (state, state of rows that came after it) → state of both; only where columns are kept, too.

    Attributes:
        panes: end → key → state.
        firsts: end → key → position of its first row; with `positions` only.
        before: end → key → older part that was split off a state that grew too long.
    """

    def __init__(
        self,
        codec: PlainCodec,
        *,
        positions: bool,
        new_pane: Callable[[], dict[Any, Any]],
        to_plain: Callable[[Any, Any], Any],
        from_plain: Callable[[Any], tuple[Any, Any]],
        joined: Callable[[Any, Any], Any],
    ) -> None:
        super().__init__(codec)
        self.panes: dict[int, dict[Any, Any]] = {}
        self.firsts: dict[int, dict[Any, Position]] = {}
        self.before: dict[int, dict[Any, Any]] = {}
        self._positions = positions
        self._new_pane = new_pane
        self._to_plain, self._from_plain, self._joined = to_plain, from_plain, joined
        self._ranks: dict[int, dict[Any, tuple[int, int]]] = {}  # (number, group) of keys that came by group

    def __len__(self) -> int:
        return sum(map(len, self.panes.values()))

    def open(self, end: int) -> dict[Any, Any]:
        """Return the pane of a window, a new one if needed."""
        pane = self.panes.get(end)
        if pane is None:
            pane = self.panes[end] = self._new_pane()
            self.firsts[end] = {}
            self.anew(end)
        return pane

    def anew(self, end: int, keys: Iterable[Any] = ()) -> None:
        """Mark a window as new: no saved state of it is valid any more; `keys` are in it."""
        if self.dirty_tracker.is_tracking:
            for key in keys:
                if key not in self.dirty_tracker.keys:
                    self.touch(key)
            self.dirty_tracker.keys[Anew(end)] = None

    def windows(self) -> Windows:
        """Return all windows as plain data."""
        self._restore_arrival_order()
        return [
            (end, [(key, self.firsts[end].get(key), self._plain(end, key, state)) for key, state in pane.items()])
            for end, pane in sorted(self.panes.items())
        ]

    def replace(self, windows: Windows) -> None:
        """Replace all windows."""
        self._invalidate()
        self.panes.clear()
        self.firsts.clear()
        self.before.clear()
        self._ranks.clear()
        self._index, self._moved = None, True
        for end, entries in windows:
            for key, first, plain in entries:
                self._keep(end, key, first, plain)

    def changes(self, keys: DirtyKeys) -> StateChanges:
        opened = self.begin_snapshot([keys])
        return StateChanges(all_of(opened), opened.common)

    def _begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys]) -> IndexedStateSnapshot:
        frozen = [
            _Frozen(end, pane, len(pane), self.firsts[end] if self._positions else None, self.before.get(end, {}))
            for end, pane in sorted(self.panes.items())
        ]
        opened = _PanesSnapshot(
            self._codec, self.group_of, lists, self._closed, waste, frozen=frozen, plain=self._to_plain
        )
        if lists is not None:
            opened.common = common_of([end for end in self.panes if all(Anew(end) not in keys for keys in lists)])
        return opened

    def apply(self, changes: StateChanges) -> None:
        still_open, adds = _common_in(changes.common)
        decoded = [(group, self._codec.decode(data)) for group, data in changes.groups]
        self._invalidate()
        for end in [end for end in self.panes if end not in still_open]:
            del self.panes[end], self.firsts[end]
            self.before.pop(end, None)
            self._ranks.pop(end, None)
        for group, entries in decoded:
            if adds:
                self._add(group, entries)
                continue
            for key, end, *_ in entries:
                self.before.get(end, {}).pop(key, None)
            self._put(group, entries)
        self._index, self._moved = None, True

    def _add(self, group: int, entries: list[WindowEntry]) -> None:
        """Add rows that came on top of the present state."""
        for key, end, first, plain in entries:
            pane = self.open(end)
            state, _ = self._from_plain(plain)
            if key in pane:
                pane[key] = self._joined(pane[key], state)
            else:
                pane[key] = state
                self._ranks.setdefault(end, {})[key] = (first[0], group)

    def _keep(self, end: int, key: Any, first: Position | None, plain: Any) -> None:
        pane = self.open(end)
        pane[key], before = self._from_plain(plain)
        if before is not None:
            self.before.setdefault(end, {})[key] = before
        if self._positions and first is not None:
            self.firsts[end][key] = tuple(first)

    def _plain(self, end: int, key: Any, state: Any) -> Any:
        return self._to_plain(state, self.before.get(end, {}).get(key))

    def _build_group_index(self) -> dict[int, list[_Slot]]:
        parts: dict[int, list[_Slot]] = {}
        for end, pane in sorted(self.panes.items()):
            for number, key in enumerate(pane):
                parts.setdefault(self.group_of[key], []).append((end, key, number))
        return parts

    def _entries(self, part: list[_Slot]) -> Iterable[WindowEntry]:
        for end, key, number in part:
            first = self.firsts[end][key] if self._positions else (number,)
            yield key, end, first, self._plain(end, key, self.panes[end][key])

    def _put(self, group: int, entries: list[WindowEntry]) -> list[_Slot]:
        for key, end, first, plain in entries:
            if not self._positions and key not in self.panes.get(end, ()):
                self._ranks.setdefault(end, {})[key] = (first[0], group)
            self._keep(end, key, first, plain)
        return [(end, key, 0 if self._positions else first[0]) for key, end, first, _ in entries]

    def _remove(self, part: list[_Slot]) -> None:
        for end, key, _ in part:
            del self.panes[end][key]
            self.firsts[end].pop(key, None)
            self.before.get(end, {}).pop(key, None)
            self._ranks.get(end, {}).pop(key, None)
            if not self.panes[end]:
                del self.panes[end], self.firsts[end]
                self.before.pop(end, None)
                self._ranks.pop(end, None)

    def _restore_arrival_order(self) -> None:
        """Restore the order in which keys came, by the numbers that restored groups bring.

        Without positions the keys of a window leave in that order. Groups of one instance have it again. Groups of several
        instances have no common order that any instance ever saw.
        """
        for end, ranks in self._ranks.items():
            pane = self.panes[end]
            numbers = {key: ranks.get(key, (number, -1)) for number, key in enumerate(pane)}
            ordered = self.panes[end] = self._new_pane()
            ordered.update((key, pane[key]) for key in sorted(pane, key=numbers.__getitem__))
        self._ranks.clear()


@dataclass(frozen=True, slots=True)
class _Frozen:
    """Window as of one moment: the first `count` keys of a pane; later keys come after them."""

    end: int
    pane: dict[Any, Any]
    count: int
    firsts: dict[Any, Position] | None
    before: dict[Any, Any]


class _PanesSnapshot(IndexedStateSnapshot):
    """Snapshot of windows as of one moment.

    Args:
        given: as of every `IndexedStateSnapshot`.
        frozen: the windows.
        plain: (state, older part in `before`) → plain data.
    """

    def __init__(self, *given: Any, frozen: list[_Frozen], plain: Callable[[Any, Any], Any]) -> None:
        super().__init__(*given)
        self._frozen_windows, self._plain = frozen, plain
        self._count = sum(window.count for window in frozen)

    def _runs(self) -> Iterator[Run]:
        for window in self._frozen_windows:
            first = 0
            for keys in listed(window.pane, window.count):
                yield window, keys, count(first)
                first += len(keys)

    def _copy(self, key: Any) -> Any:
        plain = self._plain
        return {
            window.end: self._frozen(plain(window.pane[key], window.before.get(key)))
            for window in self._frozen_windows
            if key in window.pane
        } or None

    def _entries(self, of: _Frozen, places: Iterable[tuple[Any, int]], copies: Mapping[Any, Any]) -> list[Any]:
        end, pane, firsts, before, plain = of.end, of.pane, of.firsts, of.before, self._plain
        return [
            (
                key,
                end,
                (number,) if firsts is None else firsts[key],
                copies[key][end] if key in copies else plain(pane[key], before.get(key)),
            )
            for key, number in places
        ]


def window_entries(windows: Windows) -> Iterable[WindowEntry]:
    """Yield the group entries of windows that `OpenWindows.windows` returned, without positions."""
    for end, keys in windows:
        for number, (key, _, plain) in enumerate(keys):
            yield key, end, (number,), plain


def window_entry_type(key: Any, plain: Any) -> Any:
    """Return the type of a list of entries, by which bytes are read."""
    return generic(list, generic(tuple, key, int, Position, plain))
