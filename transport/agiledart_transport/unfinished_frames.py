"""Incomplete frames: bounded in bytes over all links of a process, and in time.

A peer may announce a frame of 16 MiB and send all but its last byte, on each of its links. This module counts the bytes
of such frames. When they are too many, the key that holds most loses its oldest frame. So a peer that wears the process
down hits itself. Source: the admission spec, section 3.
"""

import asyncio
from collections import Counter
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from agiledart_kernel.limits import MAX_UNFINISHED_BYTES, MAX_UNFINISHED_SECONDS

LOOK_SECONDS: Final = 5.0
"""Time between two checks for frames that take too long; no check while all frames are complete."""


class BufferingLink(Protocol):
    """A link, as far as this module knows it."""

    @property
    def peer_key(self) -> bytes:
        """Public key of the peer that sends the frames."""
        ...

    def cut_unfinished(self) -> None:
        """Drop the frame and close."""
        ...


class UnfinishedFrames:
    """Ledger of one event loop.

    Attributes:
        total: bytes held.
    """

    def __init__(self, max_bytes: int = MAX_UNFINISHED_BYTES, max_seconds: float = MAX_UNFINISHED_SECONDS) -> None:
        self._max_bytes, self._max_seconds = max_bytes, max_seconds
        self._held: dict[BufferingLink, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.total = 0

    def note(self, link: BufferingLink, size: int, *, is_new: bool = False) -> None:
        """Note that a link holds `size` bytes of an incomplete frame. `is_new`: of another frame than at the last note."""
        before, since = self._held.get(link, (0, -1.0))
        if not size:
            if since >= 0:
                del self._held[link]
                self.total -= before
            return
        if is_new or since < 0:
            since = asyncio.get_running_loop().time()
        self._held[link] = (size, since)
        self.total += size - before
        if self.total > self._max_bytes:
            self._evict_heaviest()
        self._look_later()

    def _evict_heaviest(self) -> None:
        by_key: Counter[bytes] = Counter()
        for link, (size, _) in self._held.items():
            by_key[link.peer_key] += size
        heaviest = max(by_key, key=lambda key: by_key[key])
        link = min(
            (candidate for candidate in self._held if candidate.peer_key == heaviest),
            key=lambda candidate: self._held[candidate][1],
        )
        self._cut(link)

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for link in [candidate for candidate, (_, since) in self._held.items() if now - since > self._max_seconds]:
            self._cut(link)
        self._look_later()

    def _look_later(self) -> None:
        if self._timer is None and self._held:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(LOOK_SECONDS, self._max_seconds), self._look)

    def _cut(self, link: BufferingLink) -> None:
        self.note(link, 0)
        link.cut_unfinished()


_ledgers: "WeakKeyDictionary[asyncio.AbstractEventLoop, UnfinishedFrames]" = WeakKeyDictionary()


def unfinished_of(loop: asyncio.AbstractEventLoop) -> UnfinishedFrames:
    """Return the ledger of a loop: all its links share one."""
    ledger = _ledgers.get(loop)
    if ledger is None:
        ledger = _ledgers[loop] = UnfinishedFrames()
    return ledger
