"""Scrubber of stored fragments: it checks them again and again, and drops a damaged one, so that its owner makes it again.

Without it a fragment that no node fetches could decay unnoticed, and be missing when a state is rebuilt. Bounds: one
fragment at a time, and at most `SCRUB_BYTES` a second of a disk that is there for others.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from agiledart_agent.fragments.fragment_file_store import FragmentFileStore, FragmentUnavailable
from agiledart_kernel.machine import Event
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.events import FragmentDamaged

SCRUB_SECONDS: Final = 3_600.0
"""Time from the start of one scrub to that of the next."""

SCRUB_BYTES: Final = 4 << 20
"""Bytes that are read in a second."""


class FragmentScrubber:
    """Scrubber of one agent.

    Args:
        feed: called for each damaged fragment.

    Attributes:
        damaged: number of damaged fragments.
    """

    def __init__(self, store: FragmentFileStore, thread: ThreadPoolExecutor, feed: Callable[[Event], None]) -> None:
        self._store, self._thread, self._feed = store, thread, feed
        self.damaged = 0

    async def scrub_forever(self) -> None:
        """Scrub all fragments, again and again."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            await self.look()
            await asyncio.sleep(max(0.0, began + SCRUB_SECONDS - clock()))

    async def look(self) -> None:
        """Check all fragments that are here now."""
        for key in self._store.held():
            size, is_whole = await asyncio.get_running_loop().run_in_executor(self._thread, self._check, key)
            if not is_whole:
                self.damaged += 1
                self._feed(FragmentDamaged(key))
            await asyncio.sleep(size / SCRUB_BYTES)

    def _check(self, key: FragmentKey) -> tuple[int, bool]:
        """Return (bytes, whether it is intact). A fragment that was dropped meanwhile counts as intact."""
        size = self._store.size(key)
        try:
            self._store.check(key)
        except FragmentUnavailable:
            is_gone = self._store.size(key) == 0
            self._store.drop([key])
            self._store.clear()
            return size, is_gone
        return size, True
