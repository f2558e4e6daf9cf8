"""`KeyGroupIndexedState`: key groups of state in dictionaries of its own, split by group only on request.

The loops that write into such dictionaries know nothing of groups. The first request after rows came builds an index, in one pass;
it serves until rows come again. So saving or restoring all groups one by one costs no more than all at once.

The loops report each key before its first change since a barrier (`touch`): an increment is made of these keys, and a snapshot
encoded in small steps copies their state.
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
    """Base of such states; P is the index entry of one group.

    Args:
        codec: of a group: of a list of entries, each of which begins with its key.

    Attributes:
        group_of: key → group, remembered.
        dirty_tracker: keys that rows and time change; loops look into it, and call `touch` for a key that is not there.
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
        """Prepare for a change by rows or time; call it first. True when groups came or went since the last call."""
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

    def take_dirty_keys(self) -> DirtyKeys | None:
        if self._open is not None:
            self._open.drop()
        return self.dirty_tracker.swap()

    def touch(self, key: Any) -> None:
        """Handle the first change of a key that is not dirty yet; only where dirty keys are tracked."""
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
        """Stop tracking, since all state may differ from now on; finish an open snapshot, which relies on the dirty keys."""
        if self._open is not None:
            self._open.finish()
        self.dirty_tracker.invalidate()

    def bound(self, held: int) -> None:
        """Stop tracking when there are too many dirty keys for a state with `held` keys."""
        if self._open is None:  # an open snapshot relies on them
            self.dirty_tracker.bound(held)

    def _group_index(self) -> dict[int, P]:
        if self._index is None:
            self._restore_arrival_order()
            self._index = self._build_group_index()
        return self._index

    @abstractmethod
    def _begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys]) -> IndexedStateSnapshot:
        """Begin a snapshot of all state, or of the changes of keys; it must call `_closed` at its end."""

    @abstractmethod
    def _build_group_index(self) -> dict[int, P]:
        """Return the index entry of each group that has keys."""

    @abstractmethod
    def _entries(self, part: P) -> Iterable[Any]:
        """Return a group's entries as plain data."""

    @abstractmethod
    def _put(self, group: int, entries: list[Any]) -> P:
        """Add entries of keys that do not exist yet; return the index entry of their group."""

    @abstractmethod
    def _remove(self, part: P) -> None:
        """Remove a group."""

    def _restore_arrival_order(self) -> None:
        """Restore the order of keys after groups came and went; once for all of them."""
