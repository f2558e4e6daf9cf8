"""`Alignment`: which barriers have come through which inputs. A barrier is a numbered mark of a checkpoint in the stream.

What lies before barrier n on every channel, and nothing else, belongs to snapshot n. Inputs in order of arrival hold a
channel back behind its barrier until the others have it too. Inputs merged by position need not: what was taken too
early is known by its position and dropped when it is sent again (decision 0014).
Source: asynchronous barrier snapshots; design of the data path, exactly-once effect.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from agiledart_kernel.errors import RemoteProtocolError

C = TypeVar("C", bound=Hashable)


class Alignment(Generic[C]):
    """Counts the barriers of several inputs; an input that has ended holds nobody up.

    Attributes:
        complete: the last barrier that has come through all inputs.
    """

    __slots__ = ("_ended", "_passed", "complete")

    def __init__(self, channels: Iterable[C]) -> None:
        self._passed: dict[C, int] = dict.fromkeys(channels, 0)
        self._ended: dict[C, bool] = dict.fromkeys(self._passed, False)
        self.complete = 0

    def is_ahead(self, channel: C) -> bool:
        """Has this input passed a barrier that another one has not?"""
        return self._passed[channel] > self.complete

    def passed(self, channel: C) -> int:
        """The last barrier of this input."""
        return self._passed[channel]

    def reach(self, channel: C, barrier: int) -> None:
        """A barrier has come through an input. Raises RemoteProtocolError (`barrier`) when it is not the next one."""
        if barrier != self._passed[channel] + 1 or self._ended[channel]:
            raise RemoteProtocolError("barrier", f"barrier {barrier} after barrier {self._passed[channel]}")
        self._passed[channel] = barrier

    def take_in(self, channel: C, barrier: int) -> None:
        """Another input, of a new term: it counts as having passed this barrier, the one that told of it."""
        self._passed[channel], self._ended[channel] = barrier, False

    def leave(self, channel: C) -> None:
        """An input has given its last barrier, and others go on for it."""
        del self._passed[channel], self._ended[channel]

    def end(self, channel: C) -> None:
        """An input has ended: no barrier waits for it any more."""
        self._ended[channel] = True

    def advance(self) -> bool:
        """True when one more barrier has come through all inputs; `complete` is its number. Call until False."""
        open_ones = [passed for channel, passed in self._passed.items() if not self._ended[channel]]
        least = min(open_ones) if open_ones else max(self._passed.values())
        if least <= self.complete:
            return False
        self.complete += 1
        return True

    def snapshot(self, barrier: int = 0) -> tuple[list[tuple[int, bool]], int]:
        """((last barrier, ended) of each input in order, the last that is complete).

        With a barrier: as it was when that was complete. What an input sent after it will come again, its end too.
        """
        if barrier:
            passed = [(min(one, barrier), one < barrier) for one in self._passed.values()]
            return passed, barrier
        return [(one, self._ended[channel]) for channel, one in self._passed.items()], self.complete

    def restore(self, plain: tuple[list[tuple[int, bool]], int], channels: Iterable[C]) -> None:
        """Go back to a snapshot, of these channels. One that is not among them is as all are behind the barrier; one that is
        not here any more does not count.
        """
        inputs, self.complete = plain
        for channel in self._passed:
            self._passed[channel], self._ended[channel] = self.complete, False
        for channel, (passed, ended) in zip(channels, inputs, strict=True):
            if channel in self._passed:
                self._passed[channel], self._ended[channel] = passed, ended

    def count_from(self, barrier: int) -> None:
        """The next barrier is the one behind this: those so far were another run's, or an earlier epoch was gone back to."""
        self._passed, self.complete = dict.fromkeys(self._passed, barrier), barrier
