"""Messages that nodes exchange about recovery. Tags 373 to 409.

| sender → receiver | messages |
|---|---|
| proposer → voter, and back | PREPARE PROMISE ACCEPT ACCEPTED BALLOT_REFUSED |
| coordinator → voters, and back | LEADER_ANNOUNCED LEADER_ACKNOWLEDGED; REQUEST_VOTER_SLOT VOTER_SLOT_MADE |
| coordinator → hosts, and back | RESET RESET_OK RESET_REFUSED START; COMMITTED COMMITTED_OK |
| coordinator → hosts, and back | BEGIN QUERY_PREPARED PREPARED; SYNC SYNCED |
| coordinator → hosts of both plans, and back | PROPOSE_GENERATION GENERATION_READY GENERATION_PROGRESS GENERATION_DROPPED |
| host of an old instance → of new ones, and back | STATE_HANDED_OVER STATE_HANDED_OVER_OK |
| host → coordinator | NEW_ATTEMPT_NEEDED ATTEMPT_PROGRESS FRAGMENTS_REPLACED |
| voter or host → voters of the held value, and back | QUERY_VOTERS VOTERS_KNOWN |
| host → replica node, and back | NEEDED_FRAGMENTS HELD_FRAGMENTS |
| host → voter or other host, and back | QUERY_RUN_KEY KEY_SHARE_DEALT RUN_KEY_PARTS |

Fragments' bytes travel over a service of their own, so they are no messages here.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import (
    DEALS_OF_DEALER,
    MAX_CHAIN,
    MAX_DEALERS,
    MAX_EDGES,
    MAX_FRAGMENTS,
    MAX_INSTANCES,
    MAX_REASON,
    MAX_REPLACED_FRAGMENTS,
    MAX_VOTERS,
)
from agiledart_recovery.wire.key_share import KeyShare
from agiledart_recovery.wire.names import (
    Ballot,
    CheckpointId,
    Digest,
    GenerationPause,
    InstanceId,
    RunId,
    SignedCommandBytes,
    Stamp,
    Voter,
)
from agiledart_recovery.wire.register_value import Plan, RegisterValue, ReplacedFragment, SavedState

Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON)]


class RunMessage(Message, frozen=True, gc=False):
    """Message about one run."""

    run: RunId


class Prepare(RunMessage, frozen=True, gc=False, tag=380):
    """Ask a voter to refuse lower ballots and to report its accepted value. `signed_command` began the ballot's configuration."""

    ballot: Ballot
    signed_command: SignedCommandBytes = b""


class Promise(RunMessage, frozen=True, gc=False, tag=381):
    """Promise to refuse lower ballots, with the newest value that the voter accepted."""

    ballot: Ballot
    voter_slot: Count
    accepted: Stamp
    value: RegisterValue | None


class Accept(RunMessage, frozen=True, gc=False, tag=382):
    """Ask a voter to accept a value."""

    stamp: Stamp
    value: RegisterValue


class Accepted(RunMessage, frozen=True, gc=False, tag=383):
    """Report that the value is on the voter's disk."""

    stamp: Stamp
    voter_slot: Count


class BallotRefused(RunMessage, frozen=True, gc=False, tag=384):
    """Refuse a ballot: a higher one is promised, or this one is too far above, so that the proposer must approach in steps.

    Args:
        signed_command: the command that began a later configuration, where the voter knows one.
    """

    ballot: Ballot
    promised: Ballot
    signed_command: SignedCommandBytes = b""


class LeaderAnnounced(RunMessage, frozen=True, gc=False, tag=385):
    """Announce that the sender coordinates this run under this ballot.

    Args:
        is_over: the run has ended and all its nodes know; no voter need take over.
        signed_command: the command that began the ballot's configuration.
    """

    ballot: Ballot
    is_over: bool = False
    signed_command: SignedCommandBytes = b""


class LeaderAcknowledged(RunMessage, frozen=True, gc=False, tag=386):
    """Acknowledge the coordinator's announcement, with the voter's slot."""

    ballot: Ballot
    voter_slot: Count


class RequestVoterSlot(RunMessage, frozen=True, gc=False, tag=387):
    """Ask a node to make a voter file for this run.

    `voters`: those of the register's value; the slot takes its first value from one of them.
    """

    voters: Annotated[tuple[Voter, ...], msgspec.Meta(max_length=MAX_VOTERS)] = ()


class VoterSlotMade(RunMessage, frozen=True, gc=False, tag=388):
    """Report that the voter file is made, with this number."""

    voter_slot: Count


class Reset(RunMessage, frozen=True, gc=False, tag=389):
    """Ask a host to enter this attempt from the value's committed epoch; a host that is in it reports what it has prepared."""

    ballot: Ballot
    value: RegisterValue


class Prepared(RunMessage, frozen=True, gc=False, tag=390):
    """Report that an instance's snapshot at a barrier is safe.

    Args:
        offset: of a sink: rows before the barrier.
        after: the plan that is valid behind the barrier, when it is another one.
        is_caught_up: the instance's frontier has passed the one that it was restored with.
        has_ended: it has no more input; this counts for every epoch *above* `epoch`, the last barrier that it passed.
        changeover_pauses: how long rows to its downstream stages paused at their last change.
        pause_ns: the longest time for which its own rows had to wait for the barrier.
    """

    attempt: Count
    epoch: Count
    instance: InstanceId
    saved: SavedState
    offset: Count = 0
    after: Plan | None = None
    is_caught_up: bool = True
    has_ended: bool = False
    changeover_pauses: Annotated[tuple[GenerationPause, ...], msgspec.Meta(max_length=MAX_EDGES)] = ()
    pause_ns: Count = 0


class ResetOk(RunMessage, frozen=True, gc=False, tag=391):
    """Report that the host is in this attempt. `begun`: the highest barrier of it that the host's sources have passed."""

    attempt: Count
    begun: Count
    prepared: Annotated[tuple[Prepared, ...], msgspec.Meta(max_length=MAX_INSTANCES)]


class ResetRefused(RunMessage, frozen=True, gc=False, tag=392):
    """Refuse an attempt: the host has entered `attempt`, which is later, or the same in an earlier process; or it could not
    restore.

    Args:
        lacks: replica nodes whose fragments of a state are gone or bad, so that it cannot be rebuilt without them.
        signed_command: the command that began the configuration of a later attempt.
    """

    attempt: Count
    reason: Reason
    lacks: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_FRAGMENTS)] = ()
    signed_command: SignedCommandBytes = b""


class Start(RunMessage, frozen=True, gc=False, tag=393):
    """Let sources send: all hosts are in this attempt."""

    attempt: Count


class Begin(RunMessage, frozen=True, gc=False, tag=394):
    """Ask sources to send barrier `epoch`. With a change, the plan `after` is valid behind it. `before` must be the host's plan.

    `holds`: sources send nothing behind it, as long as this attempt lasts.
    """

    attempt: Count
    epoch: Count
    before: Digest
    after: Plan | None = None
    holds: bool = False


class QueryPrepared(RunMessage, frozen=True, gc=False, tag=395):
    """Ask a host what it has prepared above this epoch."""

    attempt: Count
    epoch: Count


class RowsPassed(RunMessage, frozen=True, gc=False, tag=378):
    """Host → coordinator: rows have passed an instance here since the last epoch, so the next one has something to save."""

    attempt: Count


class Sync(RunMessage, frozen=True, gc=False, tag=396):
    """Ask a host to write to its disk all that its sources have sent, for this epoch."""

    attempt: Count
    epoch: Count


class Synced(RunMessage, frozen=True, gc=False, tag=397):
    """Report that the logs are on the disk."""

    attempt: Count
    epoch: Count


class Committed(RunMessage, frozen=True, gc=False, tag=398):
    """Announce a value that the register has accepted. Hosts may delete what it does not need any more."""

    attempt: Count
    value: RegisterValue


class CommittedOk(RunMessage, frozen=True, gc=False, tag=399):
    """Report that sinks have written COMMIT and logs are trimmed."""

    attempt: Count
    committed: CheckpointId


class NewAttemptNeeded(RunMessage, frozen=True, gc=False, tag=400):
    """Report that this attempt cannot continue on the sender. `is_crash`: a process of it died."""

    attempt: Count
    reason: Reason
    is_crash: bool = False


class NeededFragments(RunMessage, frozen=True, gc=False, tag=401):
    """Host → replica node: of this instance's fragments from the sender only those of `needed` are still needed.

    Args:
        committed: what the register has committed; fragments of later epochs stay in any case.
        is_over: the run has ended, so none is needed.
        asks: answer with HELD_FRAGMENTS.
    """

    attempt: Count
    instance: InstanceId
    committed: CheckpointId
    needed: Annotated[tuple[CheckpointId, ...], msgspec.Meta(max_length=2 * MAX_CHAIN)]
    is_over: bool = False
    asks: bool = False


class AttemptProgress(RunMessage, frozen=True, gc=False, tag=402):
    """Host → coordinator: how far the sender is in entering this attempt.

    Args:
        phase: `fetch` of fragments, or `restore`.
        got, of: bytes fetched, and to be fetched.
    """

    attempt: Count
    phase: Annotated[str, msgspec.Meta(max_length=16)]
    got: Count = 0
    of: Count = 0


class ProposeGeneration(RunMessage, frozen=True, gc=False, tag=403):
    """Propose that the plan `after` follows `before` at a barrier: prepare local instances of it, and links to remote ones.

    No instance begins because of this: a new one begins when it is handed over, a sender switches at its barrier.

    Args:
        stamp: orders the changes that coordinators propose; one that comes late undoes nothing.
    """

    attempt: Count
    stamp: Stamp
    before: Plan
    after: Plan


class GenerationReady(RunMessage, frozen=True, gc=False, tag=404):
    """Report that a generation is ready here; with a reason, that it can't be.

    Args:
        builds: new instances here preload the committed state that they will take over; `epoch`: they have that of this one.
    """

    attempt: Count
    digest: Digest
    reason: Reason = ""
    builds: bool = False
    epoch: Count = 0


class GenerationProgress(RunMessage, frozen=True, gc=False, tag=379):
    """Report progress of a preload: bytes that are here, of those that are to be built beforehand."""

    attempt: Count
    digest: Digest
    got: Count
    of: Count


class GenerationDropped(RunMessage, frozen=True, gc=False, tag=405):
    """Announce that the plan of this digest will not come: the receiver may discard what it prepared."""

    attempt: Count
    digest: Digest


class StateHandedOver(RunMessage, frozen=True, gc=False, tag=406):
    """Announce that an old instance has stopped at the change's barrier, with its snapshot; its groups belong to the receiver.

    Sent at once when the snapshot lies on the sender's disk, without replica nodes; and again when it is replicated.
    """

    attempt: Count
    epoch: Count
    digest: Digest
    saved: SavedState


class StateHandedOverOk(RunMessage, frozen=True, gc=False, tag=407):
    """Report that the receiver has the snapshot."""

    attempt: Count
    epoch: Count
    instance: InstanceId


class FragmentsReplaced(RunMessage, frozen=True, gc=False, tag=408):
    """Report fragments with new replica nodes, because the old ones are lost. Repeated until the register names the new ones."""

    attempt: Count
    made: Annotated[tuple[ReplacedFragment, ...], msgspec.Meta(max_length=MAX_REPLACED_FRAGMENTS)]


class HeldFragments(RunMessage, frozen=True, gc=False, tag=409):
    """Replica node → host: fragments of an instance, stored for that host, that are here and undamaged."""

    instance: InstanceId
    held: Annotated[tuple[tuple[CheckpointId, Count], ...], msgspec.Meta(max_length=2 * MAX_CHAIN * MAX_FRAGMENTS)]


class QueryVoters(RunMessage, frozen=True, gc=False, tag=376):
    """Host or voter that was away → voter of the value that it holds: who votes on the run now?"""


class VotersKnown(RunMessage, frozen=True, gc=False, tag=377):
    """Voter → voter or host of the value that it holds: the voters of that value, the former ones included while they change."""

    attempt: Count
    voters: Annotated[tuple[Voter, ...], msgspec.Meta(max_length=2 * MAX_VOTERS)]


class QueryRunKey(RunMessage, frozen=True, gc=False, tag=373):
    """Host → voter, or other host: question about the parts of the run's key that the receiver has."""


class KeyShareDealt(RunMessage, frozen=True, gc=False, tag=374):
    """Host → voter: the share of the run's key that the voter is to store. Answered by RUN_KEY_PARTS."""

    share: KeyShare


class RunKeyParts(RunMessage, frozen=True, gc=False, tag=375):
    """Voter or host → host that its value names: the parts of the run's key that the sender has.

    Args:
        key: of a host that has all of it.
        voter_slot: of a voter, else 0.
        shares: those on a voter's disk.
    """

    key: Digest = b""
    voter_slot: Count = 0
    shares: Annotated[tuple[KeyShare, ...], msgspec.Meta(max_length=DEALS_OF_DEALER * MAX_DEALERS)] = ()


RecoveryMessage = (
    Prepare | Promise | Accept | Accepted | BallotRefused | LeaderAnnounced | LeaderAcknowledged | RequestVoterSlot
    | VoterSlotMade | Reset | Prepared | ResetOk | ResetRefused | Start | Begin | QueryPrepared | Sync | Synced | Committed
    | CommittedOk | NewAttemptNeeded | NeededFragments | AttemptProgress | FragmentsReplaced | HeldFragments
    | ProposeGeneration | GenerationReady | GenerationProgress | GenerationDropped | StateHandedOver | StateHandedOverOk
    | RowsPassed | QueryVoters | VotersKnown | QueryRunKey | KeyShareDealt | RunKeyParts
)  # fmt: skip
