"""Whether who asks may read a log: by its scope, the log's owner, and with whom the owner shares the application.

Only who would be refused as a stranger costs a look at the ring; what it says is believed for some seconds, so that a stranger's
questions cost no more than a friend's. While the ring is silent, what it said last counts on for some minutes; who is not named
there is asked to come again, and is not refused.
"""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Event
from agiledart_kernel.permissions import LogOwnership, Principal, log_read_refusal
from agiledart_node.records.sink_directory import FindSharers, SharersFound
from agiledart_sink_log.layout import Description

CACHE_SECONDS: Final = 5.0
"""How long a share that was taken back may still let somebody read."""

SILENT_SECONDS: Final = 600.0
"""How long a share may let somebody read while the ring cannot be asked whether it was taken back."""

FIND_SECONDS: Final = 10.0
MAX_CACHED: Final = 1_024

_OwnedApplication = tuple[str, bytes]
"""(application, key of its owner)."""


def ownership_of_log(found: Description) -> LogOwnership:
    """What permissions depend on of a log that lies here."""
    return LogOwnership(found.name, found.application, bytes.fromhex(found.owner))


class LogReadAuthoriser:
    """Judges readers of logs.

    Args:
        feed: takes events for the node.
    """

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._number = 0
        self._finding: dict[int, asyncio.Future[SharersFound]] = {}
        self._known: dict[_OwnedApplication, tuple[float, tuple[bytes, ...]]] = {}

    async def refusal(self, principal: Principal, log: LogOwnership) -> str:
        """One of `permissions.REFUSALS`, or empty: it may. Raises OperationFailed: only the ring could say, and is silent."""
        why = log_read_refusal(principal, log)
        if why != "owner" or not log.application:
            return why
        keys, is_known = await self._sharers((log.application, log.owner))
        why = log_read_refusal(principal, log._replace(shared=keys))
        if why and not is_known:
            raise OperationFailed(
                f"The log {log.name} is not yours, and the ring does not answer whether {log.application} was shared with you. Try "
                "again."
            )
        return why

    def found(self, effect: SharersFound) -> None:
        """The node answered `FindSharers`."""
        if (future := self._finding.pop(effect.request, None)) is not None and not future.done():
            future.set_result(effect)

    async def _sharers(self, owned_application: _OwnedApplication) -> tuple[tuple[bytes, ...], bool]:
        """With whom an application is shared, and whether the ring has said so just now."""
        loop = asyncio.get_running_loop()
        at, keys = self._known.get(owned_application, (-inf, ()))
        if loop.time() < at + CACHE_SECONDS:
            return keys, True
        self._number += 1
        number, answer = self._number, loop.create_future()
        self._finding[number] = answer
        self._feed(FindSharers(number, *owned_application))
        try:
            found = await asyncio.wait_for(answer, FIND_SECONDS)
        except TimeoutError:
            found = SharersFound(number, is_known=False)
        finally:
            self._finding.pop(number, None)
        if not found.is_known:
            return (keys if loop.time() < at + SILENT_SECONDS else ()), False
        self._known.pop(owned_application, None)
        self._known[owned_application] = (loop.time(), found.keys)
        if len(self._known) > MAX_CACHED:
            del self._known[next(iter(self._known))]
        return found.keys, True
