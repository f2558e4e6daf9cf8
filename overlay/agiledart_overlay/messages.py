"""What overlay machines say to each other. Tags 10 to 49 belong to this module; none is ever used again for another message.

A claim about oneself ("I joined", "I leave", "I live") counts only for the verified sender of the message, so such messages
carry no id. Claims about others are hints: they are checked by contact before they change anything.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.limits import MAX_PATH, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

MAX_SIGHTINGS = 256
"""Peers listed in one message: a leaf set, a neighbourhood set and some rows."""

MAX_OFFERS = 256
"""Records named in one offer."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Path = Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_PATH)]
RecordValue = Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]


class Sighting(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A peer that the teller believes alive.

    Args:
        peer: who.
        refutations: how many times the peer has refuted its death in this life; a later one outranks a declared failure.
    """

    peer: Peer
    refutations: Count = 0


Sightings = Annotated[tuple[Sighting, ...], msgspec.Meta(max_length=MAX_SIGHTINGS)]


class JoinRequest(Message, frozen=True, gc=False, tag=10):
    """Routed towards `joiner`'s id on its behalf; `attempt` numbers the tries of one joiner.

    `path` lists the members met. Having reached the closest member it walks along the ring to the guardian of the gap, the
    member just before the joiner (`walking`).
    """

    joiner: Peer
    attempt: Count
    path: Path = ()
    walking: bool = False


class JoinRows(Message, frozen=True, gc=False, tag=11):
    """A member met on the way tells the joiner its rows 0 … shared prefix; the first one also its neighbourhood set."""

    attempt: Count
    position: Count
    sightings: Sightings


class Welcome(Message, frozen=True, gc=False, tag=12):
    """The guardian admits the joiner, and nobody else beside it for a while; `sightings` is the guardian's leaf set."""

    attempt: Count
    path: Path
    refutations: Count
    sightings: Sightings


class JoinRefused(Message, frozen=True, gc=False, tag=13):
    """Not now (`busy`: try again) or not at all (`incarnation`: this id lives, or lived, with this or a higher one)."""

    attempt: Count
    reason: str
    incarnation: Count = 0


class LeafRequest(Message, frozen=True, gc=False, tag=14):
    """Tell me your leaf set; here is mine. `joined` says whether the sender is a member."""

    number: Count
    refutations: Count
    joined: bool
    sightings: Sightings = ()


class LeafState(Message, frozen=True, gc=False, tag=15):
    """The answer to `LeafRequest` and `Announce`."""

    number: Count
    refutations: Count
    joined: bool
    sightings: Sightings


class Announce(Message, frozen=True, gc=False, tag=16):
    """I am a member now, or still; put me where I fit. To a leaf it carries the sender's leaf set."""

    number: Count
    refutations: Count
    sightings: Sightings


class Accused(Message, frozen=True, gc=False, tag=17):
    """I hold you for dead since you had refuted so many times; refute, or join again."""

    refutations: Count


class Probe(Message, frozen=True, gc=False, tag=18):
    """Are you there?"""

    number: Count
    refutations: Count
    joined: bool


class ProbeAck(Message, frozen=True, gc=False, tag=19):
    """I am."""

    number: Count
    refutations: Count
    joined: bool


class ProbeForMe(Message, frozen=True, gc=False, tag=20):
    """I cannot reach `target`; can you?"""

    number: Count
    target: Peer


class ProbedForYou(Message, frozen=True, gc=False, tag=21):
    """`target` answered me when you asked. Silence when it did not."""

    number: Count
    target: NodeId
    refutations: Count


class Suspect(Message, frozen=True, gc=False, tag=22):
    """I suspect this life of `target`; confirm it to me, or let `target` refute. Sent to `target` too."""

    target: Peer
    refutations: Count


class Confirm(Message, frozen=True, gc=False, tag=23):
    """I cannot reach the one you suspect either."""

    target: NodeId
    incarnation: Count
    refutations: Count


class Refute(Message, frozen=True, gc=False, tag=24):
    """I live; this many refutations so far."""

    refutations: Count


class DeclaredFailed(Message, frozen=True, gc=False, tag=25):
    """I declared this life of `target` dead: a hint to look for yourself at once."""

    target: Peer
    refutations: Count


class Leave(Message, frozen=True, gc=False, tag=26):
    """I am going; forget this life of mine."""


class RowRequest(Message, frozen=True, gc=False, tag=27):
    """Tell me your entries of this row of the routing table; `column` -1: all of them."""

    row: Count
    column: int


class RowState(Message, frozen=True, gc=False, tag=28):
    """The answer to `RowRequest`."""

    sightings: Sightings


class Route(Message, frozen=True, gc=False, tag=29):
    """A routed message, one hop. `number` is the sender's, for `RouteAck`; `path` all nodes visited, the source first."""

    number: Count
    key: NodeId
    payload: bytes
    path: Annotated[tuple[Peer, ...], msgspec.Meta(min_length=1, max_length=MAX_PATH)]


class RouteAck(Message, frozen=True, gc=False, tag=30):
    """The hop with this number has been taken over."""

    number: Count


class RecordStore(Message, frozen=True, gc=False, tag=31):
    """Routed to a record's root: compare and set. `client` and `number` make a repeated request harmless."""

    client: Peer
    number: Count
    hops: Count
    key: NodeId
    expected_version: Count
    value: RecordValue


class RecordRead(Message, frozen=True, gc=False, tag=32):
    """Routed to a record's root: read."""

    client: Peer
    number: Count
    hops: Count
    key: NodeId


class RecordReply(Message, frozen=True, gc=False, tag=33):
    """The root's answer, sent straight to the client; fields as in `RecordAnswer`."""

    number: Count
    ok: bool
    version: Count
    value: RecordValue
    reason: str


class RecordCopy(Message, frozen=True, gc=False, tag=34):
    """A whole record, for a replica or a new root. `writer` (id, incarnation, number) is the request that wrote it."""

    key: NodeId
    version: Count
    value: RecordValue
    writer: tuple[NodeId, Count, Count]


class RecordKept(Message, frozen=True, gc=False, tag=35):
    """I hold this record in this version (0: not at all) with this digest of its value."""

    key: NodeId
    version: Count
    digest: bytes


class RecordFetch(Message, frozen=True, gc=False, tag=36):
    """Send me your copy of this record if it is newer than mine (version 0: I have none), else say what you have."""

    key: NodeId
    version: Count = 0
    digest: bytes = b""


class Offer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One line of a `RecordOffer`."""

    key: NodeId
    version: Count
    digest: bytes


class RecordOffer(Message, frozen=True, gc=False, tag=37):
    """I hold these; ask for what you lack with `RecordFetch`, confirm the rest with `RecordKept`."""

    offers: Annotated[tuple[Offer, ...], msgspec.Meta(max_length=MAX_OFFERS)]


OverlayMessage = (
    JoinRequest
    | JoinRows
    | Welcome
    | JoinRefused
    | LeafRequest
    | LeafState
    | Announce
    | Accused
    | Probe
    | ProbeAck
    | ProbeForMe
    | ProbedForYou
    | Suspect
    | Confirm
    | Refute
    | DeclaredFailed
    | Leave
    | RowRequest
    | RowState
    | Route
    | RouteAck
    | RecordStore
    | RecordRead
    | RecordReply
    | RecordCopy
    | RecordKept
    | RecordFetch
    | RecordOffer
)
"""All of them, for `Codec(OverlayMessage)`."""
