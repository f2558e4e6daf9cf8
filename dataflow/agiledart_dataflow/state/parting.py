"""`PartedState`: key groups of state that lies in dictionaries of its own, parted only when somebody asks.

The loops that write into such dictionaries know nothing of groups. The first question after rows came makes an index, in one pass;
it serves until rows come again. So to take or put all groups one by one costs no more than to take or put them at once.

They tell of each key before they change it for the first time since a barrier (`touch`): an increment is made of these, and what is
encoded bit by bit keeps what they were.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from agiledart_dataflow.data.partitioning import KeyRouter
from agiledart_dataflow.state.groups import Division, WithoutRest
from agiledart_dataflow.state.notes import Noted, Notes
from agiledart_dataflow.state.open_groups import OpenGroups
from agiledart_dataflow.state.open_parted import OpenParted
from agiledart_dataflow.state.owner_table import EACH_ITS_OWN
from agiledart_dataflow.state.plain_codec import PlainCodec

P = TypeVar("P")


class PartedState(WithoutRest, ABC, Generic[P]):
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
        self.notes = Notes()
        self._open: OpenParted | None = None
        self.group_of = KeyRouter(EACH_ITS_OWN)

    def rows_come(self) -> bool:
        """To be told before the state is changed by rows or time. True when groups came or went since the last time."""
        self._index = None
        if not self._moved:
            return False
        self._moved = False
        self._settle()
        return True

    def groups(self) -> list[int]:
        return sorted(self._parted())

    def snapshot_group(self, group: int) -> bytes:
        part = self._parted().get(group)
        return self._codec.encode([] if part is None else list(self._entries(part)))

    def restore_group(self, group: int, data: bytes) -> None:
        entries = self._codec.decode(data)
        self.drop_group(group)
        self._lose()
        if entries:
            self._parted()[group] = self._put(group, entries)
            self._moved = True

    def drop_group(self, group: int) -> None:
        part = self._parted().pop(group, None)
        if part is not None:
            self._lose()
            self._remove(part)
            self._moved = True

    def noted(self) -> Noted | None:
        if self._open is not None:
            self._open.drop()
        return self.notes.swapped()

    def touch(self, key: Any) -> None:
        """A key that was not noted yet is about to change; only where notes are kept."""
        if self._open is not None:
            self._open.keep(key)
        self.notes.keys[key] = None

    def open_groups(self, lists: Sequence[Noted] | None, waste: Iterable[Noted] = ()) -> OpenGroups:
        self._settle()
        self._open = opened = self._opened(lists, waste)
        return opened

    def _closed(self) -> None:
        self._open = None

    def _lose(self) -> None:
        """All may be another state from now on; what is open goes by the notes."""
        if self._open is not None:
            self._open.finish()
        self.notes.lose()

    def bound(self, held: int) -> None:
        """Drop notes where there are too many for a state that holds so many keys."""
        if self._open is None:  # which goes by them
            self.notes.bound(held)

    def _parted(self) -> dict[int, P]:
        if self._index is None:
            self._settle()
            self._index = self._part()
        return self._index

    @abstractmethod
    def _opened(self, lists: Sequence[Noted] | None, waste: Iterable[Noted]) -> OpenParted:
        """All of it, or what has become of keys, to be encoded bit by bit; `_closed` is to be told."""

    @abstractmethod
    def _part(self) -> dict[int, P]:
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

    def _settle(self) -> None:
        """Bring into order what groups that came and went have left; once for all of them."""
