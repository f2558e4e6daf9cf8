"""Names of recovery: runs, attempts, epochs, ballots, instances. Attempt and epoch together name a checkpoint; an epoch alone
does not.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.counts import Count
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_recovery.limits import ROUNDS_PER_CONFIGURATION

Digest = Annotated[bytes, msgspec.Meta(max_length=32)]
SignedCommandBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]
"""An admin's signed command that a run is to continue without the majority of its voters. It begins a configuration."""


class RunId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """One version of an application, to which a register, attempts and fragments belong."""

    app: ApplicationName
    version: Count


class CheckpointId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Checkpoint (ℓ, e): the snapshots of all instances at barrier e of attempt ℓ."""

    attempt: Count
    epoch: Count


INITIAL_CHECKPOINT = CheckpointId(0, 0)
"""Epoch 0 is committed with the first plan: sources at their beginning."""


class Ballot(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Ballot of a proposer; the higher one wins.

    The node's incarnation is part of it. Else a coordinator could use one ballot twice, when it is killed after it asked others
    and before its own promise is on its disk.
    """

    round: Count = 0
    node: NodeId = NodeId(0)
    incarnation: Count = 0

    @property
    def configuration(self) -> int:
        """Return how many times an admin had the run continue without a lost majority; see `register/quorum_recovery.py`."""
        return self.round // ROUNDS_PER_CONFIGURATION


class Stamp(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Order of a register's values. Under one ballot the number grows, so its holder needs one round per change."""

    ballot: Ballot = Ballot()
    number: Count = 0


class InstanceId(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """One instance of a source, a stage or a sink. In one attempt no triple occurs twice."""

    stage: ApplicationName
    generation: Count = 0
    index: Count = 0

    def __str__(self) -> str:
        return f"{self.stage}.{self.index}" + (f"/{self.generation}" if self.generation else "")


class GenerationPause(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Pause of rows to a stage during its change to a generation, as one of its senders saw it."""

    stage: ApplicationName
    generation: Count
    changeover_pause_ns: Count


class Voter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node and the random number made with its voter file. A node that lost its disk is another voter."""

    peer: Peer
    voter_slot: Count

    @property
    def voter_id(self) -> tuple[NodeId, int]:
        """Return the pair that identifies this voter."""
        return self.peer.node, self.voter_slot


def size_of(value: object) -> int:
    """Return the encoded size of a value in bytes."""
    return len(encode(value))
