"""Standby instances in an executor: they wait with the state of the last committed epoch, to take over from a lost host.

The state grows by the increments of each epoch (`PreloadedState`), before anything is lost. When the next attempt begins here with
that epoch, the instance continues at once. When it begins with another one, it is restored from the disk like any other instance.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import msgspec

from agiledart_dataflow.plan.deployment import RestoreFrom, SnapshotChain
from agiledart_dataflow.runtime.generation_handover import SnapshotParts
from agiledart_dataflow.state.key_groups import NO_STATE
from agiledart_dataflow.state.preloaded_state import PreloadedState
from agiledart_executor.handover.previous_generation import IncrementLink, ReadSnapshot, read_chain
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.process.python_gc import collecting_nothing
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, SnapshotHeader
from agiledart_executor.wire.agent_messages import InstanceName, PrepareStandby
from agiledart_kernel.limits import KEY_GROUPS


class OpensInstances(Protocol):
    """User code that is loaded."""

    async def open_instance(
        self, stage: int, index: int, *, by_epoch: bool = False, restores: bool = False
    ) -> RunningInstance:
        """Open an instance of a stage without restoring it."""
        ...


@dataclass(eq=False)
class StandbyInstance:
    """An instance that waits.

    Attributes:
        running: the instance; it has no inputs and no outputs yet.
        state: its state as of a snapshot.
        last: the other parts of that snapshot; None: none is built.
    """

    running: RunningInstance
    state: PreloadedState
    last: SnapshotParts | None = None


class StandbyInstances:
    """Instances that wait in one executor."""

    def __init__(self) -> None:
        self._waiting: dict[InstanceName, StandbyInstance] = {}

    async def build(self, code: OpensInstances, read: ReadSnapshot, message: PrepareStandby) -> None:
        """Advance the instances that a message names to its snapshots.

        Raises:
            AgileDartError: a snapshot cannot be read or does not fit; the instance then waits without state.
        """
        chains = {(saved.stage, saved.index): saved for saved in message.snapshots}
        for name in message.instances:
            saved = chains.get((name.stage, name.index))
            if saved is None:
                continue
            waiting = self._waiting.get(name)
            if waiting is None:
                running = await code.open_instance(name.stage, name.index, by_epoch=True, restores=True)
                assert running.instance is not None  # only steps have standbys
                running.save_increments()
                state = PreloadedState(running.instance.state, dict.fromkeys(range(KEY_GROUPS)))
                waiting = self._waiting[name] = StandbyInstance(running, state)
            await self._advance(waiting, read, name, saved)

    async def _advance(
        self, waiting: StandbyInstance, read: ReadSnapshot, name: InstanceName, saved: SnapshotChain
    ) -> None:
        chain, built = (*saved.before, saved.digest), waiting.state.digest if waiting.last is not None else b""
        if built == saved.digest:
            return
        waiting.last = None
        links = await asyncio.to_thread(read_chain, read, waiting.running, chain, built)
        if any(header.generation != name.generation for header, _ in links):
            return  # the instances of the previous generation hold its state: it is joined at the take-over
        try:
            with collecting_nothing():
                for _, link in links:
                    for _ in waiting.state.put(*link):
                        await asyncio.sleep(0)  # the agent expects signs of life
            waiting.last = _other_parts(waiting.running, *links[-1])
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedSnapshot(f"{waiting.running.name}: a snapshot does not fit: {error}") from None

    def take(self, name: InstanceName, since: RestoreFrom | None) -> StandbyInstance | None:
        """Return the waiting instance that has the state with which an attempt begins; None: there is none."""
        waiting = self._waiting.pop(name, None)
        if waiting is None or waiting.last is None or since is None or not since.epoch:
            return None
        saved = next(
            (chain for chain in since.snapshots if (chain.stage, chain.index) == (name.stage, name.index)), None
        )
        return waiting if saved is not None and saved.digest == waiting.state.digest else None


def _other_parts(running: RunningInstance, header: SnapshotHeader, link: IncrementLink) -> SnapshotParts:
    """Return the parts of a snapshot beside its state."""
    assert running.instance is not None  # only steps have standbys
    if link.onto:
        return running.instance.snapshots.increment_in(header.index, link.snapshot)[0]
    return running.instance.snapshots.parts_in(header.index, link.snapshot)._replace(state=NO_STATE)
