"""Search for logs by pattern: the node asks all agents; answers count for some seconds, because a stream asks again and again."""

import asyncio
from collections.abc import Callable
from typing import Final

from agiledart_kernel.machine import Event
from agiledart_node.wire.log_list_messages import FindLogs, LogsFound

CACHE_SECONDS: Final = 5.0
FIND_SECONDS: Final = 15.0
MAX_CACHED: Final = 256


class LogFinder:
    """Finds logs by pattern.

    Args:
        feed: takes events for the node.
    """

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._number = 0
        self._finding: dict[int, asyncio.Future[LogsFound]] = {}
        self._known: dict[str, tuple[float, LogsFound]] = {}

    async def find(self, pattern: str) -> LogsFound:
        """Return the logs that fit a pattern; none, with a silent agent, when the node does not answer."""
        loop = asyncio.get_running_loop()
        at, known = self._known.get(pattern, (-CACHE_SECONDS, None))
        if known is not None and loop.time() < at + CACHE_SECONDS:
            return known
        self._number += 1
        number, answer = self._number, loop.create_future()
        self._finding[number] = answer
        self._feed(FindLogs(number, pattern))
        try:
            logs: LogsFound = await asyncio.wait_for(answer, FIND_SECONDS)
        except TimeoutError:
            return LogsFound(number, (), 1)
        finally:
            self._finding.pop(number, None)
        self._known.pop(pattern, None)
        self._known[pattern] = (loop.time(), logs)
        if len(self._known) > MAX_CACHED:
            del self._known[next(iter(self._known))]
        return logs

    def take_answer(self, effect: LogsFound) -> None:
        """Take the node's answer to `FindLogs`."""
        if (future := self._finding.pop(effect.request, None)) is not None and not future.done():
            future.set_result(effect)
