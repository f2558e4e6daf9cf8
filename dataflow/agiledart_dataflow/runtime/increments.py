"""What an instance says of its state at a barrier: all of it, or what has changed since an element that is committed.

    no base      every element is whole, until one of them is committed: that is the base
    a base       changes since it, as one link more of its chain; whole where that would not pay, or the chain is long enough
    committed    the element of that barrier is the base, and what had changed before it is forgotten: not earlier, so nothing is
                 lost with an epoch that is never committed

A state that can is opened: what it was at the barrier is encoded bit by bit, and what it weighs is known at the end. So whether an
increment pays is judged by what its keys weigh on average. Any other one is encoded here.

Lists of changed keys lie by barrier. What changed since the base is in all of them, whatever became of the epochs between.
Source: recovery specification §11.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from agiledart_dataflow.state.async_instance_snapshot import AsyncStateSnapshot
from agiledart_dataflow.state.dirty_keys import MAX_DIRTY_KEYS, DirtyKeys, Increment, StateChanges, dirty_count
from agiledart_dataflow.state.key_groups import OperatorState, StateSnapshot, snapshot_of

LEAST: Final = 64 << 10
"""Bytes of a state that is always saved whole: a chain of small files would cost more than it spares."""

MAX_LINKS: Final = 11
"""Elements of a chain: a whole one and ten that say what has changed."""

WORTH: Final = 0.5
"""Of a whole one's size what all changes behind it may have: so no more than one and a half of it is ever fetched."""

MAX_SINCE: Final = 4
"""Epochs in a row that nobody committed, after which the next is whole: whoever was to take up the changes may never."""


@dataclass(frozen=True, slots=True)
class _Link:
    """An element of a barrier: which one it rests on, how many its chain has, the sizes of the first and of those behind it, and
    how many keys the first has; 0: nobody counted them.
    """

    onto: bytes
    links: int
    whole: int
    changed: int
    keys: int = 0
    digest: bytes = b""


class Increments:
    """Of one instance.

    Args:
        state: of its operator.
        least: bytes of a whole one from which on increments pay.
    """

    def __init__(self, state: OperatorState, least: int = LEAST) -> None:
        self._state, self._least = state, least
        self._lists: dict[int, DirtyKeys] = {}
        self._open: dict[int, _Link] = {}
        self._base: tuple[int, _Link] | None = None
        self._waste: list[DirtyKeys] = []  # lists that are not needed any more
        state.groups()  # a store parts its keys when it is first asked: now, that it has none, and then as they come

    def at(self, barrier: int, *, is_last: bool = False) -> StateSnapshot | Increment | AsyncStateSnapshot:
        """The state as of a barrier, for an element whose `onto` says what it rests on. `is_last`: it is what an instance hands
        over, so an increment pays as long as it is smaller than all of it: who takes over has built what it rests on. And all of
        it is encoded here: somebody waits for it.
        """
        dirty_keys = self._state.dirty_keys()
        if dirty_keys is None:
            self._forget()  # nobody knows what has changed since
        else:
            self._lists[barrier] = dirty_keys
        return self._increment(barrier, is_last=is_last) or self._whole(barrier, opens=not is_last)

    def at_end(self) -> StateSnapshot | AsyncStateSnapshot:
        """The state behind which nothing changes any more, whole."""
        self._state.dirty_keys()
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
        """All of an element is encoded; nothing where nobody knows any more what has changed since."""
        if self._open.get(barrier) is link:
            self._open[barrier] = now

    def _given_up(self) -> list[DirtyKeys]:
        waste, self._waste = self._waste, []
        return waste

    def onto(self, barrier: int) -> bytes:
        """The element that this barrier's rests on; empty: it is whole."""
        link = self._open.get(barrier)
        return b"" if link is None else link.onto

    def written(self, barrier: int, digest: bytes) -> None:
        """An element is on the disk."""
        link = self._open.get(barrier)
        if link is not None:
            self._open[barrier] = replace(link, digest=digest)

    def committed(self, barrier: int) -> None:
        """The epoch of a barrier is committed, with this instance's element of it."""
        link = self._open.get(barrier)
        if link is None or not link.digest:
            return  # of a life before, or told again
        self._base = barrier, link
        self._open = {one: each for one, each in self._open.items() if one > barrier}
        if link.keys:  # the next element is opened, too, and takes them bit by bit
            self._waste += [each for one, each in self._lists.items() if one <= barrier]
        else:
            self._waste = []
        self._lists = {one: each for one, each in self._lists.items() if one > barrier}

    def _forget(self) -> None:
        """Changes are known no more: what rests on an element so far, also where its commit is still to come, would lack them."""
        self._waste += self._lists.values()
        self._base, self._lists, self._open = None, {}, {}

    def _increment(self, barrier: int, *, is_last: bool) -> Increment | AsyncStateSnapshot | None:
        """What has changed since the base, where there is one and it pays."""
        if self._base is None:
            return None
        since, base = self._base
        lists = [self._lists[number] for number in sorted(self._lists)]
        count = sum(map(dirty_count, lists))
        if count > MAX_DIRTY_KEYS + 2 * base.whole:  # a byte is the least that a key takes
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
