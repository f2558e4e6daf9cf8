"""When instances that are being saved encode some more of their state: slices between batches, on the loop that rows pass.

    rows flow       a slice of 1 ms every 10 ms; longer ones where that would take seconds, so that epochs do not wait for it
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

GAP_SECONDS: Final = 0.009
"""For rows, between two slices."""


class Sliced(Protocol):
    """What is done in slices.

    Attributes:
        waits: for something else than its next slice.
    """

    waits: bool

    def slice(self, until_ns: int) -> bool:
        """Go on until then; False when nothing is left to do. Does not raise."""
        ...


class Slices:
    """Of one executor; one thing after the other, in the order in which they came.

    Args:
        loop: on which rows pass.

    Attributes:
        calls: a number that grows whenever an instance works.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: deque[tuple[Sliced, int]] = deque()
        self._timer: asyncio.Handle | None = None
        self._seen = -1
        self.calls: Callable[[], int] = lambda: 0

    def begin(self, sliced: Sliced) -> None:
        """From the next gap on."""
        self._open.append((sliced, time.monotonic_ns()))
        if self._timer is None:
            self._timer = self._loop.call_later(GAP_SECONDS, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if not self._open:
            return
        sliced, since_ns = self._open[0]
        is_idle, more = self._seen == self.calls(), False
        now = time.monotonic_ns()
        try:
            more = sliced.slice(now + SLICE_NS * min(LONGEST_SLICES, 1 + (now - since_ns) // LONG_NS))
        finally:
            self._seen = self.calls()  # a slice is a call, too
            if not more and self._open:
                self._open.popleft()
            if self._open and self._timer is None:  # what is over may have begun another
                at_once = is_idle and not self._open[0][0].waits
                self._timer = (
                    self._loop.call_soon(self._turn) if at_once else self._loop.call_later(GAP_SECONDS, self._turn)
                )

    def close(self) -> None:
        """Do nothing more."""
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
