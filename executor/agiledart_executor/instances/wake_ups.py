"""Wake-ups of instances that no frame brings: timers, and descriptors on which input of a source arrives."""

import asyncio
import time
from collections.abc import Callable

from agiledart_dataflow.runtime.source_instance import Polled
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.instances.source_rest import SourceRest

WATCHED_NS = 250_000_000
"""Longest nanoseconds between two polls of a source whose descriptor is watched: it may still have to notice silence."""


class WakeUps:
    """Timers and watched descriptors of the instances of one executor.

    Args:
        loop: event loop of this process.
        wake_now: lets an instance work at once.
        rest: for how long sources let rows gather.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wake_now: Callable[[RunningInstance], None], rest: SourceRest
    ) -> None:
        self._loop, self._wake_now, self._rest = loop, wake_now, rest

    def wake_at(self, running: RunningInstance, until_ns: int) -> None:
        """Wake an instance at this time or earlier: an earlier timer stays, and the instance then waits again."""
        if running.timer is not None:
            if running.timer_ns <= until_ns:
                return
            running.timer.cancel()
        delay = max(0, until_ns - time.monotonic_ns()) / 1e9
        running.timer, running.timer_ns = self._loop.call_later(delay, self._look, running), until_ns

    def wake_for_input(self, running: RunningInstance, polled: Polled, until_ns: int, now_ns: int) -> None:
        """Wake a source that waits for input: when input comes, or at an instant where that cannot be watched.

        A source that has just read rows may have to rest first. One that read none waits without a rest, because a lone row goes
        at once.
        """
        number = polled.wait_for
        rows, before_ns = running.rows_read, running.read_ns
        if rows:
            running.rows_read, running.read_ns = 0, now_ns
        if rows and (rested_ns := self._rest.next_read(now_ns, rows, before_ns)):
            running.rests_until_ns, until_ns = rested_ns, max(until_ns, rested_ns)
            self.unwatch(running)
        elif number is not None and (running.watched == number or self.watch(running, number)):
            until_ns = max(until_ns, now_ns + WATCHED_NS)
        self.wake_at(running, until_ns)

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
