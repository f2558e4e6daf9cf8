"""Back-off of dials to addresses that do not lead to their peers."""

from collections.abc import Sequence

from agiledart_kernel.instants import SECOND

FIRST_NS = 10 * SECOND
LONGEST_NS = 600 * SECOND
"""Time for which an address is not dialled after its first failure; it doubles with each further one up to the longest."""

MAX_ADDRESSES = 1_024


class DialBackoff:
    """Addresses that have failed, and until when others are dialled in their place."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[int, int]] = {}  # address → pause, end of the pause

    def usable(self, candidates: Sequence[str], now_ns: int) -> list[str]:
        """Return the candidates to dial now: those that do not pause; the first when all do."""
        ready = [address for address in candidates if self._failed.get(address, (0, 0))[1] <= now_ns]
        return ready or list(candidates[:1])

    def failed(self, address: str, now_ns: int) -> None:
        """Pause an address."""
        pause = min(LONGEST_NS, 2 * self._failed.pop(address, (FIRST_NS // 2, 0))[0])
        if len(self._failed) >= MAX_ADDRESSES:
            del self._failed[next(iter(self._failed))]
        self._failed[address] = pause, now_ns + pause

    def worked(self, address: str) -> None:
        """Forget the failures of an address."""
        self._failed.pop(address, None)
