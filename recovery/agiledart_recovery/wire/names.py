"""Names of recovery: runs, lives, epochs, ballots, parties. Epoch alone never names a snapshot: life and epoch do."""

from typing import Annotated

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_recovery.limits import ROUNDS_PER_CONFIGURATION

Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
Digest = Annotated[bytes, msgspec.Meta(max_length=32)]
SignedCommandBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]
"""What an admin has signed: that a run is to go on without the majority of its voters. It begins an era."""


class RunId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """One version of an application: what a register, its lives and its fragments belong to."""

    app: Name
    version: Count


class CheckpointId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """(ℓ, e): what instances saved at barrier e of life ℓ."""

    attempt: Count
    epoch: Count


INITIAL_CHECKPOINT = CheckpointId(0, 0)
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
    def configuration(self) -> int:
        """How often an admin had the run go on without a lost majority; `register/regaining.py`."""
        return self.round // ROUNDS_PER_CONFIGURATION


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Orders the values of a register: under one ballot the number grows, so its holder needs one round a change."""

    ballot: Ballot = Ballot()
    number: Count = 0


class InstanceId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """One instance of a source, a stage or a sink: in one life no triple comes twice."""

    stage: Name
    generation: Count = 0
    index: Count = 0

    def __str__(self) -> str:
        return f"{self.stage}.{self.index}" + (f"/{self.generation}" if self.generation else "")


class GenerationPause(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """For so long rows to a stage stood still when it took a term, as one of its senders saw it."""

    stage: Name
    generation: Count
    changeover_pause_ns: Count


class Voter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node and the random number made with its voter's file: a node that lost its disk is another voter."""

    peer: Peer
    voter_slot: Count

    @property
    def voter_id(self) -> tuple[NodeId, int]:
        """What makes it this voter and no other."""
        return self.peer.node, self.voter_slot


def size_of(value: object) -> int:
    """Bytes of a value on the wire."""
    return len(encode(value))
