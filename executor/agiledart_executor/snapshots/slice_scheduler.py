"""When instances that are being saved encode some more of their state: slices between batches, on the loop that rows pass.

    rows flow       a slice of 1 ms every 10 ms; longer ones where that would take seconds, so that epochs do not wait for it
    there is much   so large a share of the time that all that is open is done within a third of what an epoch may take: first
                    slices are longer, then they come sooner, and where rows leave too little between them they are longer still
    nothing came    since the last slice: the next one at once, behind a look at the sockets
    the disk waits  the next one after 10 ms, however idle
    nothing open    no timer

Source: recovery specification §11.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

SLICE_NS: Final = 1_000_000
"""How long a slice takes, about; what it encodes last may take longer."""

LONGEST_SLICES: Final = 3
"""So many times that, for what has been open for long."""

LONG_NS: Final = 4_000_000_000
"""After so long a slice is one time longer."""

PAUSE_SECONDS: Final = 0.009
"""For rows, between two slices."""

WITHIN_NS: Final = 20_000_000_000
"""What is open is to be done by then. An epoch may take three times that, and elements are sent to holders, too."""

MAX_SLICE_SHARE: Final = 9.0
"""Slices take at most so many times what rows have: an epoch that comes late is better than none, but rows go on."""

MAX_PAUSE_NS: Final = 20_000_000
"""What counts of the time of rows between two slices: a process that had stood still would have a slice as long."""


class SlicedWork(Protocol):
    """What is done in slices.

    Attributes:
        waits: for something else than its next slice.
    """

    waits: bool

    @property
    def left_ns(self) -> int:
        """How long it still takes, about; 0: nobody knows."""
        ...

    def slice(self, until_ns: int) -> bool:
        """Go on until then; False when nothing is left to do. Does not raise."""
        ...


class SliceScheduler:
    """Of one executor; one thing after the other, in the order in which they came.

    Args:
        loop: on which rows pass.

    Attributes:
        calls: a number that grows whenever an instance works.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: deque[tuple[SlicedWork, int]] = deque()
        self._timer: asyncio.Handle | None = None
        self._seen = -1
        self._ended_ns = 0  # the last slice
        self.calls: Callable[[], int] = lambda: 0

    def begin(self, sliced: SlicedWork) -> None:
        """From the next gap on."""
        now = time.monotonic_ns()
        if not self._open:
            self._ended_ns = now
        self._open.append((sliced, now))
        if self._timer is None:
            self._timer = self._loop.call_later(PAUSE_SECONDS, self._run_slice)

    def _run_slice(self) -> None:
        self._timer = None
        if not self._open:
            return
        sliced, since_ns = self._open[0]
        is_idle, more = self._seen == self.calls(), False
        now = time.monotonic_ns()
        times = self._times(now)
        usual_ns = SLICE_NS * min(LONGEST_SLICES, 1 + (now - since_ns) // LONG_NS)
        try:
            more = sliced.slice(now + max(usual_ns, int(min(now - self._ended_ns, MAX_PAUSE_NS) * times)))
        finally:
            self._seen, self._ended_ns = self.calls(), time.monotonic_ns()  # a slice is a call, too
            if not more and self._open:
                self._open.popleft()
            if self._open and self._timer is None:  # what is over may have begun another
                if is_idle and not self._open[0][0].waits:
                    self._timer = self._loop.call_soon(self._run_slice)
                else:
                    gap = PAUSE_SECONDS if self._open[0][0].waits else self._pause_seconds(times)
                    self._timer = self._loop.call_later(gap, self._run_slice)

    def _times(self, now: int) -> float:
        """Of the time of rows, what slices are to take for all that is open to be done in time."""
        left_ns, most = 0, 0.0
        for sliced, since_ns in self._open:
            left_ns += sliced.left_ns
            rest_ns = since_ns + WITHIN_NS - now - left_ns  # for rows
            if left_ns:
                most = max(most, left_ns / rest_ns if rest_ns > 0 else MAX_SLICE_SHARE)
        return min(most, MAX_SLICE_SHARE)

    @staticmethod
    def _pause_seconds(times: float) -> float:
        """Shorter where slices would be longer than the longest ones."""
        return min(PAUSE_SECONDS, LONGEST_SLICES * SLICE_NS / 1e9 / times) if times else PAUSE_SECONDS

    def close(self) -> None:
        """Do nothing more."""
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
