"""Dirty keys: the keys that changed since the last snapshot, and their changes, from which an increment is made.

A state tracks no keys before the first request for them, so a run without increments pays nothing per row. After that each key that
is looked up counts as dirty, because its reader may change it. Dirty keys beyond a bound are dropped: then the changes are unknown,
and the next snapshot is a whole one.
Source: recovery specification §11.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

DirtyKeys = dict[Any, None]
"""Keys that may have changed, in the order of their first lookup."""


class DirtyRows(dict[Any, None]):
    """Dirty keys given as pieces of rows, each of which may be of another key.

    Attributes:
        rows: number of rows.
    """

    rows = 0


def dirty_count(dirty_keys: DirtyKeys) -> int:
    """Return the number of keys that may be dirty."""
    return dirty_keys.rows if isinstance(dirty_keys, DirtyRows) else len(dirty_keys)


MAX_DIRTY_KEYS: Final = 65_536
"""Bound of dirty keys, beside two for each key that exists: beyond it an increment would not pay. Keys may come and go."""


class StateChanges(NamedTuple):
    """Changes of some keys. Applied to an older snapshot that has all other keys as they are now, they give the present state.

    Attributes:
        groups: (group, bytes), in the state's own form.
        common: data that belongs to all groups.
    """

    groups: list[tuple[int, bytes]]
    common: bytes = b""


class Increment(NamedTuple):
    """State part of a snapshot that rests on an older one: the changes of an `OperatorState`, and the whole part without keys."""

    changes: StateChanges
    rest: bytes


class DirtyKeyTracker:
    """Tracker of the dirty keys of one state.

    Attributes:
        keys: the same dictionary until `swap`, so that loops may hold it.
        is_tracking: a caller has asked for dirty keys, so they are complete since then.
    """

    def __init__(self) -> None:
        self.keys: DirtyKeys = {}
        self.is_tracking = False

    def taken(self) -> DirtyKeys | None:
        """Return the dirty keys since the last call, or None when they are unknown; track keys from now on."""
        keys = self.keys.copy() if self.is_tracking else None
        self.keys.clear()
        self.is_tracking = True
        return keys

    def swap(self) -> DirtyKeys | None:
        """Return the dirty keys without copying them, as `taken`; the caller must give the new `keys` to all code that holds it."""
        keys, self.keys = (self.keys if self.is_tracking else None), {}
        self.is_tracking = True
        return keys

    def note(self, keys: Iterable[Any]) -> None:
        """Mark keys as dirty."""
        if self.is_tracking:
            self.keys.update(dict.fromkeys(keys))

    def invalidate(self) -> None:
        """Stop tracking: the whole state may have changed."""
        self.keys.clear()
        self.is_tracking = False

    def bound(self, held: int) -> None:
        """Stop tracking when there are too many dirty keys for a state with `held` keys."""
        if len(self.keys) > 2 * held + MAX_DIRTY_KEYS:
            self.invalidate()


class WithoutChangeTracking:
    """Base of a state that does not track changes and is saved whole."""

    def take_dirty_keys(self) -> DirtyKeys | None:
        return None

    def begin_snapshot(self, lists: object, waste: object = ()) -> None:
        return None

    def changes(self, keys: DirtyKeys) -> StateChanges:
        raise NotImplementedError(f"{type(self).__name__} tracks no changes")

    def apply(self, changes: StateChanges) -> None:
        raise NotImplementedError(f"{type(self).__name__} tracks no changes")
