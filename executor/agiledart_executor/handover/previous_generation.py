"""What instances of the term before left, in elements on this disk: read, and put on what was built of it beforehand.

An element that a change's barrier leaves says what has changed since one that is committed. Whoever takes over has built that one
by then (`StateShares`), or builds it now, from the chain that the register names. After a roll-back everything is built from there.
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
"""Reads an element of an instance's stage by its digest. Raises `DamagedSnapshot`, OperationFailed."""


class IncrementLink(NamedTuple):
    """An element of a chain: which one, what it rests on, what it says."""

    digest: bytes
    onto: bytes
    snapshot: bytes


class ReadPreviousState(NamedTuple):
    """What an instance of the term before left, as far as it was read.

    Attributes:
        left: its state is in it only where the element is whole and nothing was built beforehand.
        links: what is still to be put on what was built, in order; empty where the state is in `left`.
    """

    header: SnapshotHeader
    left: SnapshotParts
    links: list[IncrementLink]


def previous_stage(instance: Instance, before: SnapshotHeader) -> Stage:
    """The stage of an instance in the term before; `before`: of any element of that term."""
    after = instance.plan.stages[instance.stage]
    return msgspec.structs.replace(
        after, generation=before.generation, parallelism=before.parallelism, owners=before.owners
    )


def successor_of(instance: Instance, before: SnapshotHeader) -> Successor:
    """What waits for all those whose keys an instance takes over; `before`: of any of their elements."""
    after = instance.plan.stages[instance.stage]
    return Successor(previous_stage(instance, before), after, instance.index, instance.take_over)


def groups_from(before: Stage, after: Stage, old: int, index: int) -> dict[int, None]:
    """Key groups that an instance of the next term takes from one of the term before."""
    return {
        group: None
        for group in range(KEY_GROUPS)
        if (not before.owners or before.owners[group] == old) and (not after.owners or after.owners[group] == index)
    }


class StateShares:
    """What one instance that waits has built of the states of those before it, by their indices."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._shares: dict[int, PreloadedState] = {}

    def of(self, header: SnapshotHeader) -> PreloadedState:
        """Of the instance that has saved an element. The largest is built where the instance keeps its state."""
        known = self._shares.get(header.index)
        if known is None:
            instance, before = self._instance, previous_stage(self._instance, header)
            after, index = instance.plan.stages[instance.stage], instance.index
            sizes = [len(groups_from(before, after, old, index)) for old in range(before.parallelism)]
            is_largest = header.index == sizes.index(max(sizes))
            state = instance.state if is_largest else instance.another_state()
            known = PreloadedState(state, groups_from(before, after, header.index, index))
            self._shares[header.index] = known
        return known

    def built(self, index: int) -> bytes:
        """The element as of which an instance's share is built; empty: it is not."""
        share = self._shares.get(index)
        return b"" if share is None else share.digest

    def complete(self, found: ReadPreviousState) -> SnapshotParts:
        """What an instance left, with its state. Raises as `PreloadedState.put`, and `DamagedSnapshot`."""
        if not found.links:
            if found.header.index in self._shares:
                self._shares[found.header.index].clear()
            return found.left
        share = self.of(found.header)
        for link in found.links:
            for _ in share.put(*link):
                pass
        return found.left._replace(state=share.state)


def read_chain(
    read: ReadSnapshot, running: RunningInstance, chain: Sequence[bytes], built: bytes
) -> list[tuple[SnapshotHeader, IncrementLink]]:
    """The elements of a chain that are to be put on one that was built; all of them where that is none of the chain.

    Raises:
        DamagedElement: one rests on another element than the chain says, or cannot be read.
        OperationFailed: one is not here.
    """
    start = chain.index(built) + 1 if built in chain else 0
    before = built if start else b""
    found: list[tuple[SnapshotHeader, IncrementLink]] = []
    for digest in chain[start:]:
        header, blocks = read(running, digest)
        if header.onto != before:
            raise DamagedSnapshot(f"{running.name}: an element of a chain rests on another one")
        found.append((header, IncrementLink(digest, before, blocks[0].whole())))
        before = digest
    return found


def read_previous_state(
    read: ReadSnapshot, running: RunningInstance, saved: SnapshotChain, built: bytes
) -> ReadPreviousState:
    """What an instance of the term before left.

    Args:
        built: the element as of which its share is built.

    Raises:
        DamagedElement, OperationFailed: it cannot be read.
    """
    instance = running.instance
    assert instance is not None  # sources never change
    chain = read_chain(read, running, (*saved.before, saved.digest), built)
    header, last = chain[-1]
    try:
        if last.onto:
            left, _ = instance.increment_parts_in(header.index, last.snapshot)
        else:
            left = instance.snapshot_parts_in(header.index, last.snapshot)
    except (msgspec.MsgspecError, IndexError) as error:
        raise DamagedSnapshot(f"{running.name}: what was handed over does not fit: {error}") from None
    return ReadPreviousState(header, left, [link for _, link in chain] if last.onto or built else [])


def take_over(read: ReadSnapshot, running: RunningInstance, at: RestoreFrom) -> None:
    """The stage took a new term with an epoch: an element of it is part of those that the instances of the term before saved.

    Raises:
        DamagedElement, OperationFailed: they cannot be read, or are not all.
    """
    saved = [one for one in at.snapshots if one.stage == running.stage]
    if running.instance is None or not saved:
        raise OperationFailed(f"nobody says what it was at epoch {at.epoch}")
    shares = StateShares(running.instance)
    successor: Successor | None = None
    for one in saved:
        if successor is None or successor.misses(one.index):
            found = read_previous_state(read, running, one, b"")
            successor = successor or successor_of(running.instance, found.header)
            if successor.misses(one.index):
                successor.hand(shares.complete(found))
    if successor is None or not successor.has_begun:
        raise OperationFailed("not all whose keys it takes over have an element here")
