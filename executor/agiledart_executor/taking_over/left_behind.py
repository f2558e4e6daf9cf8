"""What instances of the term before left, in elements on this disk: read, and put on what was built of it beforehand.

An element that a change's barrier leaves says what has changed since one that is committed. Whoever takes over has built that one
by then (`Shares`), or builds it now, from the chain that the register names. After a roll-back everything is built from there.
Source: scaling specification, section 8, steps 1, 2, 5 and 6.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from agiledart_dataflow.plan.deployment import RestoreFrom, SavedAt
from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_dataflow.runtime.handover import Left, Successor
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.state.shares import Share
from agiledart_executor.elements import DamagedElement, ElementHeader, StoredBlock
from agiledart_executor.running_instance import Running
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import KEY_GROUPS

Read = Callable[[Running, bytes], tuple[ElementHeader, list[StoredBlock]]]
"""Reads an element of an instance's stage by its digest. Raises `DamagedElement`, OperationFailed."""


class Link(NamedTuple):
    """An element of a chain: which one, what it rests on, what it says."""

    digest: bytes
    onto: bytes
    snapshot: bytes


class Found(NamedTuple):
    """What an instance of the term before left, as far as it was read.

    Attributes:
        left: its state is in it only where the element is whole and nothing was built beforehand.
        links: what is still to be put on what was built, in order; empty where the state is in `left`.
    """

    header: ElementHeader
    left: Left
    links: list[Link]


def stage_before(instance: Instance, before: ElementHeader) -> Stage:
    """The stage of an instance in the term before; `before`: of any element of that term."""
    after = instance.plan.stages[instance.stage]
    return msgspec.structs.replace(after, term=before.term, parallelism=before.parallelism, owners=before.owners)


def successor_of(instance: Instance, before: ElementHeader) -> Successor:
    """What waits for all those whose keys an instance takes over; `before`: of any of their elements."""
    after = instance.plan.stages[instance.stage]
    return Successor(stage_before(instance, before), after, instance.index, instance.take_over)


def groups_from(before: Stage, after: Stage, old: int, index: int) -> dict[int, None]:
    """Key groups that an instance of the next term takes from one of the term before."""
    return {
        group: None
        for group in range(KEY_GROUPS)
        if (not before.owners or before.owners[group] == old) and (not after.owners or after.owners[group] == index)
    }


class Shares:
    """What one instance that waits has built of the states of those before it, by their indices."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._shares: dict[int, Share] = {}

    def of(self, header: ElementHeader) -> Share:
        """Of the instance that has saved an element. The largest is built where the instance keeps its state."""
        known = self._shares.get(header.index)
        if known is None:
            instance, before = self._instance, stage_before(self._instance, header)
            after, index = instance.plan.stages[instance.stage], instance.index
            sizes = [len(groups_from(before, after, old, index)) for old in range(before.parallelism)]
            is_largest = header.index == sizes.index(max(sizes))
            state = instance.state if is_largest else instance.another_state()
            known = Share(state, groups_from(before, after, header.index, index))
            self._shares[header.index] = known
        return known

    def built(self, index: int) -> bytes:
        """The element as of which an instance's share is built; empty: it is not."""
        share = self._shares.get(index)
        return b"" if share is None else share.digest

    def complete(self, found: Found) -> Left:
        """What an instance left, with its state. Raises as `Share.put`, and `DamagedElement`."""
        if not found.links:
            if found.header.index in self._shares:
                self._shares[found.header.index].clear()
            return found.left
        share = self.of(found.header)
        for link in found.links:
            for _ in share.put(*link):
                pass
        return found.left._replace(state=share.state)


def links_of(read: Read, running: Running, chain: Sequence[bytes], built: bytes) -> list[tuple[ElementHeader, Link]]:
    """The elements of a chain that are to be put on one that was built; all of them where that is none of the chain.

    Raises:
        DamagedElement: one rests on another element than the chain says, or cannot be read.
        OperationFailed: one is not here.
    """
    start = chain.index(built) + 1 if built in chain else 0
    before = built if start else b""
    found: list[tuple[ElementHeader, Link]] = []
    for digest in chain[start:]:
        header, blocks = read(running, digest)
        if header.onto != before:
            raise DamagedElement(f"{running.name}: an element of a chain rests on another one")
        found.append((header, Link(digest, before, blocks[0].whole())))
        before = digest
    return found


def left_by(read: Read, running: Running, saved: SavedAt, built: bytes) -> Found:
    """What an instance of the term before left.

    Args:
        built: the element as of which its share is built.

    Raises:
        DamagedElement, OperationFailed: it cannot be read.
    """
    instance = running.instance
    assert instance is not None  # sources never change
    chain = links_of(read, running, (*saved.before, saved.digest), built)
    header, last = chain[-1]
    try:
        if last.onto:
            left, _ = instance.left_with(header.index, last.snapshot)
        else:
            left = instance.left_in(header.index, last.snapshot)
    except (msgspec.MsgspecError, IndexError) as error:
        raise DamagedElement(f"{running.name}: what was handed over does not fit: {error}") from None
    return Found(header, left, [link for _, link in chain] if last.onto or built else [])


def take_over(read: Read, running: Running, at: RestoreFrom) -> None:
    """The stage took a new term with an epoch: an element of it is part of those that the instances of the term before saved.

    Raises:
        DamagedElement, OperationFailed: they cannot be read, or are not all.
    """
    saved = [one for one in at.elements if one.stage == running.stage]
    if running.instance is None or not saved:
        raise OperationFailed(f"nobody says what it was at epoch {at.epoch}")
    shares = Shares(running.instance)
    successor: Successor | None = None
    for one in saved:
        if successor is None or successor.misses(one.index):
            found = left_by(read, running, one, b"")
            successor = successor or successor_of(running.instance, found.header)
            if successor.misses(one.index):
                successor.hand(shares.complete(found))
    if successor is None or not successor.has_begun:
        raise OperationFailed("not all whose keys it takes over have an element here")
