"""Schedule by which instances encode their open snapshots: slices between batches, on the event loop that rows pass.

    rows flow       a slice of 1 ms every 10 ms; longer slices where that would take seconds, so that epochs do not wait
    large state     a larger share of the time, so that all open snapshots are done within a third of an epoch's limit: first slices
                    get longer, then they come sooner, and where rows leave too little time between them they get longer still
    no rows came    since the last slice: the next slice follows at once, after a look at the sockets
    disk is behind  the next slice follows after 10 ms, however idle the process is
    nothing open    no timer

Source: recovery specification §11.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

SLICE_NS: Final = 1_000_000
"""Approximate length of a slice; its last piece may take longer."""

LONGEST_SLICES: Final = 3
"""Longest slice as a multiple of `SLICE_NS`, for snapshots that have been open for long."""

LONG_NS: Final = 4_000_000_000
"""Time after which a slice gets longer by one `SLICE_NS`."""

PAUSE_SECONDS: Final = 0.009
"""Time for rows between two slices."""

WITHIN_NS: Final = 20_000_000_000
"""Time within which an open snapshot must be encoded. An epoch may take three times that, and must also replicate snapshots."""

MAX_SLICE_SHARE: Final = 9.0
"""Most time of slices as a multiple of the time of rows: a late epoch is better than none, but rows go on."""

MAX_PAUSE_NS: Final = 20_000_000
"""Most time between two slices that counts as the time of rows; else a process that stood still would get a slice as long."""


class SlicedWork(Protocol):
    """Work that is done in slices.

    Attributes:
        waits: the work waits for something else than its next slice.
    """

    waits: bool

    @property
    def left_ns(self) -> int:
        """Estimate of the remaining nanoseconds; 0 when unknown."""
        ...

    def slice(self, until_ns: int) -> bool:
        """Work until a monotonic instant and return False when nothing is left to do. Does not raise."""
        ...


class SliceScheduler:
    """Scheduler of the sliced work of one executor; it does one piece of work after the other, in order of arrival.

    Args:
        loop: event loop that rows pass.

    Attributes:
        calls: returns a number that grows whenever an instance works.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: deque[tuple[SlicedWork, int]] = deque()
        self._timer: asyncio.Handle | None = None
        self._seen = -1
        self._ended_ns = 0  # end of the last slice
        self.calls: Callable[[], int] = lambda: 0

    def begin(self, sliced: SlicedWork) -> None:
        """Queue work; its first slice comes after the next pause."""
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
            self._seen, self._ended_ns = self.calls(), time.monotonic_ns()  # a slice counts as a call, too
            if not more and self._open:
                self._open.popleft()
            if self._open and self._timer is None:  # work that has ended may have queued new work
                if is_idle and not self._open[0][0].waits:
                    self._timer = self._loop.call_soon(self._run_slice)
                else:
                    pause = PAUSE_SECONDS if self._open[0][0].waits else self._pause_seconds(times)
                    self._timer = self._loop.call_later(pause, self._run_slice)

    def _times(self, now: int) -> float:
        """Return the time that slices need to finish all open work in time, as a multiple of the time of rows."""
        left_ns, most = 0, 0.0
        for sliced, since_ns in self._open:
            left_ns += sliced.left_ns
            rest_ns = since_ns + WITHIN_NS - now - left_ns  # time that is left for rows
            if left_ns:
                most = max(most, left_ns / rest_ns if rest_ns > 0 else MAX_SLICE_SHARE)
        return min(most, MAX_SLICE_SHARE)

    @staticmethod
    def _pause_seconds(times: float) -> float:
        """Return the pause between slices; shorter where slices would exceed the longest length."""
        return min(PAUSE_SECONDS, LONGEST_SLICES * SLICE_NS / 1e9 / times) if times else PAUSE_SECONDS

    def close(self) -> None:
        """Drop all open work."""
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
