"""`KeyGroups`: state that is taken, put back and dropped one key group at a time. `OperatorState`: all that an operator remembers.

One protocol for all operators, on which snapshots, recovery, and the parting and joining of instances rest.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, NoReturn, Protocol

from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges, WithoutChangeTracking
from agiledart_kernel.errors import LocalProtocolError

Division = Literal["by group", "whole", "none"]
"""How state may be parted among instances.

`by group`: each key group by itself; what has no group is the same at all instances of a stage, and each of them holds it.
`whole`: not at all: there is one instance, and all of it moves at once. `none`: there is no state.
"""


class KeyGroups(Protocol):
    """State by key group, whatever holds it and in whatever form.

    A key group is a number from 0 to `KEY_GROUPS` − 1 (of 128 groups); `data.partitioning.key_group` says that of a key, the same
    in every run and on every node. A group holds all that is remembered of its keys: state, open windows, timers.

    It is taken out as bytes: a list of entries, each of which begins with its key, behind the number of their format
    (`PlainCodec`). They are read by the types that the step's code has then, into whatever store and form its state has there;
    one group's bytes say nothing of another's. All of this happens between two batches.

    Raises `StateFormatError` for bytes that the code cannot read, `UserCodeError` for a state that is no plain data, and what the
    store raises.
    """

    def groups(self) -> list[int]:
        """The groups of which something is held, in order."""
        ...

    def snapshot_group(self, group: int) -> bytes:
        """A group as it is now, which stays as it is. One of which nothing is held has bytes, too."""
        ...

    def restore_group(self, group: int, data: bytes) -> None:
        """Put a group in the place of what is held of it; the others stay. The order of several calls does not show."""
        ...

    def drop_group(self, group: int) -> None:
        """Forget a group, its timers with it; nothing when nothing is held of it."""
        ...

    def dirty_keys(self) -> DirtyKeys | None:
        """Keys that may have changed since this was asked last; None: nobody knows, so only a whole snapshot tells."""
        ...

    def changes(self, keys: DirtyKeys) -> StateChanges:
        """What has become of keys. `keys`: all that was noted since a snapshot, so that with it they make the present state."""
        ...

    def begin_snapshot(
        self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()
    ) -> AsyncSnapshot | None:
        """Have the state as it is now encoded bit by bit while it goes on; None: this one cannot, so it is encoded at once.

        Called right behind `noted`. One that is open ends when that is called again, and is finished before groups come or go.

        Args:
            lists: of what was noted: what has become of these keys, as `changes` says it. None: all of it.
            waste: lists that nobody needs any more, to be let go bit by bit, too.
        """
        ...

    def apply(self, changes: StateChanges) -> None:
        """Go on from that snapshot, which has been put back, to the state of which these are. Raises as `restore_group` does."""
        ...


class KeyGroupStore(KeyGroups, Protocol):
    """What holds nothing but key groups."""

    def __len__(self) -> int:
        """How many keys there are; of windows, how many in each of them."""
        ...


class OperatorState(KeyGroups, Protocol):
    """All that an operator remembers between two batches: its key groups, and the rest."""

    @property
    def division(self) -> Division:
        """Whether and how it may be parted."""
        ...

    def snapshot_rest(self) -> bytes:
        """What belongs to no key, b"" where there is nothing such: of a broadcast step what its instances share, of a `whole`
        state all of it.
        """
        ...

    def restore_rest(self, data: bytes) -> None:
        """Put it in the place of what is there."""
        ...


class StateSnapshot(NamedTuple):
    """All of a `OperatorState`: (group, bytes) in order of group, and the rest."""

    groups: list[tuple[int, bytes]]
    rest: bytes


def snapshot_of(state: OperatorState) -> StateSnapshot:
    """All of it, as it is now."""
    return StateSnapshot([(group, state.snapshot_group(group)) for group in state.groups()], state.snapshot_rest())


def restore_state(state: OperatorState, before: StateSnapshot) -> None:
    """Make the state what it was then."""
    for group in state.groups():
        state.drop_group(group)
    for group, data in before.groups:
        state.restore_group(group, data)
    state.restore_rest(before.rest)


class WithoutRest:
    """For a state of which every part belongs to a key."""

    def snapshot_rest(self) -> bytes:
        return b""

    def restore_rest(self, data: bytes) -> None:
        if data:
            raise LocalProtocolError(f"{type(self).__name__} keeps nothing but what belongs to a key")


class WithoutGroups(WithoutChangeTracking):
    """For a state that cannot be parted: there are no groups to ask for."""

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
        raise LocalProtocolError(f"{type(self).__name__} keeps no state by key, so it has no key group {group}")


class NoState(WithoutGroups, WithoutRest):
    """Of a stage without an operator: unions, sinks, steps that treat each row by itself."""

    division: Division = "none"


NO_STATE: Final = NoState()
