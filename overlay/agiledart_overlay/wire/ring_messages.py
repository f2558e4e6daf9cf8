"""Messages between agreed ring neighbours, joiners and range owners. Tags 38 to 49 and 300 to 319; none is ever used again.

`at` is always the sender's own clock, echoed by the receiver and read only by its original sender. A docstring gives the message
in the sender's words.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.sightings import Path, Permille, Sightings

Ticket = tuple[NodeId, Count, Count]
"""One admission or replacement: range owner, its incarnation, its count. Tickets of one range owner are ordered."""

RingName = tuple[Count, NodeId]
"""Name of a ring: times that the same name was found on two rings, and the node that chose the name. The larger one outranks."""

MAX_QUEUED_JOINS = 64
"""Waiting joiners that one range owner hands to another."""

MAX_LOST = 16
"""Lost peers that a range owner reports to a new member."""


class QueuedJoin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Joiner that waits at a range owner.

    Args:
        joiner: the node.
        attempt: number of its try.
        refutations: orders its memberships of one incarnation; grows with each rejoin.
    """

    joiner: Peer
    attempt: Count = 0
    refutations: Count = 0


class JoinQueued(Message, frozen=True, gc=False, tag=38):
    """Range owner to joiner: you are queued; you need not ask again for a while."""

    attempt: Count


class InviteJoiner(Message, frozen=True, gc=False, tag=39):
    """Range owner to joiner: your turn; are you there? `sightings` is the range owner's leaf set."""

    ticket: Ticket
    refutations: Count
    sightings: Sightings


class JoinerReady(Message, frozen=True, gc=False, tag=40):
    """Joiner to range owner: I am, and I take no other invitation for the length of the admission."""

    ticket: Ticket


class JoinerBusy(Message, frozen=True, gc=False, tag=41):
    """Joiner to range owner: another invitation came first, or I am in already."""

    ticket: Ticket


class TransferRange(Message, frozen=True, gc=False, tag=42):
    """Range owner to its successor: I deliver this joiner's keys no more; stop too, and offer them to it."""

    ticket: Ticket
    joiner: Peer


class OfferRange(Message, frozen=True, gc=False, tag=43):
    """The successor to the joiner: no node delivers your keys now; take them. `sightings` is the successor's leaf set."""

    ticket: Ticket
    refutations: Count
    sightings: Sightings


class RangeTaken(Message, frozen=True, gc=False, tag=44):
    """Joiner to range owner: I deliver, provisionally."""

    ticket: Ticket
    at: Count
    refutations: Count


class AdmissionConfirmed(Message, frozen=True, gc=False, tag=45):
    """Range owner to joiner: you are in; here are the joiners beyond you, and the ring's name. `at` echoes `RangeTaken`.

    `lost`: peers that the range owner lost lately. They may be another half of the ring, and this joiner may one day be the last
    to know of it.
    """

    ticket: Ticket
    at: Count
    name: RingName
    queued_joins: Annotated[tuple[QueuedJoin, ...], msgspec.Meta(max_length=MAX_QUEUED_JOINS)] = ()
    lost: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_LOST)] = ()


class AdmissionExpired(Message, frozen=True, gc=False, tag=46):
    """Range owner to joiner: that admission is over; stop, and join again."""

    ticket: Ticket


class RevokeTransfer(Message, frozen=True, gc=False, tag=47):
    """The admission is over without the joiner: take your keys back. Answered by `TransferRevoked`."""

    ticket: Ticket


class TransferRevoked(Message, frozen=True, gc=False, tag=48):
    """The successor to its range owner: I have them back."""

    ticket: Ticket


class QueryTransfer(Message, frozen=True, gc=False, tag=49):
    """The successor, after its wait, to range owner and joiner: what is the outcome? "In": `RenewLease`; "no": `RevokeTransfer`."""

    ticket: Ticket
    joiner: Peer


class RenewLease(Message, frozen=True, gc=False, tag=300):
    """Let me deliver for another lease. Also the sign of life between ring neighbours.

    `to_predecessor`: the sender takes the receiver for its predecessor; else for its successor.
    """

    to_predecessor: bool
    at: Count
    refutations: Count
    name: RingName


class LeaseGranted(Message, frozen=True, gc=False, tag=301):
    """I grant the lease requested at `at`.

    `load_permille`: of the granter; ring neighbours do not probe each other, so the lease carries it.
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
    """I am not in the ring and deliver no keys. Echoes a `RenewLease`."""

    at: Count


class ProposeNeighbour(Message, frozen=True, gc=False, tag=304):
    """Range owner whose successor is dead: are you the next one?"""

    ticket: Ticket
    at: Count
    refutations: Count
    name: RingName


class NeighbourAccepted(Message, frozen=True, gc=False, tag=305):
    """I am: you are my predecessor now. `close_at` echoes, `at` is the sender's own lease request."""

    ticket: Ticket
    close_at: Count
    at: Count
    refutations: Count


class NeighbourElsewhere(Message, frozen=True, gc=False, tag=306):
    """A node is between us, dead or not: ask there."""

    ticket: Ticket
    nearer: Peer


class NeighbourNotReady(Message, frozen=True, gc=False, tag=307):
    """I am alive but cannot answer yet: silence would count as death."""

    ticket: Ticket


class NeighbourRefused(Message, frozen=True, gc=False, tag=308):
    """The ring has closed over you, or I am in no ring (`outside`)."""

    ticket: Ticket
    outside: bool


class SeekPredecessor(Message, frozen=True, gc=False, tag=309):
    """My predecessor is dead, and as far as I know you are the node that should take me as its successor."""

    refutations: Count


class QueryMembership(Message, frozen=True, gc=False, tag=310):
    """Both my leases are over: has the ring closed over me?"""

    at: Count


class MembershipReply(Message, frozen=True, gc=False, tag=311):
    """Answer to `QueryMembership`: it has not (`ok`), or this node cannot tell."""

    at: Count
    ok: bool


class RingProbe(Message, frozen=True, gc=False, tag=312):
    """You are a member where my ring has none. Which ring are you in?"""

    refutations: Count
    name: RingName
    size: Count


class RingState(Message, frozen=True, gc=False, tag=313):
    """Answer: in this one, of about this many nodes; `size` 0: in none at the moment."""

    refutations: Count
    name: RingName
    size: Count


class JoinBounced(Message, frozen=True, gc=False, tag=314):
    """I am not in the ring: here is the join that you sent to me (fields of `JoinRequest`)."""

    queued_join: QueuedJoin
    path: Path
    walking: bool


class RequestRingCreation(Message, frozen=True, gc=False, tag=315):
    """I want to create a ring, since no node known to me is in one: may I?"""

    number: Count


class RingCreationReply(Message, frozen=True, gc=False, tag=316):
    """Answer: yes, and for a while no other node may (`ok`); or no. `ring_age_ms` as in `ProbeAck`."""

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
"""All messages of this module, for codecs."""
