"""`Alignment`: the barriers that have come through each input. A barrier is a numbered marker of a checkpoint in the stream.

Everything before barrier n on every channel, and nothing else, belongs to snapshot n. Inputs in order of arrival hold a channel
back behind its barrier until the others have it too. Inputs merged by position need not: a row that was taken too early is
recognised by its position and dropped when it is sent again (decision 0014). Source: asynchronous barrier snapshots; design of
the data path, exactly-once effect.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from agiledart_kernel.errors import RemoteProtocolError

C = TypeVar("C", bound=Hashable)


class Alignment(Generic[C]):
    """Counter of the barriers of several inputs; an input that has ended delays no barrier.

    Attributes:
        complete: the last barrier that has come through all inputs.
    """

    __slots__ = ("_ended", "_passed", "complete")

    def __init__(self, channels: Iterable[C]) -> None:
        self._passed: dict[C, int] = dict.fromkeys(channels, 0)
        self._ended: dict[C, bool] = dict.fromkeys(self._passed, False)
        self.complete = 0

    def is_ahead(self, channel: C) -> bool:
        """Report whether this input has passed a barrier that another one has not."""
        return self._passed[channel] > self.complete

    def passed(self, channel: C) -> int:
        """Return the last barrier of this input."""
        return self._passed[channel]

    def reach(self, channel: C, barrier: int) -> None:
        """Note that a barrier has come through an input. Raises RemoteProtocolError (`barrier`) when it is not the next one."""
        if barrier != self._passed[channel] + 1 or self._ended[channel]:
            raise RemoteProtocolError("barrier", f"barrier {barrier} after barrier {self._passed[channel]}")
        self._passed[channel] = barrier

    def take_in(self, channel: C, barrier: int) -> None:
        """Add an input of a new generation; it counts as having passed the barrier that announced it."""
        self._passed[channel], self._ended[channel] = barrier, False

    def leave(self, channel: C) -> None:
        """Remove an input that has given its last barrier; other inputs continue it."""
        del self._passed[channel], self._ended[channel]

    def end(self, channel: C) -> None:
        """Note that an input has ended: no barrier waits for it any more."""
        self._ended[channel] = True

    @property
    def has_ended(self) -> bool:
        """Return whether all inputs have ended."""
        return all(self._ended.values())

    def advance(self) -> bool:
        """Advance `complete` by one barrier that has come through all inputs, and return True; call until it returns False."""
        open_barriers = [passed for channel, passed in self._passed.items() if not self._ended[channel]]
        least = min(open_barriers) if open_barriers else max(self._passed.values())
        if least <= self.complete:
            return False
        self.complete += 1
        return True

    def snapshot(self, barrier: int = 0) -> tuple[list[tuple[int, bool]], int]:
        """Return ((last barrier, ended) of each input in order, the last complete barrier).

        With a barrier: the state at the time when that was complete. Whatever an input sent after it will come again, its end
        too.
        """
        if barrier:
            passed = [(min(last_passed, barrier), last_passed < barrier) for last_passed in self._passed.values()]
            return passed, barrier
        return [(last_passed, self._ended[channel]) for channel, last_passed in self._passed.items()], self.complete

    def restore(self, plain: tuple[list[tuple[int, bool]], int], channels: Iterable[C]) -> None:
        """Restore a snapshot of these channels.

        A present channel that is not in it stands at the barrier, as all do; a channel of the snapshot that is gone is ignored.
        """
        inputs, self.complete = plain
        for channel in self._passed:
            self._passed[channel], self._ended[channel] = self.complete, False
        for channel, (passed, ended) in zip(channels, inputs, strict=True):
            if channel in self._passed:
                self._passed[channel], self._ended[channel] = passed, ended

    def count_from(self, barrier: int) -> None:
        """Continue with the barrier after this one: earlier barriers belong to another run, or the run was rolled back."""
        self._passed, self.complete = dict.fromkeys(self._passed, barrier), barrier
