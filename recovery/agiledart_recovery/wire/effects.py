"""Effects that recovery asks of its driver. Each request has a number; `Completed` or `Failed` brings it back.

A stored file is on the disk (fsync) when `Completed` comes, and writes of one run are carried out in order.
"""

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.key_share import DealtShare
from agiledart_recovery.wire.names import (
    Ballot,
    CheckpointId,
    Digest,
    InstanceId,
    RunId,
    SignedCommandBytes,
    Stamp,
    Voter,
)
from agiledart_recovery.wire.register_value import (
    Assignment,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    SavedState,
    SinkEnd,
)


class ReservedSlot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Number of a voter slot that a node has promised beside another one.

    Args:
        requested_by: the node that asked for it, then the voters that it named.
    """

    voter_slot: Count
    requested_by: tuple[Voter, ...]

    def is_for(self, node: NodeId) -> bool:
        """Return whether the request named a node."""
        return any(voter.peer.node == node for voter in self.requested_by)


class VoterFile(msgspec.Struct, frozen=True, array_like=True):
    """Durable state of a voter.

    Args:
        signed_command: the admin's command that began the latest configuration known here.
        requested_by: voters of the value whose coordinator asked for the slot; none for a slot of the register's first value.
        key_shares: of the run's key.
        reserved: slots that other nodes asked for; one of them may take this one's place.
    """

    run: RunId
    voter_slot: Count
    promised: Ballot = Ballot()
    accepted: Stamp = Stamp()
    value: RegisterValue | None = None
    signed_command: SignedCommandBytes = b""
    requested_by: tuple[Voter, ...] = ()
    key_shares: tuple[DealtShare, ...] = ()
    reserved: tuple[ReservedSlot, ...] = ()


class AttemptFile(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Durable state of a host: the last attempt of a run that it entered.

    Args:
        signed_command: the admin's command that began the attempt's configuration.
        voters: those of the value by which the attempt was entered; none in a file of earlier software.
        key: of the run, once the host has it.
    """

    run: RunId
    attempt: Count
    signed_command: SignedCommandBytes = b""
    voters: tuple[Voter, ...] = ()
    key: Digest = b""


class RequestEffect(Effect, frozen=True, gc=False):
    """Effect whose outcome comes back under its number."""

    request: int


class StoreVoter(RequestEffect, frozen=True, gc=False):
    """Write a voter's file to the disk."""

    file: VoterFile


class StoreAttempt(RequestEffect, frozen=True, gc=False):
    """Write the entered attempt to the disk."""

    file: AttemptFile


class EnterAttempt(RequestEffect, frozen=True, gc=False):
    """End instances of older attempts, truncate sinks' parts to `ends`, restore `assignments` from `saved`, and wait for
    `BeginSources`.

    A part without an end keeps what it had when the run began. `base` is the committed epoch: barriers continue from there.
    `emitted`: what sinks saved at that epoch, where `saved` is of the previous one; their snapshots say where their parts end.
    """

    run: RunId
    attempt: int
    base: int
    plan: Plan
    assignments: tuple[Assignment, ...]
    saved: tuple[SavedState, ...]
    ends: tuple[SinkEnd, ...]
    emitted: tuple[SavedState, ...] = ()


class RunKeyFound(Effect, frozen=True, gc=False):
    """Continue with what waits for the run's key: this host has it now."""

    run: RunId


class BeginSources(Effect, frozen=True, gc=False):
    """Start the sources: all hosts have entered the attempt."""

    run: RunId
    attempt: int


class EmitBarrier(Effect, frozen=True, gc=False):
    """Let sources send barrier `epoch`, and before it those that they missed; each instance answers by `PinnedInstancePrepared`.

    `before` is the digest of the plan that they follow; `after`, with a change, is the plan behind the barrier. `holds`:
    sources read nothing behind it.
    """

    run: RunId
    attempt: int
    epoch: int
    before: bytes
    after: Plan | None
    holds: bool = False


class MakeGenerationReady(RequestEffect, frozen=True, gc=False):
    """Prepare `assignments` of the plan `after`: capacity, executors, code, and links from local instances to their new receivers.

    The new instances begin when they are handed over.
    """

    run: RunId
    attempt: int
    before: Plan
    after: Plan
    assignments: tuple[Assignment, ...]


class PreloadState(RequestEffect, frozen=True, gc=False):
    """Fetch the committed snapshots of old instances, and have the new ones build what they will take over from them.

    Recovery requests it again when there are later snapshots.
    """

    run: RunId
    attempt: int
    before: Plan
    after: Plan
    saved: tuple[SavedState, ...]


class TakeOver(RequestEffect, frozen=True, gc=False):
    """Fetch the snapshot of an old instance that has handed over, and give its key groups to the waiting instances that own them.

    Args:
        origin: the node that has the snapshot; None: only replica nodes have it.
    """

    run: RunId
    attempt: int
    epoch: int
    digest: bytes
    saved: SavedState
    origin: Peer | None = None


class HoldStandby(Effect, frozen=True, gc=False):
    """Hold executors ready that this host needs in the next attempt, with the state of `assignments` as of a committed epoch.

    Args:
        assignments: instances of which this host is the standby; empty: its executors load the code only.
        saved: their state at the committed epoch.
    """

    run: RunId
    attempt: int
    plan: Plan
    assignments: tuple[Assignment, ...]
    saved: tuple[SavedState, ...]


class ReleaseStandby(Effect, frozen=True, gc=False):
    """Release what `HoldStandby` has made ready: this host is no longer a standby of the run, and hosts nothing of it."""

    run: RunId


class DiscardGeneration(Effect, frozen=True, gc=False):
    """Discard what was prepared for the plan of this digest and has not begun: the plan will not come."""

    run: RunId
    attempt: int
    digest: bytes


class SyncRunLogs(RequestEffect, frozen=True, gc=False):
    """Write to the disk all that sources with a log have sent."""

    run: RunId
    attempt: int


class CommitCheckpoint(RequestEffect, frozen=True, gc=False):
    """Carry out a committed epoch: sinks write COMMIT up to their end, logs are trimmed to their source's saved position."""

    run: RunId
    attempt: int
    value: RegisterValue


class CloseRun(Effect, frozen=True, gc=False):
    """Release everything of a run that has ended, except its committed rows."""

    run: RunId
    state: str


class FragmentKey(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Name of a fragment of a snapshot."""

    run: RunId
    instance: InstanceId
    checkpoint: CheckpointId
    index: Count


class SendFragment(RequestEffect, frozen=True, gc=False):
    """Store one fragment at a replica node; encode it first if needed.

    `attempt`: the attempt in which this host requests it: the snapshot's own, or a later one when a fragment is replaced.
    """

    replica_node: NodeId
    key: FragmentKey
    snapshot: InstanceSnapshot
    attempt: int


class FetchStripe(RequestEffect, frozen=True, gc=False):
    """Fetch bytes `offset … offset + length` of a fragment. `length` 0 fetches all of it and verifies its hash."""

    replica_node: NodeId
    key: FragmentKey
    snapshot: InstanceSnapshot
    offset: int
    length: int


class DeleteFragments(Effect, frozen=True, gc=False):
    """Delete fragments that no node needs any more."""

    keys: tuple[FragmentKey, ...]
