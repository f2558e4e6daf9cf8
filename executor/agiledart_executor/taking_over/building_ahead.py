"""Instances that wait build what they will take over, beside those that work: a few milliseconds, then these, then again.

What is read from the disk is read in a thread. What is handed over while something is built waits for it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from agiledart_dataflow.plan.deployment import SavedAt
from agiledart_dataflow.runtime.handover import Left
from agiledart_executor.elements import DamagedElement, ElementHeader
from agiledart_executor.process.collector import collecting_nothing
from agiledart_executor.running_instance import Running
from agiledart_executor.taking_over.left_behind import Found, Link, Read, Shares, left_by, links_of

SLICE_NS: Final = 2_000_000
"""How long one builds before others may work."""

PAUSE: Final = 1.0
"""How long others may work then, as a share of that."""


class Handed(NamedTuple):
    """What an instance of the term before left, complete, and a header of its term."""

    header: ElementHeader
    left: Left


class BuildingAhead:
    """What one waiting instance has built.

    Args:
        running: the instance.
        read: reads elements of its stage.
    """

    def __init__(self, running: Running, read: Read) -> None:
        assert running.instance is not None  # sources never change
        self._running, self._read = running, read
        self._shares = Shares(running.instance)
        self._lock = asyncio.Lock()
        self._handed: dict[int, Handed] = {}
        self.is_over = False

    async def build(self, elements: Sequence[SavedAt]) -> None:
        """Build what instances of the term before have saved, as far as it is not built yet.

        Raises:
            AgileDartError: it cannot be read, or does not fit.
        """
        for saved in elements:
            async with self._lock:
                chain, built = (*saved.before, saved.digest), self._shares.built(saved.index)
                if self.is_over or built == saved.digest or saved.index in self._handed:
                    continue
                links = await asyncio.to_thread(links_of, self._read, self._running, chain, built)
                with collecting_nothing():
                    for header, link in links:
                        await self._put(header, link)

    async def _put(self, header: ElementHeader, link: Link) -> None:
        began = time.monotonic_ns()
        try:
            for _ in self._shares.of(header).put(*link):
                if self.is_over:
                    return
                took = time.monotonic_ns() - began
                if took >= SLICE_NS:
                    await asyncio.sleep(PAUSE * took / 1e9)
                    began = time.monotonic_ns()
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedElement(f"{self._running.name}: an element does not fit: {error}") from None

    async def handed(self, saved: SavedAt) -> Handed:
        """What an instance of the term before left, put on what is built of it. Raises as `build`."""
        async with self._lock:
            if saved.index in self._handed:
                return self._handed[saved.index]
            built = self._shares.built(saved.index)
            found: Found = await asyncio.to_thread(left_by, self._read, self._running, saved, built)
            if self.is_over:
                return Handed(found.header, found.left)
            with collecting_nothing():
                handed = self._handed[saved.index] = Handed(found.header, self._complete(found))
            return handed

    def _complete(self, found: Found) -> Left:
        try:
            return self._shares.complete(found)
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedElement(f"{self._running.name}: what was handed over does not fit: {error}") from None
