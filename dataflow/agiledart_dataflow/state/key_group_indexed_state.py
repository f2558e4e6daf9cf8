"""`KeyGroupIndexedState`: key groups of state that lies in dictionaries of its own, parted only when somebody asks.

The loops that write into such dictionaries know nothing of groups. The first question after rows came makes an index, in one pass;
it serves until rows come again. So to take or put all groups one by one costs no more than to take or put them at once.

They tell of each key before they change it for the first time since a barrier (`touch`): an increment is made of these, and what is
encoded bit by bit keeps what they were.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from agiledart_dataflow.data.partitioning import KeyRouter
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, DirtyKeyTracker
from agiledart_dataflow.state.indexed_state_snapshot import IndexedStateSnapshot
from agiledart_dataflow.state.key_groups import Division, WithoutRest
from agiledart_dataflow.state.owner_table import ONE_OWNER_PER_GROUP
from agiledart_dataflow.state.plain_codec import PlainCodec

P = TypeVar("P")


class KeyGroupIndexedState(WithoutRest, ABC, Generic[P]):
    """What is common to such states; P is what the index knows of one group.

    Args:
        codec: of a group: of a list of entries, each of which begins with its key.

    Attributes:
        group_of: key → group, remembered.
        notes: of keys that rows and time change; loops look into them, and call `touch` for a key that is not there.
    """

    division: ClassVar[Division] = "by group"

    def __init__(self, codec: PlainCodec) -> None:
        self._codec = codec
        self._index: dict[int, P] | None = None
        self._moved = False
        self.dirty_tracker = DirtyKeyTracker()
        self._open: IndexedStateSnapshot | None = None
        self.group_of = KeyRouter(ONE_OWNER_PER_GROUP)

    def rows_come(self) -> bool:
        """To be told before the state is changed by rows or time. True when groups came or went since the last time."""
        self._index = None
        if not self._moved:
            return False
        self._moved = False
        self._restore_arrival_order()
        return True

    def groups(self) -> list[int]:
        return sorted(self._group_index())

    def snapshot_group(self, group: int) -> bytes:
        part = self._group_index().get(group)
        return self._codec.encode([] if part is None else list(self._entries(part)))

    def restore_group(self, group: int, data: bytes) -> None:
        entries = self._codec.decode(data)
        self.drop_group(group)
        self._invalidate()
        if entries:
            self._group_index()[group] = self._put(group, entries)
            self._moved = True

    def drop_group(self, group: int) -> None:
        part = self._group_index().pop(group, None)
        if part is not None:
            self._invalidate()
            self._remove(part)
            self._moved = True

    def dirty_keys(self) -> DirtyKeys | None:
        if self._open is not None:
            self._open.drop()
        return self.dirty_tracker.swap()

    def touch(self, key: Any) -> None:
        """A key that was not noted yet is about to change; only where notes are kept."""
        if self._open is not None:
            self._open.keep(key)
        self.dirty_tracker.keys[key] = None

    def begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()) -> AsyncSnapshot:
        self._restore_arrival_order()
        self._open = opened = self._begin_snapshot(lists, waste)
        return opened

    def _closed(self) -> None:
        self._open = None

    def _invalidate(self) -> None:
        """All may be another state from now on; what is open goes by the notes."""
        if self._open is not None:
            self._open.finish()
        self.dirty_tracker.invalidate()

    def bound(self, held: int) -> None:
        """Drop notes where there are too many for a state that holds so many keys."""
        if self._open is None:  # which goes by them
            self.dirty_tracker.bound(held)

    def _group_index(self) -> dict[int, P]:
        if self._index is None:
            self._restore_arrival_order()
            self._index = self._build_group_index()
        return self._index

    @abstractmethod
    def _begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys]) -> IndexedStateSnapshot:
        """All of it, or what has become of keys, to be encoded bit by bit; `_closed` is to be told."""

    @abstractmethod
    def _build_group_index(self) -> dict[int, P]:
        """What the index shall know of each group of which something is held."""

    @abstractmethod
    def _entries(self, part: P) -> Iterable[Any]:
        """A group's entries as plain data."""

    @abstractmethod
    def _put(self, group: int, entries: list[Any]) -> P:
        """Take up entries whose keys are not held."""

    @abstractmethod
    def _remove(self, part: P) -> None:
        """Forget a group."""

    def _restore_arrival_order(self) -> None:
        """Bring into order what groups that came and went have left; once for all of them."""
