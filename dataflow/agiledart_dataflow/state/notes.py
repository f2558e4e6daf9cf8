"""Which keys have changed since somebody asked last, and what they have become: what an increment of a snapshot is made of.

A state notes nothing before it is asked for the first time, so where nobody saves increments a row costs nothing more. From then
on each key that is looked at is noted, for who looks at one may change it. Notes that grow beyond what is held are dropped: then
nobody knows what has changed, and the next snapshot is a whole one.
Source: recovery specification §11.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

Noted = dict[Any, None]
"""Keys that may have changed, in the order in which they were touched first."""


class Came(dict[Any, None]):
    """Notes that are pieces of rows, each of which may be of another key.

    Attributes:
        rows: how many there are.
    """

    rows = 0


def weight(noted: Noted) -> int:
    """How many keys these notes may be of."""
    return noted.rows if isinstance(noted, Came) else len(noted)


MAX_NOTED: Final = 65_536
"""Notes of keys that come and go; beyond these, and two for each key that is there, an increment would not pay."""


class Changes(NamedTuple):
    """What has become of some keys. With an older snapshot in which all others are as they are now, it makes the present state.

    Attributes:
        groups: (group, bytes), in a form of the state's own.
        common: what is to be known beside them.
    """

    groups: list[tuple[int, bytes]]
    common: bytes = b""


class Increment(NamedTuple):
    """In an element that rests on another: what has changed in a `State`, and what belongs to no key, whole."""

    changes: Changes
    rest: bytes


class Notes:
    """The notes of one state.

    Attributes:
        keys: the same dictionary until `swapped`, so that loops may hold it.
        is_kept: somebody has asked, so they are complete.
    """

    def __init__(self) -> None:
        self.keys: Noted = {}
        self.is_kept = False

    def taken(self) -> Noted | None:
        """What has been noted since the last time; None: nobody knows. From now on notes are kept."""
        keys = self.keys.copy() if self.is_kept else None
        self.keys.clear()
        self.is_kept = True
        return keys

    def swapped(self) -> Noted | None:
        """As `taken`, for whoever tells those who hold `keys` that it is another dictionary: what is noted is not copied."""
        keys, self.keys = (self.keys if self.is_kept else None), {}
        self.is_kept = True
        return keys

    def note(self, keys: Iterable[Any]) -> None:
        """Some have changed."""
        if self.is_kept:
            self.keys.update(dict.fromkeys(keys))

    def lose(self) -> None:
        """All may be another state than before."""
        self.keys.clear()
        self.is_kept = False

    def bound(self, held: int) -> None:
        """Drop them where there are too many for a state that holds so many keys."""
        if len(self.keys) > 2 * held + MAX_NOTED:
            self.lose()


class Unnoted:
    """For a state that does not know what has changed: it is saved whole."""

    def noted(self) -> Noted | None:
        return None

    def open_groups(self, lists: object, waste: object = ()) -> None:
        return None

    def changes(self, keys: Noted) -> Changes:
        raise NotImplementedError(f"{type(self).__name__} notes no changes")

    def apply(self, changes: Changes) -> None:
        raise NotImplementedError(f"{type(self).__name__} notes no changes")
