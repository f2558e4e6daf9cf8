"""`AsyncInstanceSnapshot`: snapshot of an instance at a barrier, most of whose state is encoded after the barrier.

The parts before and after the state were encoded at the barrier: queues, watermarks, counts. All pieces in order are the bytes
that `Instance.restore` reads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.plain_codec import array_header

_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class AsyncStateSnapshot:
    """State as of a barrier that is not fully encoded yet.

    Attributes:
        groups: its key groups; of an increment, the changes in them.
        is_whole: False for an increment.
        rest: the part that belongs to no key.
        encoded: callback for when all is encoded.
    """

    groups: AsyncSnapshot
    is_whole: bool
    rest: bytes
    encoded: Callable[[], None]


class AsyncInstanceSnapshot:
    """Snapshot of one instance at one barrier.

    Args:
        count: number of parts of the snapshot.
        before, behind: encoded parts before and after the state.
        state: state snapshot, begun at the barrier.
    """

    def __init__(self, count: int, before: bytes, state: AsyncStateSnapshot, behind: bytes) -> None:
        self._state, self._groups = state, state.groups
        parts = array_header(2)
        self._before: list[bytes] = [array_header(count) + before + parts]  # of a `StateSnapshot`, or of an `Increment`
        self._behind = _ENCODER.encode(state.rest) + behind
        if not state.is_whole:
            self._before.append(parts)  # of `StateChanges`
            self._behind = _ENCODER.encode(state.groups.common) + self._behind
        self._has_reported_end = False

    @property
    def is_dropped(self) -> bool:
        """True when it will never be whole, because another barrier has come."""
        return self._groups.is_dropped

    @property
    def is_over(self) -> bool:
        """True when all of it is encoded."""
        return self._groups.is_over

    @property
    def keys(self) -> tuple[int, int]:
        """Number of keys that are encoded, and number that may be left."""
        return self._groups.keys, self._groups.left

    def step(self) -> bool:
        """Encode a little more, about a tenth of a millisecond; False when nothing is left.

        Raises:
            UserCodeError: a key's state is not plain data.
        """
        return self._groups.step()

    def taken(self) -> list[bytes]:
        """Return the pieces that became ready since the last call, in order."""
        ready = self._before + self._groups.taken()
        self._before = []
        if self.is_over and not self.is_dropped and not self._has_reported_end:
            self._has_reported_end = True
            self._state.encoded()
            ready.append(self._behind)
        return ready

    def drop(self) -> None:
        """Cancel the snapshot: no caller needs it any more."""
        self._groups.drop()
