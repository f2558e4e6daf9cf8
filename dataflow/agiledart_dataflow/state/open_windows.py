"""`OpenWindows`: what is kept of each (window, key) until the window closes, by key group when asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.state.notes import Changes, Noted
from agiledart_dataflow.state.parting import PartedState
from agiledart_dataflow.state.plain_codec import PlainCodec

Windows = list[tuple[int, list[tuple[Any, Position | None, Any]]]]
"""[(end, [(key, position of its first row or None, plain state)])], by end, the keys in the order in which they came."""

WindowEntry = tuple[Any, int, Position, Any]
"""(key, end, position of its first row or (number of the key in its window,), plain state): of a key group."""

_ENDS: msgspec.msgpack.Decoder[list[int]] = msgspec.msgpack.Decoder(list[int])


@dataclass(frozen=True, slots=True)
class Anew:
    """Noted beside keys: nothing of this window is as it was, for it was opened, or a part of it has closed."""

    end: int


_Slot = tuple[int, Any, int]
"""(end, key, number of the key in its window)."""


class OpenWindows(PartedState[list[_Slot]]):
    """The open windows of an instance. Their owner writes into the dictionaries, after it has called `rows_come`.

    Args:
        codec: of a list of `WindowEntry`.
        positions: first rows have positions; else only the order of the keys of a window is known.
        new_pane: makes an empty pane.
        to_plain: (state, what was left of it before) → plain data.
        from_plain: the contrary.

    Attributes:
        panes: end → key → state.
        firsts: end → key → position of its first row; with `positions` only.
        before: end → key → what was set apart of a state that grew too long.
    """

    def __init__(
        self,
        codec: PlainCodec,
        *,
        positions: bool,
        new_pane: Callable[[], dict[Any, Any]],
        to_plain: Callable[[Any, Any], Any],
        from_plain: Callable[[Any], tuple[Any, Any]],
    ) -> None:
        super().__init__(codec)
        self.panes: dict[int, dict[Any, Any]] = {}
        self.firsts: dict[int, dict[Any, Position]] = {}
        self.before: dict[int, dict[Any, Any]] = {}
        self._positions = positions
        self._new_pane = new_pane
        self._to_plain, self._from_plain = to_plain, from_plain
        self._ranks: dict[int, dict[Any, tuple[int, int]]] = {}  # (number, group) of keys that came by group

    def __len__(self) -> int:
        return sum(map(len, self.panes.values()))

    def open(self, end: int) -> dict[Any, Any]:
        """The pane of a window, a new one if need be."""
        pane = self.panes.get(end)
        if pane is None:
            pane = self.panes[end] = self._new_pane()
            self.firsts[end] = {}
            self.anew(end)
        return pane

    def anew(self, end: int) -> None:
        """Nothing that was saved of a window holds any more."""
        if self.notes.is_kept:
            self.notes.keys[Anew(end)] = None

    def windows(self) -> Windows:
        """All of them, as plain data."""
        self._settle()
        return [
            (end, [(key, self.firsts[end].get(key), self._plain(end, key, state)) for key, state in pane.items()])
            for end, pane in sorted(self.panes.items())
        ]

    def replace(self, windows: Windows) -> None:
        """Put these in the place of all that is there."""
        self.panes.clear()
        self.firsts.clear()
        self.before.clear()
        self._ranks.clear()
        self._index, self._moved = None, True
        self.notes.lose()
        for end, entries in windows:
            for key, first, plain in entries:
                self._keep(end, key, first, plain)

    def changes(self, keys: Noted) -> Changes:
        """Entries of the keys in all windows, all of those of new windows; the ends of the others that are still open."""
        self._settle()
        groups: dict[int, list[WindowEntry]] = {}
        kept: list[int] = []
        for end, pane in sorted(self.panes.items()):
            is_anew = Anew(end) in keys
            if not is_anew:
                kept.append(end)
            firsts = self.firsts[end]
            for number, key in enumerate(pane):
                if is_anew or key in keys:
                    first = firsts[key] if self._positions else (number,)
                    entry = key, end, first, self._plain(end, key, pane[key])
                    groups.setdefault(self.group_of[key], []).append(entry)
        made = [(group, self._codec.encode(groups[group])) for group in sorted(groups)]
        return Changes(made, msgspec.msgpack.encode(kept))

    def apply(self, changes: Changes) -> None:
        kept = frozenset(_ENDS.decode(changes.common))
        decoded = [(group, self._codec.decode(data)) for group, data in changes.groups]
        for end in [end for end in self.panes if end not in kept]:
            del self.panes[end], self.firsts[end]
            self.before.pop(end, None)
            self._ranks.pop(end, None)
        for group, entries in decoded:
            for key, end, *_ in entries:
                self.before.get(end, {}).pop(key, None)
            self._put(group, entries)
        self._index, self._moved = None, True
        self.notes.lose()

    def _keep(self, end: int, key: Any, first: Position | None, plain: Any) -> None:
        pane = self.open(end)
        pane[key], before = self._from_plain(plain)
        if before is not None:
            self.before.setdefault(end, {})[key] = before
        if self._positions and first is not None:
            self.firsts[end][key] = tuple(first)

    def _plain(self, end: int, key: Any, state: Any) -> Any:
        return self._to_plain(state, self.before.get(end, {}).get(key))

    def _part(self) -> dict[int, list[_Slot]]:
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
            self._keep(end, key, first, plain)
            if not self._positions:
                self._ranks.setdefault(end, {})[key] = (first[0], group)
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

    def _settle(self) -> None:
        """Without positions the keys of a window leave in the order in which they came: numbers of groups that came say it.

        Groups of one instance are in that order again. Those of several have none among them that was ever seen.
        """
        for end, ranks in self._ranks.items():
            pane = self.panes[end]
            numbers = {key: ranks.get(key, (number, -1)) for number, key in enumerate(pane)}
            ordered = self.panes[end] = self._new_pane()
            ordered.update((key, pane[key]) for key in sorted(pane, key=numbers.__getitem__))
        self._ranks.clear()


def window_entries(windows: Windows) -> Iterable[WindowEntry]:
    """Of windows as `OpenWindows.windows` says them, without positions, the entries that its groups hold."""
    for end, keys in windows:
        for number, (key, _, plain) in enumerate(keys):
            yield key, end, (number,), plain


def window_entry_type(key: Any, plain: Any) -> Any:
    """The type of a list of entries, by which bytes are read."""
    return generic(list, generic(tuple, key, int, Position, plain))
