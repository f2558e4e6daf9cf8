"""What recovery asks of its driver. Each has a number; `Completed` or `Failed` brings it back.

What is kept is on the disk (fsync) when `Completed` comes, and writes of one run are carried out in order.
"""

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId, RunId, SignedCommandBytes, Stamp
from agiledart_recovery.wire.register_value import (
    Assignment,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    SavedState,
    SinkEnd,
)


class VoterFile(msgspec.Struct, frozen=True, array_like=True):
    """What a voter must not forget. `order`: of an admin, with which the latest era began that it knows of."""

    run: RunId
    voter_slot: Count
    promised: Ballot = Ballot()
    accepted: Stamp = Stamp()
    value: RegisterValue | None = None
    signed_command: SignedCommandBytes = b""


class AttemptFile(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last life of a run that a node has entered. `order`: of an admin, with which the life's era began."""

    run: RunId
    attempt: Count
    signed_command: SignedCommandBytes = b""


class RequestEffect(Effect, frozen=True, gc=False):
    """Something to be done, whose outcome comes back."""

    request: int


class StoreVoter(RequestEffect, frozen=True, gc=False):
    """Put a voter's file on the disk."""

    file: VoterFile


class StoreAttempt(RequestEffect, frozen=True, gc=False):
    """Put the entered life on the disk."""

    file: AttemptFile


class EnterAttempt(RequestEffect, frozen=True, gc=False):
    """End what runs of older lives, cut the sinks' parts to `ends`, restore `assignments` from `saved`, and wait for
    `BeginSources`.

    A part without an end keeps what it had when the run began. `base` is the committed epoch: barriers go on from there.
    `shown`: what sinks saved at that epoch, where `saved` is of the one before it; their elements say where their parts end.
    """

    run: RunId
    attempt: int
    base: int
    plan: Plan
    assignments: tuple[Assignment, ...]
    saved: tuple[SavedState, ...]
    ends: tuple[SinkEnd, ...]
    emitted: tuple[SavedState, ...] = ()


class BeginSources(Effect, frozen=True, gc=False):
    """Everybody has entered the life."""

    run: RunId
    attempt: int


class EmitBarrier(Effect, frozen=True, gc=False):
    """Sources send barrier `epoch`, and before it those that they missed; answered by `PinnedInstancePrepared` of each party.

    `before` is the digest of the plan that they follow; `after`, with a change, the plan behind the barrier. `holds`: nothing
    more is read behind it.
    """

    run: RunId
    attempt: int
    epoch: int
    before: bytes
    after: Plan | None
    holds: bool = False


class MakeGenerationReady(RequestEffect, frozen=True, gc=False):
    """Make ready `assignments` of the plan `after`: room, executors, code; and links of all that runs here to what it will send to.
    They begin when they are handed over.
    """

    run: RunId
    attempt: int
    before: Plan
    after: Plan
    assignments: tuple[Assignment, ...]


class PreloadState(RequestEffect, frozen=True, gc=False):
    """Bring the committed elements of old instances here, and have the new ones build what they will take over from them. It is
    asked again when there are later ones.
    """

    run: RunId
    attempt: int
    before: Plan
    after: Plan
    saved: tuple[SavedState, ...]


class TakeOver(RequestEffect, frozen=True, gc=False):
    """An old instance has handed over: bring its element here, and its groups to the waiting instances that own them.

    Args:
        origin: who has it; None: only holders.
    """

    run: RunId
    attempt: int
    epoch: int
    digest: bytes
    saved: SavedState
    origin: Peer | None = None


class DiscardGeneration(Effect, frozen=True, gc=False):
    """The plan of this digest will not be: end what was made ready for it and has not begun."""

    run: RunId
    attempt: int
    digest: bytes


class SyncRunLogs(RequestEffect, frozen=True, gc=False):
    """Put on the disk all that sources with a log have sent."""

    run: RunId
    attempt: int


class CommitCheckpoint(RequestEffect, frozen=True, gc=False):
    """The epoch is committed: sinks write COMMIT up to their end, logs are trimmed to their source's saved position."""

    run: RunId
    attempt: int
    value: RegisterValue


class CloseRun(Effect, frozen=True, gc=False):
    """The run has ended: everything of it but committed rows may go."""

    run: RunId
    state: str


class FragmentKey(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Which fragment of which element."""

    run: RunId
    instance: InstanceId
    checkpoint: CheckpointId
    index: Count


class SendFragment(RequestEffect, frozen=True, gc=False):
    """Encode if that was not done yet, and store one fragment at a holder.

    `life`: in which this host wants that; the element's own, or a later one when its fragment is made again.
    """

    replica_node: NodeId
    key: FragmentKey
    snapshot: InstanceSnapshot
    attempt: int


class FetchStripe(RequestEffect, frozen=True, gc=False):
    """Bytes `offset … offset + length` of a fragment; the whole of it when `length` is 0, and then its hash is looked at."""

    replica_node: NodeId
    key: FragmentKey
    snapshot: InstanceSnapshot
    offset: int
    length: int


class DeleteFragments(Effect, frozen=True, gc=False):
    """Nobody needs these any more."""

    keys: tuple[FragmentKey, ...]
