"""Snapshots of the previous generation on this disk: reading them, and applying them to the state that was preloaded.

The snapshot at a change's barrier holds the changes since a committed snapshot. A successor has built that committed state by then
(`StateShares`), or builds it now, from the chain that the register names. After a roll-back it builds everything from the chain.
Source: scaling specification, section 8, steps 1, 2, 5 and 6.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from agiledart_dataflow.plan.deployment import RestoreFrom, SnapshotChain
from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_dataflow.runtime.generation_handover import SnapshotParts, Successor
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.state.preloaded_state import PreloadedState
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, SnapshotHeader, StoredBlock
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import KEY_GROUPS

ReadSnapshot = Callable[[RunningInstance, bytes], tuple[SnapshotHeader, list[StoredBlock]]]
"""Function that reads a snapshot of an instance's stage by its digest. Raises `DamagedSnapshot`, OperationFailed."""


class IncrementLink(NamedTuple):
    """Snapshot of a chain: its digest, the digest of the snapshot that it builds on, and its encoded state."""

    digest: bytes
    onto: bytes
    snapshot: bytes


class ReadPreviousState(NamedTuple):
    """Final snapshot of an instance of the previous generation, as read from the disk.

    Attributes:
        header: of the snapshot.
        left: parts of the snapshot; they hold the state only where the snapshot is full and nothing was preloaded.
        links: snapshots still to be applied to the preloaded state, in order; empty where the state is in `left`.
    """

    header: SnapshotHeader
    left: SnapshotParts
    links: list[IncrementLink]


def previous_stage(instance: Instance, before: SnapshotHeader) -> Stage:
    """Return the stage of an instance as it was in the previous generation; `before` is any snapshot header of that one."""
    after = instance.plan.stages[instance.stage]
    return msgspec.structs.replace(
        after, generation=before.generation, parallelism=before.parallelism, owners=before.owners
    )


def successor_of(instance: Instance, before: SnapshotHeader) -> Successor:
    """Return the successor that waits for all instances whose keys an instance takes over; `before` is any of their headers."""
    after = instance.plan.stages[instance.stage]
    return Successor(previous_stage(instance, before), after, instance.index, instance.take_over)


def groups_from(before: Stage, after: Stage, old: int, index: int) -> dict[int, None]:
    """Return the key groups that an instance of the next generation takes from one of the previous generation."""
    return {
        group: None
        for group in range(KEY_GROUPS)
        if (not before.owners or before.owners[group] == old) and (not after.owners or after.owners[group] == index)
    }


class StateShares:
    """Preloaded state of one waiting instance, in a share for each instance of the previous generation, by index."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._shares: dict[int, PreloadedState] = {}

    def of(self, header: SnapshotHeader) -> PreloadedState:
        """Return the share of the instance that saved a snapshot; the largest share is built in the instance's own state."""
        share = self._shares.get(header.index)
        if share is None:
            instance, before = self._instance, previous_stage(self._instance, header)
            after, index = instance.plan.stages[instance.stage], instance.index
            sizes = [len(groups_from(before, after, old, index)) for old in range(before.parallelism)]
            is_largest = header.index == sizes.index(max(sizes))
            state = instance.state if is_largest else instance.snapshots.another_state()
            share = PreloadedState(state, groups_from(before, after, header.index, index))
            self._shares[header.index] = share
        return share

    def built(self, index: int) -> bytes:
        """Return the digest of the snapshot as of which an instance's share is built; empty when it is not built."""
        share = self._shares.get(index)
        return b"" if share is None else share.digest

    def complete(self, previous: ReadPreviousState) -> SnapshotParts:
        """Complete the snapshot of a previous instance with its state. Raises as `PreloadedState.put`, and `DamagedSnapshot`."""
        if not previous.links:
            if previous.header.index in self._shares:
                self._shares[previous.header.index].clear()
            return previous.left
        share = self.of(previous.header)
        for link in previous.links:
            for _ in share.put(*link):
                pass
        return previous.left._replace(state=share.state)


def read_chain(
    read: ReadSnapshot, running: RunningInstance, chain: Sequence[bytes], built: bytes
) -> list[tuple[SnapshotHeader, IncrementLink]]:
    """Read the snapshots of a chain that follow the one that was built; all of them where that one is not in the chain.

    Raises:
        DamagedSnapshot: a snapshot builds on another one than the chain says, or cannot be read.
        OperationFailed: a snapshot is not here.
    """
    start = chain.index(built) + 1 if built in chain else 0
    before = built if start else b""
    links: list[tuple[SnapshotHeader, IncrementLink]] = []
    for digest in chain[start:]:
        header, blocks = read(running, digest)
        if header.onto != before:
            raise DamagedSnapshot(f"{running.name}: a snapshot of a chain rests on another one")
        links.append((header, IncrementLink(digest, before, blocks[0].whole())))
        before = digest
    return links


def read_previous_state(
    read: ReadSnapshot, running: RunningInstance, saved: SnapshotChain, built: bytes
) -> ReadPreviousState:
    """Read the final snapshot of an instance of the previous generation.

    Args:
        read: reads a snapshot.
        running: the waiting instance.
        saved: chain of the final snapshot.
        built: digest of the snapshot as of which the instance's share is built.

    Raises:
        DamagedSnapshot, OperationFailed: a snapshot cannot be read.
    """
    instance = running.instance
    assert instance is not None  # sources never change
    chain = read_chain(read, running, (*saved.before, saved.digest), built)
    header, last = chain[-1]
    try:
        if last.onto:
            left, _ = instance.snapshots.increment_in(header.index, last.snapshot)
        else:
            left = instance.snapshots.parts_in(header.index, last.snapshot)
    except (msgspec.MsgspecError, IndexError) as error:
        raise DamagedSnapshot(f"{running.name}: the state that was handed over does not fit: {error}") from None
    return ReadPreviousState(header, left, [link for _, link in chain] if last.onto or built else [])


def take_over(read: ReadSnapshot, running: RunningInstance, at: RestoreFrom) -> None:
    """Restore an instance from the snapshots of the previous generation, because its own generation began with that epoch.

    Raises:
        DamagedSnapshot, OperationFailed: the snapshots cannot be read, or some are missing.
    """
    saved = [chain for chain in at.snapshots if chain.stage == running.stage]
    if running.instance is None or not saved:
        raise OperationFailed(f"no snapshot of its stage is named for epoch {at.epoch}")
    shares = StateShares(running.instance)
    successor: Successor | None = None
    for chain in saved:
        if successor is None or successor.misses(chain.index):
            previous = read_previous_state(read, running, chain, b"")
            successor = successor or successor_of(running.instance, previous.header)
            if successor.misses(chain.index):
                successor.hand(shares.complete(previous))
    if successor is None or not successor.has_begun:
        raise OperationFailed("a snapshot is missing here of an instance whose keys it takes over")
