"""Semaphore of a scheduler: a limited number of deployments at one time, first come first served."""

from collections import deque

from agiledart_kernel.instants import Duration
from agiledart_node.context.pending_requests import PendingRequests


class PlanningSlots:
    """Limits the number of concurrent deployments.

    Args:
        limit: number of slots.
    """

    def __init__(self, requests: PendingRequests, limit: int) -> None:
        self._requests, self._limit = requests, limit
        self._taken = 0
        self._queue: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Return the number of conversations in the queue."""
        return len(self._queue)

    async def acquire(self, timeout: Duration) -> bool:
        """Wait for a slot. Return False when none became free in time."""
        if self._taken < self._limit:
            self._taken += 1
            return True
        number = self._requests.number()
        self._queue.append(number)
        if number in await self._requests.answers({number: None}, timeout):
            return True
        self._queue.remove(number)
        return False

    def release_slot(self) -> None:
        """Release a slot, and give it to the next conversation in the queue."""
        if self._queue:
            self._requests.resolve(self._queue.popleft(), None)
        else:
            self._taken -= 1

    def violations(self) -> list[str]:
        """Return violated invariants: the limit holds, and no conversation waits while a slot is free."""
        if 0 <= self._taken <= self._limit and (not self._queue or self._taken == self._limit):
            return []
        return [f"planning slots: {self._taken} of {self._limit} are taken, {len(self._queue)} wait"]
