"""`PartedState`: key groups of state that lies in dictionaries of its own, parted only when somebody asks.

The loops that write into such dictionaries know nothing of groups. The first question after rows came makes an index, in one pass;
it serves until rows come again. So to take or put all groups one by one costs no more than to take or put them at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

from agiledart_dataflow.data.partitioning import KeyRouter
from agiledart_dataflow.state.groups import Division, WithoutRest
from agiledart_dataflow.state.notes import Noted, Notes
from agiledart_dataflow.state.owner_table import EACH_ITS_OWN
from agiledart_dataflow.state.plain_codec import PlainCodec

P = TypeVar("P")


class PartedState(WithoutRest, ABC, Generic[P]):
    """What is common to such states; P is what the index knows of one group.

    Args:
        codec: of a group: of a list of entries, each of which begins with its key.

    Attributes:
        group_of: key → group, remembered.
        notes: of keys that rows and time change; the owner writes them.
    """

    division: ClassVar[Division] = "by group"

    def __init__(self, codec: PlainCodec) -> None:
        self._codec = codec
        self._index: dict[int, P] | None = None
        self._moved = False
        self.notes = Notes()
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
        self.notes.lose()
        if entries:
            self._parted()[group] = self._put(group, entries)
            self._moved = True

    def drop_group(self, group: int) -> None:
        part = self._parted().pop(group, None)
        if part is not None:
            self._remove(part)
            self._moved = True
            self.notes.lose()

    def noted(self) -> Noted | None:
        return self.notes.taken()

    def open_groups(self, lists: object, waste: object = ()) -> None:
        """It is encoded at once."""

    def _parted(self) -> dict[int, P]:
        if self._index is None:
            self._settle()
            self._index = self._part()
        return self._index

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
