"""Authorisation of readers of logs: by their scope, the log's owner, and the keys with which the owner shares the application.

Only a requester that would be refused as a stranger causes a query to the ring. The answer is cached for some seconds,
so that a stranger's requests cost no more than others. While the ring is silent, its last answer counts for some
minutes; a requester that it does not name is asked to try again, and is not refused.
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
"""Time for which a revoked share may still admit a reader."""

SILENT_SECONDS: Final = 600.0
"""Time for which a share may admit a reader while the ring cannot be asked whether it was revoked."""

FIND_SECONDS: Final = 10.0
MAX_CACHED: Final = 1_024

_OwnedApplication = tuple[str, bytes]
"""(application, key of its owner)."""


def ownership_of_log(description: Description) -> LogOwnership:
    """Return the ownership of a log on this node, on which permissions depend."""
    return LogOwnership(description.name, description.application, bytes.fromhex(description.owner))


class LogReadAuthoriser:
    """Authoriser of readers of logs.

    Args:
        feed: takes events for the node.
    """

    def __init__(self, feed: Callable[[Event], None]) -> None:
        self._feed = feed
        self._number = 0
        self._finding: dict[int, asyncio.Future[SharersFound]] = {}
        self._known: dict[_OwnedApplication, tuple[float, tuple[bytes, ...]]] = {}

    async def refusal(self, principal: Principal, log: LogOwnership) -> str:
        """Return one of `permissions.REFUSALS`, or an empty string: it may.

        Raises OperationFailed: the answer needs the ring, which is silent.
        """
        reason = log_read_refusal(principal, log)
        if reason != "owner" or not log.application:
            return reason
        keys, is_known = await self._sharers((log.application, log.owner))
        reason = log_read_refusal(principal, log._replace(shared=keys))
        if reason and not is_known:
            raise OperationFailed(
                f"The log {log.name} is not yours, and the ring does not answer whether {log.application} was shared with you. Try "
                "again."
            )
        return reason

    def on_sharers_found(self, effect: SharersFound) -> None:
        """Take the node's answer to `FindSharers`."""
        if (future := self._finding.pop(effect.request, None)) is not None and not future.done():
            future.set_result(effect)

    async def _sharers(self, owned_application: _OwnedApplication) -> tuple[tuple[bytes, ...], bool]:
        """Return the keys with which an application is shared, and whether the ring has just confirmed them."""
        loop = asyncio.get_running_loop()
        at, keys = self._known.get(owned_application, (-inf, ()))
        if loop.time() < at + CACHE_SECONDS:
            return keys, True
        self._number += 1
        number, answer = self._number, loop.create_future()
        self._finding[number] = answer
        self._feed(FindSharers(number, *owned_application))
        try:
            answered = await asyncio.wait_for(answer, FIND_SECONDS)
        except TimeoutError:
            answered = SharersFound(number, is_known=False)
        finally:
            self._finding.pop(number, None)
        if not answered.is_known:
            return (keys if loop.time() < at + SILENT_SECONDS else ()), False
        self._known.pop(owned_application, None)
        self._known[owned_application] = (loop.time(), answered.keys)
        if len(self._known) > MAX_CACHED:
            del self._known[next(iter(self._known))]
        return answered.keys, True
