"""Snapshots of an instance's state at barriers: the whole state, or the changes since a committed snapshot.

    no base      every snapshot is full, until one of them is committed: that is the base
    a base       changes since it, as one more link of its chain; full where that would not pay, or the chain is long enough
    committed    the snapshot of that barrier is the base, and the changes before it are forgotten: not earlier, so nothing is
                 lost with an epoch that is never committed

A state that supports it is encoded asynchronously: the state as of the barrier is encoded bit by bit, and its size is known at
the end. So an increment is judged worthwhile by the average size of its keys. Any other state is encoded here.

Lists of changed keys are stored by barrier. All changes since the base are in them, whether or not the epochs between were
committed. Source: recovery specification §11.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from agiledart_dataflow.state.async_instance_snapshot import AsyncStateSnapshot
from agiledart_dataflow.state.dirty_keys import MAX_DIRTY_KEYS, DirtyKeys, Increment, StateChanges, dirty_count
from agiledart_dataflow.state.key_groups import OperatorState, StateSnapshot, snapshot_of

LEAST: Final = 64 << 10
"""Bytes of a state that is always saved in full: a chain of small files would cost more than it saves."""

MAX_LINKS: Final = 11
"""Snapshots of a chain: a full one and ten increments."""

WORTH: Final = 0.5
"""Share of the full snapshot's size that all its increments may have: so at most one and a half of it is ever fetched."""

MAX_SINCE: Final = 4
"""Epochs in a row without a commit, after which the next snapshot is full: the replica nodes may never get the changes."""


@dataclass(frozen=True, slots=True)
class _Link:
    """A barrier's snapshot: its base, the length of its chain, and the sizes of the full snapshot and of all increments.

    `keys`: number of keys in the full snapshot; 0: not counted.
    """

    onto: bytes
    links: int
    whole: int
    changed: int
    keys: int = 0
    digest: bytes = b""


class Increments:
    """Increments of one instance.

    Args:
        state: of its operator.
        least: bytes of a full snapshot from which on increments pay.
    """

    def __init__(self, state: OperatorState, least: int = LEAST) -> None:
        self._state, self._least = state, least
        self._lists: dict[int, DirtyKeys] = {}
        self._open: dict[int, _Link] = {}
        self._base: tuple[int, _Link] | None = None
        self._waste: list[DirtyKeys] = []  # lists that are no longer needed
        # a store splits its keys by group at the first request: now, while it has none, and then as they come
        state.groups()

    def at(self, barrier: int, *, is_last: bool = False) -> StateSnapshot | Increment | AsyncStateSnapshot:
        """Return the state as of a barrier, for a snapshot whose `onto` names its base.

        `is_last`: the instance hands it over, so an increment pays as long as it is smaller than the full state: the new owner
        has already preloaded the base. All of it is then encoded here, because the new owner waits for it.
        """
        dirty_keys = self._state.take_dirty_keys()
        if dirty_keys is None:
            self._forget()  # the changes since then are unknown
        else:
            self._lists[barrier] = dirty_keys
        return self._increment(barrier, is_last=is_last) or self._whole(barrier, opens=not is_last)

    def at_end(self) -> StateSnapshot | AsyncStateSnapshot:
        """Return the full final state, after which nothing changes any more."""
        self._state.take_dirty_keys()
        self._forget()
        return self._whole(0)

    def _whole(self, barrier: int, *, opens: bool = True) -> StateSnapshot | AsyncStateSnapshot:
        groups = self._state.begin_snapshot(None, self._given_up()) if opens else None
        if groups is not None:
            link = _Link(b"", 1, 0, 0)
            self._open[barrier] = link

            def encoded() -> None:
                self._weighed(barrier, link, replace(link, whole=groups.size, keys=groups.keys))

            return AsyncStateSnapshot(groups, True, self._state.snapshot_rest(), encoded)
        state = snapshot_of(self._state)
        self._open[barrier] = _Link(b"", 1, sum(len(data) for _, data in state.groups), 0)
        return state

    def _weighed(self, barrier: int, link: _Link, now: _Link) -> None:
        """Store the size of a fully encoded snapshot; do nothing when the changes since then are unknown."""
        if self._open.get(barrier) is link:
            self._open[barrier] = now

    def _given_up(self) -> list[DirtyKeys]:
        waste, self._waste = self._waste, []
        return waste

    def onto(self, barrier: int) -> bytes:
        """Return the base of this barrier's snapshot; empty: the snapshot is full."""
        link = self._open.get(barrier)
        return b"" if link is None else link.onto

    def written(self, barrier: int, digest: bytes) -> None:
        """Note that a snapshot is on the disk."""
        link = self._open.get(barrier)
        if link is not None:
            self._open[barrier] = replace(link, digest=digest)

    def committed(self, barrier: int) -> None:
        """Note that the epoch of a barrier is committed, with this instance's snapshot."""
        link = self._open.get(barrier)
        if link is None or not link.digest:
            return  # of an earlier attempt, or reported again
        self._base = barrier, link
        self._open = {number: entry for number, entry in self._open.items() if number > barrier}
        if link.keys:  # the next snapshot is asynchronous too, and frees these lists bit by bit
            self._waste += [entry for number, entry in self._lists.items() if number <= barrier]
        else:
            self._waste = []
        self._lists = {number: entry for number, entry in self._lists.items() if number > barrier}

    def _forget(self) -> None:
        """Forget the changes: snapshots so far can be no base any more, even if their commit is still to come."""
        self._waste += self._lists.values()
        self._base, self._lists, self._open = None, {}, {}

    def _increment(self, barrier: int, *, is_last: bool) -> Increment | AsyncStateSnapshot | None:
        """Return the changes since the base, where there is a base and an increment pays."""
        if self._base is None:
            return None
        since, base = self._base
        lists = [self._lists[number] for number in sorted(self._lists)]
        count = sum(map(dirty_count, lists))
        if count > MAX_DIRTY_KEYS + 2 * base.whole:  # a byte is the least size of a key
            self._forget()
            return None
        is_due = base.links >= MAX_LINKS or barrier - since > MAX_SINCE
        if base.whole < self._least or (is_due and not is_last):
            return None
        if base.keys and not is_last:
            if base.changed + count * base.whole // base.keys > WORTH * base.whole:
                return None
            groups = self._state.begin_snapshot(lists, self._given_up())
            if groups is not None:
                link = replace(base, onto=base.digest, links=base.links + 1, digest=b"")
                self._open[barrier] = link

                def encoded() -> None:
                    self._weighed(barrier, link, replace(link, changed=base.changed + groups.size))

                return AsyncStateSnapshot(groups, False, self._state.snapshot_rest(), encoded)
        changes = self._state.changes(dict.fromkeys(chain.from_iterable(lists)))
        size = base.changed + _size(changes)
        if (_size(changes) > base.whole) if is_last else (size > WORTH * base.whole):
            return None
        self._open[barrier] = _Link(base.digest, base.links + 1, base.whole, size)
        return Increment(changes, self._state.snapshot_rest())


def _size(changes: StateChanges) -> int:
    return sum(len(data) for _, data in changes.groups) + len(changes.common)
