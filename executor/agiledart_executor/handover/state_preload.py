"""State preload: waiting instances build the state that they will take over, in slices of a few milliseconds between other work.

A thread reads the disk. State that is handed over during a build waits for its end.
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
from agiledart_executor.process.python_gc import collecting_nothing
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, SnapshotHeader

SLICE_NS: Final = 2_000_000
"""Nanoseconds for which an instance builds before other instances may work."""

PAUSE: Final = 1.0
"""Pause after each slice in which other instances may work, as a share of the slice."""


class PreviousState(NamedTuple):
    """Complete state of an instance of the previous generation, with a snapshot header of that generation."""

    header: SnapshotHeader
    left: SnapshotParts


class StatePreload:
    """Preloaded state of one waiting instance.

    Args:
        running: the instance.
        read: reads snapshots of its stage.

    Attributes:
        is_over: the instance has begun or was dropped, so builds stop.
    """

    def __init__(self, running: RunningInstance, read: ReadSnapshot) -> None:
        assert running.instance is not None  # sources never change
        self._running, self._read = running, read
        self._shares = StateShares(running.instance)
        self._lock = asyncio.Lock()
        self._previous_states: dict[int, PreviousState] = {}
        self.is_over = False

    async def build(self, snapshots: Sequence[SnapshotChain]) -> None:
        """Build the committed state of instances of the previous generation, as far as it is not built yet.

        Raises:
            AgileDartError: a snapshot cannot be read, or does not fit.
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
            raise DamagedSnapshot(f"{self._running.name}: a snapshot does not fit: {error}") from None

    async def receive_previous_state(self, saved: SnapshotChain) -> PreviousState:
        """Apply the final snapshot of a previous instance to its preloaded share, and return the result. Raises as `build`."""
        async with self._lock:
            if saved.index in self._previous_states:
                return self._previous_states[saved.index]
            built = self._shares.built(saved.index)
            previous: ReadPreviousState = await asyncio.to_thread(
                read_previous_state, self._read, self._running, saved, built
            )
            if self.is_over:
                return PreviousState(previous.header, previous.left)
            with collecting_nothing():
                complete = self._previous_states[saved.index] = PreviousState(previous.header, self._complete(previous))
            return complete

    def _complete(self, previous: ReadPreviousState) -> SnapshotParts:
        try:
            return self._shares.complete(previous)
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedSnapshot(
                f"{self._running.name}: the state that was handed over does not fit: {error}"
            ) from None
