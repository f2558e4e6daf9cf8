"""Wake-ups of instances that no frame brings: timers, and descriptors on which input of a source arrives."""

import asyncio
import time
from collections.abc import Callable

from agiledart_executor.instances.running_instance import RunningInstance


class WakeUps:
    """Timers and watched descriptors of the instances of one executor.

    Args:
        loop: event loop of this process.
        wake_now: lets an instance work at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake_now: Callable[[RunningInstance], None]) -> None:
        self._loop, self._wake_now = loop, wake_now

    def wake_at(self, running: RunningInstance, until_ns: int) -> None:
        """Wake an instance at this time or earlier: an earlier timer stays, and the instance then waits again."""
        if running.timer is not None:
            if running.timer_ns <= until_ns:
                return
            running.timer.cancel()
        delay = max(0, until_ns - time.monotonic_ns()) / 1e9
        running.timer, running.timer_ns = self._loop.call_later(delay, self._look, running), until_ns

    def _look(self, running: RunningInstance) -> None:
        running.timer = None
        self._wake_now(running)

    def watch(self, running: RunningInstance, descriptor: int) -> bool:
        """Wake a source when its reader has input; return False for a descriptor that cannot be watched (a file)."""
        self.unwatch(running)
        try:
            self._loop.add_reader(descriptor, self._wake_now, running)
        except (OSError, ValueError):
            return False
        running.watched = descriptor
        return True

    def unwatch(self, running: RunningInstance) -> None:
        """Watch the descriptor of a source no longer."""
        if running.watched is not None:
            self._loop.remove_reader(running.watched)
            running.watched = None
