"""What recovery asks of its driver. Each has a number; `Completed` or `Failed` brings it back.

What is kept is on the disk (fsync) when `Completed` comes, and writes of one run are carried out in order.
"""

import msgspec

from agiledart_kernel.count import Count
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.names import Ballot, Order, Party, Run, Snapshot, Stamp
from agiledart_recovery.wire.value import Assignment, Element, Plan, Saved, SinkEnd, Value


class VoterFile(msgspec.Struct, frozen=True, array_like=True):
    """What a voter must not forget. `order`: of an admin, with which the latest era began that it knows of."""

    run: Run
    seat: Count
    promised: Ballot = Ballot()
    accepted: Stamp = Stamp()
    value: Value | None = None
    order: Order = b""


class LifeFile(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The last life of a run that a node has entered. `order`: of an admin, with which the life's era began."""

    run: Run
    life: Count
    order: Order = b""


class Request(Effect, frozen=True, gc=False):
    """Something to be done, whose outcome comes back."""

    request: int


class KeepVoter(Request, frozen=True, gc=False):
    """Put a voter's file on the disk."""

    file: VoterFile


class KeepLife(Request, frozen=True, gc=False):
    """Put the entered life on the disk."""

    file: LifeFile


class EnterLife(Request, frozen=True, gc=False):
    """End what runs of older lives, cut the sinks' parts to `ends`, restore `assignments` from `saved`, and wait for
    `StartSources`.

    A part without an end keeps what it had when the run began. `base` is the committed epoch: barriers go on from there.
    `shown`: what sinks saved at that epoch, where `saved` is of the one before it; their elements say where their parts end.
    """

    run: Run
    life: int
    base: int
    plan: Plan
    assignments: tuple[Assignment, ...]
    saved: tuple[Saved, ...]
    ends: tuple[SinkEnd, ...]
    shown: tuple[Saved, ...] = ()


class StartSources(Effect, frozen=True, gc=False):
    """Everybody has entered the life."""

    run: Run
    life: int


class PassBarrier(Effect, frozen=True, gc=False):
    """Sources send barrier `epoch`, and before it those that they missed; answered by `PartyPrepared` of each party.

    `before` is the digest of the plan that they follow; `after`, with a change, the plan behind the barrier. `holds`: nothing
    more is read behind it.
    """

    run: Run
    life: int
    epoch: int
    before: bytes
    after: Plan | None
    holds: bool = False


class MakeTermReady(Request, frozen=True, gc=False):
    """Make ready `assignments` of the plan `after`: room, executors, code; and links of all that runs here to what it will send to.
    They begin when they are handed over.
    """

    run: Run
    life: int
    before: Plan
    after: Plan
    assignments: tuple[Assignment, ...]


class BuildAhead(Request, frozen=True, gc=False):
    """Bring the committed elements of old instances here, and have the new ones build what they will take over from them. It is
    asked again when there are later ones.
    """

    run: Run
    life: int
    before: Plan
    after: Plan
    saved: tuple[Saved, ...]


class TakeOver(Request, frozen=True, gc=False):
    """An old instance has handed over: bring its element here, and its groups to the waiting instances that own them.

    Args:
        origin: who has it; None: only holders.
    """

    run: Run
    life: int
    epoch: int
    digest: bytes
    saved: Saved
    origin: Peer | None = None


class DropTerm(Effect, frozen=True, gc=False):
    """The plan of this digest will not be: end what was made ready for it and has not begun."""

    run: Run
    life: int
    digest: bytes


class SyncLogs(Request, frozen=True, gc=False):
    """Put on the disk all that sources with a log have sent."""

    run: Run
    life: int


class CommitEpoch(Request, frozen=True, gc=False):
    """The epoch is committed: sinks write COMMIT up to their end, logs are trimmed to their source's saved position."""

    run: Run
    life: int
    value: Value


class CloseRun(Effect, frozen=True, gc=False):
    """The run has ended: everything of it but committed rows may go."""

    run: Run
    state: str


class FragmentKey(msgspec.Struct, frozen=True, gc=False, array_like=True, order=True):
    """Which fragment of which element."""

    run: Run
    party: Party
    snapshot: Snapshot
    index: Count


class SendFragment(Request, frozen=True, gc=False):
    """Encode if that was not done yet, and store one fragment at a holder.

    `life`: in which this host wants that; the element's own, or a later one when its fragment is made again.
    """

    holder: NodeId
    key: FragmentKey
    element: Element
    life: int


class FetchStripe(Request, frozen=True, gc=False):
    """Bytes `offset … offset + length` of a fragment; the whole of it when `length` is 0, and then its hash is looked at."""

    holder: NodeId
    key: FragmentKey
    element: Element
    offset: int
    length: int


class DropFragments(Effect, frozen=True, gc=False):
    """Nobody needs these any more."""

    keys: tuple[FragmentKey, ...]
