"""`AsyncInstanceSnapshot`: what an instance says of itself at a barrier, while most of its state is not encoded yet.

What stands before and behind the state was encoded at the barrier: queues, marks, counts. All pieces behind each other are the
bytes that `Instance.restore` reads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.plain_codec import array_header

_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class AsyncStateSnapshot:
    """A state as of a barrier, of which not all is encoded.

    Attributes:
        groups: its key groups; of an increment, what has changed in them.
        is_whole: it is no increment.
        rest: what belongs to no key.
        encoded: to be called when all is encoded.
    """

    groups: AsyncSnapshot
    is_whole: bool
    rest: bytes
    encoded: Callable[[], None]


class AsyncInstanceSnapshot:
    """Of one instance at one barrier.

    Args:
        before, behind: what stands around the state, of the `count` parts of an element.
        state: opened at the barrier.
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
        """It will never be whole: another barrier has come."""
        return self._groups.is_dropped

    @property
    def is_over(self) -> bool:
        """All of it is encoded."""
        return self._groups.is_over

    @property
    def keys(self) -> tuple[int, int]:
        """How many keys are encoded, and how many may be left."""
        return self._groups.keys, self._groups.left

    def step(self) -> bool:
        """Encode a little more, some tenth of a millisecond; False when nothing is left.

        Raises:
            UserCodeError: a key's state is no plain data.
        """
        return self._groups.step()

    def taken(self) -> list[bytes]:
        """What is ready since this was asked last, in order."""
        ready = self._before + self._groups.taken()
        self._before = []
        if self.is_over and not self.is_dropped and not self._has_reported_end:
            self._has_reported_end = True
            self._state.encoded()
            ready.append(self._behind)
        return ready

    def drop(self) -> None:
        """Nobody wants it any more."""
        self._groups.drop()
