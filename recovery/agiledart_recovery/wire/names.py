"""Names of recovery: runs, lives, epochs, ballots, parties. Epoch alone never names a snapshot: life and epoch do."""

from typing import Annotated

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.count import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.orders import MAX_ORDER_BYTES
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import ROUNDS_OF_AN_ERA

Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
Digest = Annotated[bytes, msgspec.Meta(max_length=32)]
Order = Annotated[bytes, msgspec.Meta(max_length=MAX_ORDER_BYTES)]
"""What an admin has signed: that a run is to go on without the majority of its voters. It begins an era."""


class Run(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """One version of an application: what a register, its lives and its fragments belong to."""

    app: Name
    version: Count


class Snapshot(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """(ℓ, e): what instances saved at barrier e of life ℓ."""

    life: Count
    epoch: Count


NOTHING_SAVED = Snapshot(0, 0)
"""Epoch 0 is committed with the first plan: sources at their beginning."""


class Ballot(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Who asks, and how often somebody has asked before; the higher one wins.

    The node's incarnation is part of it: a coordinator that was killed after it asked others, and before its own promise was on
    its disk, would else use one ballot twice.
    """

    round: Count = 0
    node: NodeId = NodeId(0)
    incarnation: Count = 0

    @property
    def era(self) -> int:
        """How often an admin had the run go on without a lost majority; `register/regaining.py`."""
        return self.round // ROUNDS_OF_AN_ERA


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Orders the values of a register: under one ballot the number grows, so its holder needs one round a change."""

    ballot: Ballot = Ballot()
    number: Count = 0


class Party(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """One instance of a source, a stage or a sink: in one life no triple comes twice."""

    stage: Name
    term: Count = 0
    index: Count = 0

    def __str__(self) -> str:
        return f"{self.stage}.{self.index}" + (f"/{self.term}" if self.term else "")


class TermGap(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """For so long rows to a stage stood still when it took a term, as one of its senders saw it."""

    stage: Name
    term: Count
    gap_ns: Count


class Voter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node and the random number made with its voter's file: a node that lost its disk is another voter."""

    peer: Peer
    seat: Count

    @property
    def chair(self) -> tuple[NodeId, int]:
        """What makes it this voter and no other."""
        return self.peer.node, self.seat


def size_of(value: object) -> int:
    """Bytes of a value on the wire."""
    return len(encode(value))
