"""Which keys have changed since somebody asked last, and what they have become: what an increment of a snapshot is made of.

A state notes nothing before it is asked for the first time, so where nobody saves increments a row costs nothing more. From then
on each key that is looked at is noted, for who looks at one may change it. Notes that grow beyond what is held are dropped: then
nobody knows what has changed, and the next snapshot is a whole one.
Source: recovery specification §11.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

DirtyKeys = dict[Any, None]
"""Keys that may have changed, in the order in which they were touched first."""


class DirtyRows(dict[Any, None]):
    """Notes that are pieces of rows, each of which may be of another key.

    Attributes:
        rows: how many there are.
    """

    rows = 0


def dirty_count(dirty_keys: DirtyKeys) -> int:
    """How many keys these notes may be of."""
    return dirty_keys.rows if isinstance(dirty_keys, DirtyRows) else len(dirty_keys)


MAX_DIRTY_KEYS: Final = 65_536
"""Notes of keys that come and go; beyond these, and two for each key that is there, an increment would not pay."""


class StateChanges(NamedTuple):
    """What has become of some keys. With an older snapshot in which all others are as they are now, it makes the present state.

    Attributes:
        groups: (group, bytes), in a form of the state's own.
        common: what is to be known beside them.
    """

    groups: list[tuple[int, bytes]]
    common: bytes = b""


class Increment(NamedTuple):
    """In an element that rests on another: what has changed in a `OperatorState`, and what belongs to no key, whole."""

    changes: StateChanges
    rest: bytes


class DirtyKeyTracker:
    """The notes of one state.

    Attributes:
        keys: the same dictionary until `swapped`, so that loops may hold it.
        is_kept: somebody has asked, so they are complete.
    """

    def __init__(self) -> None:
        self.keys: DirtyKeys = {}
        self.is_tracking = False

    def taken(self) -> DirtyKeys | None:
        """What has been noted since the last time; None: nobody knows. From now on notes are kept."""
        keys = self.keys.copy() if self.is_tracking else None
        self.keys.clear()
        self.is_tracking = True
        return keys

    def swap(self) -> DirtyKeys | None:
        """As `taken`, for whoever tells those who hold `keys` that it is another dictionary: what is noted is not copied."""
        keys, self.keys = (self.keys if self.is_tracking else None), {}
        self.is_tracking = True
        return keys

    def note(self, keys: Iterable[Any]) -> None:
        """Some have changed."""
        if self.is_tracking:
            self.keys.update(dict.fromkeys(keys))

    def invalidate(self) -> None:
        """All may be another state than before."""
        self.keys.clear()
        self.is_tracking = False

    def bound(self, held: int) -> None:
        """Drop them where there are too many for a state that holds so many keys."""
        if len(self.keys) > 2 * held + MAX_DIRTY_KEYS:
            self.invalidate()


class WithoutChangeTracking:
    """For a state that does not know what has changed: it is saved whole."""

    def dirty_keys(self) -> DirtyKeys | None:
        return None

    def begin_snapshot(self, lists: object, waste: object = ()) -> None:
        return None

    def changes(self, keys: DirtyKeys) -> StateChanges:
        raise NotImplementedError(f"{type(self).__name__} notes no changes")

    def apply(self, changes: StateChanges) -> None:
        raise NotImplementedError(f"{type(self).__name__} notes no changes")
