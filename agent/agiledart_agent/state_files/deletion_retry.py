"""Retry of deletions until nothing is left: a disk may be read-only for a while, or the process out of descriptors."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

AGAIN_SECONDS: Final = 5.0
"""Time until the next attempt. No disk heals sooner than that, and nothing waits for the space."""


class DeletionRetry:
    """Repeats an attempt until nothing is left.

    Args:
        thread: executor in which the files are touched.
        attempt: deletes what is to go; returns False when something is still there.
    """

    def __init__(self, thread: Executor, attempt: Callable[[], bool]) -> None:
        self._thread, self._attempt = thread, attempt
        self._loop = asyncio.get_running_loop()
        self._is_waiting = False

    def work(self) -> None:
        """Make an attempt, and repeat it later when something is left; in the thread."""
        if not self._attempt() and not self._is_waiting:
            self._is_waiting = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._loop.call_later, AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._is_waiting = False
        with contextlib.suppress(RuntimeError):  # the agent ends; its next start sees what is left
            self._thread.submit(self.work)
