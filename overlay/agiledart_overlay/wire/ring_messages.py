"""What agreed ring neighbours, joiners and guardians say to each other. Tags 38 to 49 and 300 to 319; none is ever used again.

`at` is always the sender's own clock, echoed by the receiver and read by nobody but the one who sent it.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.sightings import Path, Permille, Sightings

Ticket = tuple[NodeId, Count, Count]
"""One admission or closing: guardian, its incarnation, its count. Tickets of one guardian are ordered."""

RingName = tuple[Count, NodeId]
"""Name of a ring: how often its like was found to exist twice, and the node that chose the name. The larger one outranks."""

MAX_QUEUED_JOINS = 64
"""Waiting joiners that one guardian hands to another."""

MAX_LOST = 16
"""Lost peers that a guardian tells a new member of."""


class QueuedJoin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A joiner that waits at a guardian.

    Args:
        joiner: who.
        attempt: which of its tries.
        refutations: orders its lives of one incarnation; grows with each rejoin.
    """

    joiner: Peer
    attempt: Count = 0
    refutations: Count = 0


class JoinQueued(Message, frozen=True, gc=False, tag=38):
    """The guardian has put the joiner on its list: no need to ask again for a while."""

    attempt: Count


class InviteJoiner(Message, frozen=True, gc=False, tag=39):
    """Guardian to joiner: your turn; are you there? `sightings` is the guardian's leaf set."""

    ticket: Ticket
    refutations: Count
    sightings: Sightings


class JoinerReady(Message, frozen=True, gc=False, tag=40):
    """Joiner to guardian: I am, and I take no other call for the length of the admission."""

    ticket: Ticket


class JoinerBusy(Message, frozen=True, gc=False, tag=41):
    """Joiner to guardian: another call came first, or I am in already."""

    ticket: Ticket


class TransferRange(Message, frozen=True, gc=False, tag=42):
    """Guardian to its successor: I deliver this joiner's keys no more; stop too, and offer them to it."""

    ticket: Ticket
    joiner: Peer


class OfferRange(Message, frozen=True, gc=False, tag=43):
    """The successor to the joiner: nobody delivers your keys now; take them. `sightings` is the successor's leaf set."""

    ticket: Ticket
    refutations: Count
    sightings: Sightings


class RangeTaken(Message, frozen=True, gc=False, tag=44):
    """Joiner to guardian: I deliver, provisionally."""

    ticket: Ticket
    at: Count
    refutations: Count


class AdmissionConfirmed(Message, frozen=True, gc=False, tag=45):
    """Guardian to joiner: you are in; here are those that wait beyond you, and the name of the ring. `at` echoes `RangeTaken`.

    `lost`: whom the guardian lost lately. They may be another half of the ring, and this joiner one day the last to know of it.
    """

    ticket: Ticket
    at: Count
    name: RingName
    queued_joins: Annotated[tuple[QueuedJoin, ...], msgspec.Meta(max_length=MAX_QUEUED_JOINS)] = ()
    lost: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_LOST)] = ()


class AdmissionExpired(Message, frozen=True, gc=False, tag=46):
    """Guardian to joiner: that admission is over; stop, and join again."""

    ticket: Ticket


class RevokeTransfer(Message, frozen=True, gc=False, tag=47):
    """That admission is over without the joiner: take your keys back. Answered by `TransferRevoked`."""

    ticket: Ticket


class TransferRevoked(Message, frozen=True, gc=False, tag=48):
    """The successor to its guardian: I have them back."""

    ticket: Ticket


class QueryTransfer(Message, frozen=True, gc=False, tag=49):
    """The successor, whose wait is over, to guardian and joiner: what came of it? "In" is a `RenewLease`, "no" an `RevokeTransfer`."""

    ticket: Ticket
    joiner: Peer


class RenewLease(Message, frozen=True, gc=False, tag=300):
    """Let me deliver for another lease. Also the sign of life between ring neighbours.

    `to_predecessor`: the sender says that the receiver is its predecessor; else that it is its successor.
    """

    to_predecessor: bool
    at: Count
    refutations: Count
    name: RingName


class LeaseGranted(Message, frozen=True, gc=False, tag=301):
    """The lease asked for at `at` is granted.

    `load_permille`: of the one who grants; ring neighbours do not probe each other, so that it would not be heard otherwise.
    """

    to_predecessor: bool
    at: Count
    name: RingName
    load_permille: Permille = 0


class NotNeighbour(Message, frozen=True, gc=False, tag=302):
    """I am in the ring, and you are not my neighbour on that side. Echoes a `RenewLease`."""

    to_predecessor: bool
    at: Count


class NotInRing(Message, frozen=True, gc=False, tag=303):
    """I am not in the ring and deliver nothing. Echoes a `RenewLease`."""

    at: Count


class ProposeNeighbour(Message, frozen=True, gc=False, tag=304):
    """A guardian whose successor is dead: are you the next one?"""

    ticket: Ticket
    at: Count
    refutations: Count
    name: RingName


class NeighbourAccepted(Message, frozen=True, gc=False, tag=305):
    """I am: you are my predecessor now. `close_at` echoes, `at` is the sender's request for a lease of its own."""

    ticket: Ticket
    close_at: Count
    at: Count
    refutations: Count


class NeighbourElsewhere(Message, frozen=True, gc=False, tag=306):
    """Somebody is between us, dead or not: ask there."""

    ticket: Ticket
    nearer: Peer


class NeighbourNotReady(Message, frozen=True, gc=False, tag=307):
    """I live but cannot answer yet: silence would count as death."""

    ticket: Ticket


class NeighbourRefused(Message, frozen=True, gc=False, tag=308):
    """The ring has closed over you, or I am in no ring (`outside`)."""

    ticket: Ticket
    outside: bool


class SeekPredecessor(Message, frozen=True, gc=False, tag=309):
    """My predecessor is dead, and as far as I know you are the one that should close the gap to me."""

    refutations: Count


class QueryMembership(Message, frozen=True, gc=False, tag=310):
    """Both my leases are over: has the ring closed over me?"""

    at: Count


class MembershipReply(Message, frozen=True, gc=False, tag=311):
    """The answer to `QueryMembership`; it has not (`ok`), or this node cannot tell."""

    at: Count
    ok: bool


class RingProbe(Message, frozen=True, gc=False, tag=312):
    """You live where my ring has nobody. Which ring are you in?"""

    refutations: Count
    name: RingName
    size: Count


class RingState(Message, frozen=True, gc=False, tag=313):
    """The answer: in this one, of about this many nodes; `size` 0: in none at the moment."""

    refutations: Count
    name: RingName
    size: Count


class JoinBounced(Message, frozen=True, gc=False, tag=314):
    """I am not in the ring: here is the join that you sent this way (fields of `JoinRequest`)."""

    queued_join: QueuedJoin
    path: Path
    walking: bool


class RequestRingCreation(Message, frozen=True, gc=False, tag=315):
    """I am about to found a ring, since nobody that I heard of is in one: may I?"""

    number: Count


class RingCreationReply(Message, frozen=True, gc=False, tag=316):
    """The answer: yes, and for a while nobody else may (`ok`); or no. `ring_age_ms` as in `ProbeAck`."""

    number: Count
    ok: bool
    ring_age_ms: Annotated[int, msgspec.Meta(ge=-1)] = -1


RingMessage = (
    JoinQueued
    | InviteJoiner
    | JoinerReady
    | JoinerBusy
    | TransferRange
    | OfferRange
    | RangeTaken
    | AdmissionConfirmed
    | AdmissionExpired
    | RevokeTransfer
    | TransferRevoked
    | QueryTransfer
    | RenewLease
    | LeaseGranted
    | NotNeighbour
    | NotInRing
    | ProposeNeighbour
    | NeighbourAccepted
    | NeighbourElsewhere
    | NeighbourNotReady
    | NeighbourRefused
    | SeekPredecessor
    | QueryMembership
    | MembershipReply
    | RingProbe
    | RingState
    | JoinBounced
    | RequestRingCreation
    | RingCreationReply
)
"""All of them, for codecs."""
