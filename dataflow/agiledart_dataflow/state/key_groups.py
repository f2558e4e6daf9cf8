"""`KeyGroups`: state that is saved, restored and dropped one key group at a time. `OperatorState`: all state of an operator.

All operators share this protocol; snapshots, recovery, and the splitting and joining of instances rest on it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, NoReturn, Protocol

from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges, WithoutChangeTracking
from agiledart_kernel.errors import LocalProtocolError

Division = Literal["by group", "whole", "none"]
"""Ways to divide state among instances.

`by group`: each key group by itself; the part without a group is the same at all instances of a stage, and each of them holds it.
`whole`: not at all: there is one instance, and all of it moves at once. `none`: there is no state.
"""


class KeyGroups(Protocol):
    """State by key group, in any store and form.

    A key group is a number from 0 to `KEY_GROUPS` − 1 (of 128 groups); `data.partitioning.key_group` computes it from a key, the
    same in every run and on every node. A group holds everything about its keys: state, open windows, timers.

    It is saved as bytes: a list of entries, each of which begins with its key, after the number of their format (`PlainCodec`).
    They are read by the types that the step's code has then, into the store and form of that code; the bytes of groups are
    independent of each other. All calls happen between two batches.

    Raises `StateFormatError` for bytes that the code cannot read, `UserCodeError` for a state that is not plain data, and the
    errors of the store.
    """

    def groups(self) -> list[int]:
        """Return the groups that have keys, in order."""
        ...

    def snapshot_group(self, group: int) -> bytes:
        """Return the bytes of a group as it is now; the state stays as it is. An empty group has bytes, too."""
        ...

    def restore_group(self, group: int, data: bytes) -> None:
        """Replace a group; the others stay. The order of several calls makes no difference."""
        ...

    def drop_group(self, group: int) -> None:
        """Drop a group with its timers; nothing happens when it is empty."""
        ...

    def take_dirty_keys(self) -> DirtyKeys | None:
        """Return the keys that may have changed since the last call; None: unknown, so only a whole snapshot is right."""
        ...

    def changes(self, keys: DirtyKeys) -> StateChanges:
        """Return the changes of keys. `keys`: all dirty keys since a snapshot, so that both together give the present state."""
        ...

    def begin_snapshot(
        self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()
    ) -> AsyncSnapshot | None:
        """Begin to encode the present state in small steps while it changes; None: this state must be encoded at once.

        Called right after `take_dirty_keys`. The next call of that cancels an open snapshot.
        Before groups come or go, an open snapshot is finished.

        Args:
            lists: of dirty keys: the changes of these keys, in the form of `changes`. None: all state.
            waste: lists that are not needed any more, to be freed in small steps, too.
        """
        ...

    def apply(self, changes: StateChanges) -> None:
        """Apply changes to the restored snapshot on which they rest. Raises as `restore_group` does."""
        ...


class KeyGroupStore(KeyGroups, Protocol):
    """Store that holds key groups only."""

    def __len__(self) -> int:
        """Return the number of keys; of windows, the sum over all windows."""
        ...


class OperatorState(KeyGroups, Protocol):
    """All state of an operator between two batches: its key groups, and the rest."""

    @property
    def division(self) -> Division:
        """Way to divide the state among instances."""
        ...

    def snapshot_rest(self) -> bytes:
        """Return the part that belongs to no key, b"" where there is none.

        Of a broadcast step it is the state that its instances share, of a `whole` state all of it.
        """
        ...

    def restore_rest(self, data: bytes) -> None:
        """Replace the part that belongs to no key."""
        ...


class StateSnapshot(NamedTuple):
    """Snapshot of all of an `OperatorState`: (group, bytes) in order of group, and the rest."""

    groups: list[tuple[int, bytes]]
    rest: bytes


def snapshot_of(state: OperatorState) -> StateSnapshot:
    """Return a snapshot of all state, as it is now."""
    return StateSnapshot([(group, state.snapshot_group(group)) for group in state.groups()], state.snapshot_rest())


def restore_state(state: OperatorState, before: StateSnapshot) -> None:
    """Restore a state from a snapshot."""
    for group in state.groups():
        state.drop_group(group)
    for group, data in before.groups:
        state.restore_group(group, data)
    state.restore_rest(before.rest)


class WithoutRest:
    """Base of a state whose every part belongs to a key."""

    def snapshot_rest(self) -> bytes:
        return b""

    def restore_rest(self, data: bytes) -> None:
        if data:
            raise LocalProtocolError(f"{type(self).__name__} has no state beside that of its keys")


class WithoutGroups(WithoutChangeTracking):
    """Base of a state that cannot be divided: it has no groups."""

    division: Division = "whole"

    def groups(self) -> list[int]:
        return []

    def snapshot_group(self, group: int) -> bytes:
        self._refuse(group)

    def restore_group(self, group: int, data: bytes) -> None:
        self._refuse(group)

    def drop_group(self, group: int) -> None:
        self._refuse(group)

    def _refuse(self, group: int) -> NoReturn:
        raise LocalProtocolError(f"{type(self).__name__} has no state by key, so it has no key group {group}")


class NoState(WithoutGroups, WithoutRest):
    """State of a stage without an operator: unions, sinks, steps that treat each row by itself."""

    division: Division = "none"


NO_STATE: Final = NoState()
