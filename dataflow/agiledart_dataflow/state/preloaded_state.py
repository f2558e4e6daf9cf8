"""What an instance of a term to come has built of the state of one of the term before, before that one stops.

    built     as of an element that is committed, from its chain: a whole one, and what has changed since
    missing   links that have come since are put on it, each onto the one that it names and no other
    another   what lies on something else than the chain says is built anew

Each share is a state by itself, so that what has changed in the state of one instance is put on the state of this one: whoever
takes over joins them when it begins, as if they had stood beside it. The largest is built where it is to stay.
Source: scaling specification, section 8, steps 1, 2 and 6.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from agiledart_dataflow.state.dirty_keys import Increment, StateChanges
from agiledart_dataflow.state.key_groups import OperatorState
from agiledart_dataflow.state.restoring_from_run import increment_in, state_snapshot_in
from agiledart_dataflow.state.snapshot_reader import SnapshotReader
from agiledart_kernel.errors import OperationFailed

SLICE_BYTES: Final = 64 << 10
"""Of changes that are put in place in one go: below a millisecond of work."""

MAX_SLICES: Final = 64
"""In how many slices changes are put in place at most: each looks at all timers that wait."""


class PreloadedState:
    """One instance's share of the state of one of the term before.

    Args:
        state: nothing is remembered there yet.
        groups: of its keys.

    Attributes:
        digest: the element as of which it is; empty: it is not built, or something went wrong while it was.
    """

    def __init__(self, state: OperatorState, groups: dict[int, None]) -> None:
        self.state, self.groups = state, groups
        self.digest = b""

    def missing(self, chain: Sequence[bytes]) -> list[bytes]:
        """Of a chain of elements, those that are still to be put on what is here; all, where it lies on none of them."""
        return list(chain[chain.index(self.digest) + 1 :] if self.digest in chain else chain)

    def put(self, digest: bytes, onto: bytes, snapshot: bytes) -> Iterator[None]:
        """Go on to an element, in slices of some milliseconds: ask for the next one until there is none.

        Args:
            digest, onto: which element, and the one that it rests on; empty: it is whole.
            snapshot: what it says.

        Raises:
            OperationFailed: it rests on another element than what is here.
            StateFormatError, msgspec.MsgspecError: it cannot be read.
        """
        if onto and onto != self.digest:
            raise OperationFailed("what has changed rests on another element than what was built beforehand")
        self.digest = b""
        yield from self._changed(increment_in(snapshot)) if onto else self._whole(snapshot)
        self.digest = digest

    def clear(self) -> None:
        """Forget all that is here."""
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
        if changes.common:  # it says what is left of all groups
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
