"""State that an instance of the next generation builds from an instance of the present one, before the latter stops.

    built     as of a committed snapshot, from its chain: a whole one, and the increments since
    missing   later links are added, each onto the snapshot that it names and no other
    another   state that rests on a snapshot outside of the chain is built anew

Each share is a state of its own, so that changes of one instance's state apply to the copy of that state: the instance that takes
over joins the shares when it begins. The largest share is built in its final place. Source: scaling specification, section 8, steps
1, 2 and 6.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from agiledart_dataflow.state.dirty_keys import Increment, StateChanges
from agiledart_dataflow.state.key_groups import OperatorState
from agiledart_dataflow.state.restoring_from_run import increment_in, state_snapshot_in
from agiledart_dataflow.state.snapshot_reader import SnapshotReader
from agiledart_kernel.errors import OperationFailed

SLICE_BYTES: Final = 64 << 10
"""Bytes of changes that one slice applies: below a millisecond of work."""

MAX_SLICES: Final = 64
"""Most slices in which changes are applied: each slice looks at all waiting timers."""


class PreloadedState:
    """One instance's share of the state of an instance of the previous generation.

    Args:
        state: an empty state.
        groups: of its keys.

    Attributes:
        digest: the snapshot that it has; empty: it is not built, or building it failed.
    """

    def __init__(self, state: OperatorState, groups: dict[int, None]) -> None:
        self.state, self.groups = state, groups
        self.digest = b""

    def missing(self, chain: Sequence[bytes]) -> list[bytes]:
        """Return the snapshots of a chain that are still to be added; all, where the present state is none of them."""
        return list(chain[chain.index(self.digest) + 1 :] if self.digest in chain else chain)

    def put(self, digest: bytes, onto: bytes, snapshot: bytes) -> Iterator[None]:
        """Advance to a snapshot, in slices of some milliseconds each; iterate until the end.

        Args:
            digest, onto: the snapshot, and the one that it rests on; empty: it is whole.
            snapshot: its bytes.

        Raises:
            OperationFailed: it rests on another snapshot than the present state.
            StateFormatError, msgspec.MsgspecError: it cannot be read.
        """
        if onto and onto != self.digest:
            raise OperationFailed("the increment rests on another snapshot than the preloaded state")
        self.digest = b""
        yield from self._changed(increment_in(snapshot)) if onto else self._whole(snapshot)
        self.digest = digest

    def clear(self) -> None:
        """Drop all state."""
        self.digest = b""
        for group in self.state.groups():
            self.state.drop_group(group)

    def _whole(self, snapshot: bytes) -> Iterator[None]:
        for group in self.state.groups():
            self.state.drop_group(group)
        reader = SnapshotReader(snapshot)
        for group, data in reader.groups():
            if group in self.groups:
                self.state.restore_group(group, data)
                yield
        self.state.restore_rest(state_snapshot_in(reader.remainder()).rest)

    def _changed(self, increment: Increment) -> Iterator[None]:
        changes, rest = increment
        mine = [(group, data) for group, data in changes.groups if group in self.groups]
        if changes.common:  # the common part covers all groups, so they must be applied together
            self.state.apply(StateChanges(mine, changes.common))
        else:
            for part in _slices(mine):
                self.state.apply(StateChanges(part))
                yield
        self.state.restore_rest(rest)


def _slices(groups: Sequence[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    most = max(SLICE_BYTES, sum(len(data) for _, data in groups) // MAX_SLICES)
    part: list[tuple[int, bytes]] = []
    size = 0
    for group, data in groups:
        part.append((group, data))
        size += len(data)
        if size >= most:
            yield part
            part, size = [], 0
    if part:
        yield part
