"""A queue in front of a scheduler: so many deployments at one time, first come first served."""

from collections import deque

from agiledart_kernel.instants import Duration
from agiledart_node.context.pending_requests import PendingRequests


class PlanningSlots:
    """Lets so many conversations through at one time.

    Args:
        limit: how many.
    """

    def __init__(self, requests: PendingRequests, limit: int) -> None:
        self._talks, self._limit = requests, limit
        self._taken = 0
        self._queue: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Conversations in the queue."""
        return len(self._queue)

    async def take(self, timeout: Duration) -> bool:
        """Wait for a turn; false when it did not come in time."""
        if self._taken < self._limit:
            self._taken += 1
            return True
        number = self._talks.number()
        self._queue.append(number)
        if number in await self._talks.answers({number: None}, timeout):
            return True
        self._queue.remove(number)
        return False

    def release_slot(self) -> None:
        """The next one may go on."""
        if self._queue:
            self._talks.answered(self._queue.popleft(), None)
        else:
            self._taken -= 1

    def violations(self) -> list[str]:
        """No more turns than there are; nobody waits for one that is free."""
        if 0 <= self._taken <= self._limit and (not self._queue or self._taken == self._limit):
            return []
        return [f"turns: {self._taken} of {self._limit} are taken, {len(self._queue)} wait"]
