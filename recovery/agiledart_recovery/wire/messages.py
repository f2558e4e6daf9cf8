"""What nodes say to each other about recovery. Tags 379 to 409.

| who → whom | messages |
|---|---|
| proposer → voter, and back | PREPARE PROMISE ACCEPT ACCEPTED REFUSED |
| coordinator → voters, and back | LEADING FOLLOWING; ASK_SEAT SEAT |
| coordinator → hosts, and back | RESET RESET_OK RESET_REFUSED START; BEGIN ASK PREPARED; SYNC SYNCED; COMMITTED COMMITTED_OK |
| coordinator → hosts of both plans, and back | PREPARE_TERM TERM_READY TERM_PROGRESS TERM_LET_GO |
| host of an old instance → of new ones, and back | HANDED HANDED_OK |
| host → coordinator | NEED_LIFE, ENTERING, REMADE |
| host → holder, and back | KEPT HOLDS |

Fragments' bytes travel over a service of their own, so they are no messages here.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import (
    MAX_CHAIN,
    MAX_EDGES,
    MAX_FRAGMENTS,
    MAX_INSTANCES,
    MAX_REASON,
    MAX_REPLACED_FRAGMENTS,
)
from agiledart_recovery.wire.names import (
    Ballot,
    CheckpointId,
    Digest,
    GenerationPause,
    InstanceId,
    RunId,
    SignedCommandBytes,
    Stamp,
)
from agiledart_recovery.wire.register_value import Plan, RegisterValue, ReplacedFragment, SavedState

Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON)]


class RunMessage(Message, frozen=True, gc=False):
    """A message about one run."""

    run: RunId


class Prepare(RunMessage, frozen=True, gc=False, tag=380):
    """Answer nobody below this ballot any more, and tell what you have accepted. `order`: with which its era began."""

    ballot: Ballot
    signed_command: SignedCommandBytes = b""


class Promise(RunMessage, frozen=True, gc=False, tag=381):
    """I do; this is the newest that I accepted."""

    ballot: Ballot
    voter_slot: Count
    accepted: Stamp
    value: RegisterValue | None


class Accept(RunMessage, frozen=True, gc=False, tag=382):
    """This is the value now."""

    stamp: Stamp
    value: RegisterValue


class Accepted(RunMessage, frozen=True, gc=False, tag=383):
    """It is on my disk."""

    stamp: Stamp
    voter_slot: Count


class BallotRefused(RunMessage, frozen=True, gc=False, tag=384):
    """I have promised a higher ballot; or one that is so far below that I come up to yours in steps only.

    Args:
        order: where I know of a later era, with which it began.
    """

    ballot: Ballot
    promised: Ballot
    signed_command: SignedCommandBytes = b""


class LeaderAnnounced(RunMessage, frozen=True, gc=False, tag=385):
    """I coordinate this run under this ballot.

    Args:
        is_over: it has ended and everybody knows; nobody need take over.
        order: with which the ballot's era began.
    """

    ballot: Ballot
    is_over: bool = False
    signed_command: SignedCommandBytes = b""


class LeaderAcknowledged(RunMessage, frozen=True, gc=False, tag=386):
    """I heard you, and hold this seat."""

    ballot: Ballot
    voter_slot: Count


class RequestVoterSlot(RunMessage, frozen=True, gc=False, tag=387):
    """Make a voter's file for this run."""


class VoterSlotMade(RunMessage, frozen=True, gc=False, tag=388):
    """It is made, with this number."""

    voter_slot: Count


class Reset(RunMessage, frozen=True, gc=False, tag=389):
    """Enter this life from the value's committed epoch; if you are in it, tell what you have prepared."""

    ballot: Ballot
    value: RegisterValue


class Prepared(RunMessage, frozen=True, gc=False, tag=390):
    """What a party saved at a barrier is safe.

    Args:
        offset: of a sink: rows before the barrier.
        after: the plan that holds behind the barrier, when it is another one.
        is_caught_up: the instance's frontier has passed the one that it was restored with.
        has_ended: it has no more input; this counts for every epoch *above* `epoch`, the last barrier that it passed.
        gaps: of the stages that it sends to, for how long rows stood still at their last change.
        pause_ns: for so long its own rows had to wait at once for the barrier, at the most.
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
    """I am in this life. `begun`: the highest barrier of it that my sources have passed."""

    attempt: Count
    begun: Count
    prepared: Annotated[tuple[Prepared, ...], msgspec.Meta(max_length=MAX_INSTANCES)]


class ResetRefused(RunMessage, frozen=True, gc=False, tag=392):
    """I cannot: I have entered `life`, which is later, or the same and I was ended since; or I could not restore.

    Args:
        lacks: holders whose fragments of a state are gone or bad, so that it cannot be rebuilt without them.
        order: with which the era of a later life began.
    """

    attempt: Count
    reason: Reason
    lacks: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_FRAGMENTS)] = ()
    signed_command: SignedCommandBytes = b""


class Start(RunMessage, frozen=True, gc=False, tag=393):
    """Everybody is in this life: sources may send."""

    attempt: Count


class Begin(RunMessage, frozen=True, gc=False, tag=394):
    """Send barrier `epoch`; with a change the plan `after` holds behind it. `before` must be the plan that you have.

    `holds`: sources send nothing behind it, as long as this life lasts.
    """

    attempt: Count
    epoch: Count
    before: Digest
    after: Plan | None = None
    holds: bool = False


class QueryPrepared(RunMessage, frozen=True, gc=False, tag=395):
    """What have you prepared above this epoch?"""

    attempt: Count
    epoch: Count


class Sync(RunMessage, frozen=True, gc=False, tag=396):
    """Put on your disk all that your sources have sent, for this epoch."""

    attempt: Count
    epoch: Count


class Synced(RunMessage, frozen=True, gc=False, tag=397):
    """It is there."""

    attempt: Count
    epoch: Count


class Committed(RunMessage, frozen=True, gc=False, tag=398):
    """The register says so. What it does not need any more may go."""

    attempt: Count
    value: RegisterValue


class CommittedOk(RunMessage, frozen=True, gc=False, tag=399):
    """Sinks have written COMMIT, logs are trimmed."""

    attempt: Count
    committed: CheckpointId


class NewAttemptNeeded(RunMessage, frozen=True, gc=False, tag=400):
    """This life cannot go on here."""

    attempt: Count
    reason: Reason


class NeededFragments(RunMessage, frozen=True, gc=False, tag=401):
    """Host → holder: of a party's fragments that you have from me only those of `needed` are needed any more.

    Args:
        committed: what the register has committed; fragments of later epochs stay, whatever they are.
        is_over: the run has ended, so none is needed.
        asks: answer with HOLDS.
    """

    attempt: Count
    instance: InstanceId
    committed: CheckpointId
    needed: Annotated[tuple[CheckpointId, ...], msgspec.Meta(max_length=2 * MAX_CHAIN)]
    is_over: bool = False
    asks: bool = False


class AttemptProgress(RunMessage, frozen=True, gc=False, tag=402):
    """Host → coordinator: I am entering this life, and this far.

    Args:
        phase: `fetch` of fragments, or `restore`.
        got, of: bytes fetched, and to be fetched.
    """

    attempt: Count
    phase: Annotated[str, msgspec.Meta(max_length=16)]
    got: Count = 0
    of: Count = 0


class ProposeGeneration(RunMessage, frozen=True, gc=False, tag=403):
    """The plan `after` may follow `before` with a barrier: make ready what you will run in it, and the way to what others will.

    Nothing of it begins because of this: a new instance begins when it is handed over, a sender switches at its barrier.

    Args:
        stamp: orders the changes that coordinators want; one that comes late undoes nothing.
    """

    attempt: Count
    stamp: Stamp
    before: Plan
    after: Plan


class GenerationReady(RunMessage, frozen=True, gc=False, tag=404):
    """It is ready. A reason: it can't be.

    Args:
        builds: new instances here build what they will take over, as far as it is committed; `epoch`: they have that of this one.
    """

    attempt: Count
    digest: Digest
    reason: Reason = ""
    builds: bool = False
    epoch: Count = 0


class GenerationProgress(RunMessage, frozen=True, gc=False, tag=379):
    """It is not ready yet, and this far: bytes that are here of those that are to be built beforehand."""

    attempt: Count
    digest: Digest
    got: Count
    of: Count


class GenerationDropped(RunMessage, frozen=True, gc=False, tag=405):
    """The plan of this digest will not be: what was made ready for it may go."""

    attempt: Count
    digest: Digest


class StateHandedOver(RunMessage, frozen=True, gc=False, tag=406):
    """An old instance has stopped at the change's barrier; this is what it saved there, and its groups are yours.

    It is told at once, when it lies with who tells it, without holders; and again when it is safe.
    """

    attempt: Count
    epoch: Count
    digest: Digest
    saved: SavedState


class StateHandedOverOk(RunMessage, frozen=True, gc=False, tag=407):
    """I have it."""

    attempt: Count
    epoch: Count
    instance: InstanceId


class FragmentsReplaced(RunMessage, frozen=True, gc=False, tag=408):
    """Fragments of what I saved have other holders, for what the register names had none any more. Said until it names them."""

    attempt: Count
    made: Annotated[tuple[ReplacedFragment, ...], msgspec.Meta(max_length=MAX_REPLACED_FRAGMENTS)]


class HeldFragments(RunMessage, frozen=True, gc=False, tag=409):
    """Holder → host: of a party's fragments that you had put here, these are here and whole."""

    instance: InstanceId
    held: Annotated[tuple[tuple[CheckpointId, Count], ...], msgspec.Meta(max_length=2 * MAX_CHAIN * MAX_FRAGMENTS)]


RecoveryMessage = (
    Prepare | Promise | Accept | Accepted | BallotRefused | LeaderAnnounced | LeaderAcknowledged | RequestVoterSlot | VoterSlotMade | Reset | Prepared
    | ResetOk | ResetRefused | Start | Begin | QueryPrepared | Sync | Synced | Committed | CommittedOk | NewAttemptNeeded
    | NeededFragments | AttemptProgress | FragmentsReplaced | HeldFragments | ProposeGeneration | GenerationReady | GenerationProgress | GenerationDropped | StateHandedOver | StateHandedOverOk
)  # fmt: skip
