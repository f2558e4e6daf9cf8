"""`GrantTimer`: calls back when a peer's grant has expired by the wall clock."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

_CHECK_SECONDS: Final = 3_600.0  # a long timer would not notice that the wall clock was set or the machine slept


class GrantTimer:
    """Timer of one grant; it looks at the wall clock at least once an hour.

    Args:
        loop: runs the timer.
        not_after: last second of the grant, since 1970-01-01 UTC.
        wall_seconds: the wall clock.
        on_expired: called once, after `not_after`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        not_after: int,
        wall_seconds: Callable[[], float],
        on_expired: Callable[[], None],
    ) -> None:
        self._loop, self._not_after, self._wall_seconds, self._on_expired = loop, not_after, wall_seconds, on_expired
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look at the clock now, and again when the grant may have expired."""
        self._check()

    def cancel(self) -> None:
        """Never call back."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        left = self._not_after + 1 - self._wall_seconds()
        if left <= 0:
            self._on_expired()
            return
        # Never earlier than the wall clock: monotonic timers and the wall clock drift apart by a little.
        self._timer = self._loop.call_later(min(math.ceil(left * 1000) / 1000 + 0.001, _CHECK_SECONDS), self._check)
