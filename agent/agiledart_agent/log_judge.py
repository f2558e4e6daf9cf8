"""Whether who asks may read a log: by its scope, the log's owner, and with whom the owner shares the application.

Only who would be refused as a stranger costs a look at the ring; what it says is believed for some seconds, so that a stranger's
questions cost no more than a friend's.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from agiledart_kernel.machine import Event
from agiledart_kernel.permissions import Asker, Log, reading_refusal
from agiledart_node.records.sinks import FindSharers, SharersFound
from agiledart_sink_log.layout import Description

BELIEVED_SECONDS: Final = 5.0
"""How long a share that was taken back may still let somebody read."""

FIND_SECONDS: Final = 10.0
MAX_BELIEVED: Final = 1_024

_Whose = tuple[str, bytes]
"""(application, key of its owner)."""


def log_of(found: Description) -> Log:
    """What permissions depend on of a log that lies here."""
    return Log(found.name, found.application, bytes.fromhex(found.owner))


class LogJudge:
    """Judges readers of logs.

    Args:
        feed: takes events for the node.
    """

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._number = 0
        self._finding: dict[int, asyncio.Future[tuple[bytes, ...]]] = {}
        self._known: dict[_Whose, tuple[float, tuple[bytes, ...]]] = {}

    async def refusal(self, asker: Asker, log: Log) -> str:
        """One of `permissions.REFUSALS`, or empty: it may."""
        why = reading_refusal(asker, log)
        if why != "owner" or not log.application:
            return why
        return reading_refusal(asker, log._replace(shared=await self._sharers((log.application, log.owner))))

    def found(self, effect: SharersFound) -> None:
        """The node answered `FindSharers`."""
        if (future := self._finding.pop(effect.request, None)) is not None and not future.done():
            future.set_result(effect.keys)

    async def _sharers(self, whose: _Whose) -> tuple[bytes, ...]:
        loop = asyncio.get_running_loop()
        until, keys = self._known.get(whose, (0.0, ()))
        if loop.time() < until:
            return keys
        self._number += 1
        number, answer = self._number, loop.create_future()
        self._finding[number] = answer
        self._feed(FindSharers(number, *whose))
        try:
            keys = await asyncio.wait_for(answer, FIND_SECONDS)
        except TimeoutError:
            keys = ()
        finally:
            self._finding.pop(number, None)
        self._known.pop(whose, None)
        self._known[whose] = (loop.time() + BELIEVED_SECONDS, keys)
        if len(self._known) > MAX_BELIEVED:
            del self._known[next(iter(self._known))]
        return keys
