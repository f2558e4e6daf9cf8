"""Instances that wait build what they will take over, beside those that work: a few milliseconds, then these, then again.

What is read from the disk is read in a thread. What is handed over while something is built waits for it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from agiledart_dataflow.plan.deployment import SnapshotChain
from agiledart_dataflow.runtime.generation_handover import SnapshotParts
from agiledart_executor.handover.previous_generation import (
    IncrementLink,
    ReadPreviousState,
    ReadSnapshot,
    StateShares,
    read_chain,
    read_previous_state,
)
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.process.garbage_collector import collecting_nothing
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, SnapshotHeader

SLICE_NS: Final = 2_000_000
"""How long one builds before others may work."""

PAUSE: Final = 1.0
"""How long others may work then, as a share of that."""


class PreviousState(NamedTuple):
    """What an instance of the term before left, complete, and a header of its term."""

    header: SnapshotHeader
    left: SnapshotParts


class StatePreload:
    """What one waiting instance has built.

    Args:
        running: the instance.
        read: reads elements of its stage.
    """

    def __init__(self, running: RunningInstance, read: ReadSnapshot) -> None:
        assert running.instance is not None  # sources never change
        self._running, self._read = running, read
        self._shares = StateShares(running.instance)
        self._lock = asyncio.Lock()
        self._previous_states: dict[int, PreviousState] = {}
        self.is_over = False

    async def build(self, snapshots: Sequence[SnapshotChain]) -> None:
        """Build what instances of the term before have saved, as far as it is not built yet.

        Raises:
            AgileDartError: it cannot be read, or does not fit.
        """
        for saved in snapshots:
            async with self._lock:
                chain, built = (*saved.before, saved.digest), self._shares.built(saved.index)
                if self.is_over or built == saved.digest or saved.index in self._previous_states:
                    continue
                links = await asyncio.to_thread(read_chain, self._read, self._running, chain, built)
                with collecting_nothing():
                    for header, link in links:
                        await self._put(header, link)

    async def _put(self, header: SnapshotHeader, link: IncrementLink) -> None:
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
            raise DamagedSnapshot(f"{self._running.name}: an element does not fit: {error}") from None

    async def receive_previous_state(self, saved: SnapshotChain) -> PreviousState:
        """What an instance of the term before left, put on what is built of it. Raises as `build`."""
        async with self._lock:
            if saved.index in self._previous_states:
                return self._previous_states[saved.index]
            built = self._shares.built(saved.index)
            found: ReadPreviousState = await asyncio.to_thread(
                read_previous_state, self._read, self._running, saved, built
            )
            if self.is_over:
                return PreviousState(found.header, found.left)
            with collecting_nothing():
                receive_previous_state = self._previous_states[saved.index] = PreviousState(
                    found.header, self._complete(found)
                )
            return receive_previous_state

    def _complete(self, found: ReadPreviousState) -> SnapshotParts:
        try:
            return self._shares.complete(found)
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedSnapshot(f"{self._running.name}: what was handed over does not fit: {error}") from None
