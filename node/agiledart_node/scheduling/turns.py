"""A queue in front of a scheduler: so many deployments at one time, first come first served."""

from collections import deque

from agiledart_kernel.instants import Duration
from agiledart_node.desk.conversations import Conversations


class Turns:
    """Lets so many conversations through at one time.

    Args:
        limit: how many.
    """

    def __init__(self, talks: Conversations, limit: int) -> None:
        self._talks, self._limit = talks, limit
        self._taken = 0
        self._line: deque[int] = deque()

    @property
    def waiting(self) -> int:
        """Conversations in the queue."""
        return len(self._line)

    async def take(self, timeout: Duration) -> bool:
        """Wait for a turn; false when it did not come in time."""
        if self._taken < self._limit:
            self._taken += 1
            return True
        number = self._talks.number()
        self._line.append(number)
        if number in await self._talks.answers({number: None}, timeout):
            return True
        self._line.remove(number)
        return False

    def give_back(self) -> None:
        """The next one may go on."""
        if self._line:
            self._talks.answered(self._line.popleft(), None)
        else:
            self._taken -= 1

    def violations(self) -> list[str]:
        """No more turns than there are; nobody waits for one that is free."""
        if 0 <= self._taken <= self._limit and (not self._line or self._taken == self._limit):
            return []
        return [f"turns: {self._taken} of {self._limit} are taken, {len(self._line)} wait"]
