"""Taking things off a disk until they are gone: it may be read-only for a while, or the process out of descriptors."""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

AGAIN_SECONDS: Final = 5.0
"""After which what did not go is asked to go again. No disk heals sooner than that, and nobody waits for the space."""


class DeletionRetry:
    """Repeats an attempt until it says that nothing is left.

    Args:
        thread: where the files are touched.
        attempt: takes away what is to go; False: something of it is still there.
    """

    def __init__(self, thread: Executor, attempt: Callable[[], bool]) -> None:
        self._thread, self._attempt = thread, attempt
        self._loop = asyncio.get_running_loop()
        self._is_waiting = False

    def work(self) -> None:
        """Attempt it, and again later; in the thread."""
        if not self._attempt() and not self._is_waiting:
            self._is_waiting = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._loop.call_later, AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._is_waiting = False
        with contextlib.suppress(RuntimeError):  # the agent ends; its next start sees what lies there
            self._thread.submit(self.work)
