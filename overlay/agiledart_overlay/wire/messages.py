"""Pastry messages between overlay machines. Tags 10 to 37 and 370 to 379 belong to this module; none is ever used again.

A claim about oneself ("I joined", "I leave", "I live") counts only for the verified sender of the message, so such messages carry
no id. Claims about others are hints: they are checked by contact before they change anything. A docstring gives the message in
the sender's words.
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_PATH, MAX_RECORD_BYTES
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.sightings import Path as Path
from agiledart_overlay.wire.sightings import Sighting as Sighting
from agiledart_overlay.wire.sightings import Sightings as Sightings
from agiledart_overlay.wire.sightings import Vitals as Vitals

MAX_OFFERS = 256
"""Records named in one offer."""

MAX_DIGEST = 8
"""Bytes of a value's digest."""

Digest = Annotated[bytes, msgspec.Meta(max_length=MAX_DIGEST)]
RecordValue = Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]


class JoinRequest(Message, frozen=True, gc=False, tag=10):
    """Routed towards `joiner`'s id on its behalf; `attempt` numbers the tries of one joiner.

    `path` lists the members met. From the closest member it walks along agreed neighbours to the owner of the key range, the
    member just before the joiner (`walking`). `refutations` distinguishes a rejoin from a late copy of an earlier one.
    """

    joiner: Peer
    attempt: Count
    path: Path = ()
    walking: bool = False
    refutations: Count = 0


class JoinRows(Message, frozen=True, gc=False, tag=11):
    """A member on the route sends the joiner its rows 0 … shared prefix; the first one also its neighbourhood set."""

    attempt: Count
    position: Count
    sightings: Sightings


class JoinRefused(Message, frozen=True, gc=False, tag=13):
    """Not now (`busy`: try again) or not at all (`incarnation`: this id lives, or lived, with this or a higher one).

    With attempt 0 it goes to a sender whose incarnation is over: `left` when that very one had departed.
    """

    attempt: Count
    reason: str
    incarnation: Count = 0


class LeafRequest(Message, frozen=True, gc=False, tag=14):
    """Send me your leaf set; here is mine. `joined`: the sender is a member, and gets only the leaves that it lacks."""

    number: Count
    refutations: Count
    joined: bool
    sightings: Sightings = ()


class LeafState(Message, frozen=True, gc=False, tag=15):
    """Answer to `LeafRequest`."""

    number: Count
    refutations: Count
    joined: bool
    sightings: Sightings


class Announce(Message, frozen=True, gc=False, tag=16):
    """I am a member now, or still; put me where I fit. To a leaf it carries the sender's leaf set. Answered by `Announced`."""

    number: Count
    refutations: Count
    sightings: Sightings
    vitals: Vitals | None = None


class Accused(Message, frozen=True, gc=False, tag=17):
    """I believe this incarnation of you dead since it had refuted so many times; refute, or join again."""

    refutations: Count
    incarnation: Count = 0


class PeerProbe(Message, frozen=True, gc=False, tag=18):
    """Are you there? From a member also: put me where I fit."""

    number: Count
    refutations: Count
    joined: bool
    vitals: Vitals | None = None


class ProbeAck(Message, frozen=True, gc=False, tag=19):
    """I am there. `ring_age_ms`: time since the sender was in a ring or got a member's message; -1: never.

    `smallest`, to a node that looks for a ring: the smallest node known to look for one, as of `smallest_age_ms` ago.
    """

    number: Count
    refutations: Count
    joined: bool
    vitals: Vitals | None = None
    ring_age_ms: Annotated[int, msgspec.Meta(ge=-1)] = -1
    smallest: Peer | None = None
    smallest_age_ms: Count = 0


class IndirectProbe(Message, frozen=True, gc=False, tag=20):
    """I cannot reach `target`; can you?"""

    number: Count
    target: Peer


class IndirectProbeAck(Message, frozen=True, gc=False, tag=21):
    """`target` answered me when you asked, as a member of the ring or not. Silence when it did not."""

    number: Count
    target: NodeId
    refutations: Count
    joined: bool = True


class Suspect(Message, frozen=True, gc=False, tag=22):
    """I suspect this incarnation of `target`; confirm it to me, or let `target` refute. Sent to `target` too."""

    target: Peer
    refutations: Count


class ConfirmSuspicion(Message, frozen=True, gc=False, tag=23):
    """I cannot reach the peer that you suspect either."""

    target: NodeId
    incarnation: Count
    refutations: Count


class Refute(Message, frozen=True, gc=False, tag=24):
    """I am alive; this many refutations so far."""

    refutations: Count


class DeclaredFailed(Message, frozen=True, gc=False, tag=25):
    """I declared this incarnation of `target` dead: a hint to check it yourself at once."""

    target: Peer
    refutations: Count


class Departing(Message, frozen=True, gc=False, tag=26):
    """I am leaving; forget this incarnation of mine."""


class RowRequest(Message, frozen=True, gc=False, tag=27):
    """Send me your entries of this row of the routing table; `column` -1: all of them."""

    row: Count
    column: int


class RowState(Message, frozen=True, gc=False, tag=28):
    """Answer to `RowRequest` (with its row and column) and to `NeighbourRequest` (row -1)."""

    sightings: Sightings
    row: int = -1
    column: int = -1


class RouteHop(Message, frozen=True, gc=False, tag=29):
    """One hop of a routed message. `number` is the sender's, for `RouteAck`; `path` lists all nodes visited, the source first."""

    number: Count
    key: NodeId
    payload: bytes
    path: Annotated[tuple[Peer, ...], msgspec.Meta(min_length=1, max_length=MAX_PATH)]


class RouteAck(Message, frozen=True, gc=False, tag=30):
    """I have taken the hop with this number over."""

    number: Count
    vitals: Vitals | None = None


class RecordWrite(Message, frozen=True, gc=False, tag=31):
    """Routed to a record's root: compare and set. `client` and `number` make a repeated request harmless."""

    client: Peer
    number: Count
    hops: Count
    key: NodeId
    expected_version: Count
    value: RecordValue


class RecordRead(Message, frozen=True, gc=False, tag=32):
    """Routed to a record's root: read. `known`: digest of the value that the client has; empty: none."""

    client: Peer
    number: Count
    hops: Count
    key: NodeId
    known: Digest = b""


class RecordReply(Message, frozen=True, gc=False, tag=33):
    """The root's answer, sent directly to the client; fields as in `RecordAnswer`. `is_known`: the value is the one it has."""

    number: Count
    ok: bool
    version: Count
    value: RecordValue
    reason: str
    is_known: bool = False


class RecordCopy(Message, frozen=True, gc=False, tag=34):
    """Whole record, for a replica or a new root.

    Args:
        writer: (id, incarnation, number) of the request that wrote it.
        follows: digest of the value that it replaced; empty when that is not known.
    """

    key: NodeId
    version: Count
    value: RecordValue
    writer: tuple[NodeId, Count, Count]
    follows: Annotated[bytes, msgspec.Meta(max_length=8)] = b""


class RecordHeld(Message, frozen=True, gc=False, tag=35):
    """I hold this record in this version (0: not at all) with this digest of its value."""

    key: NodeId
    version: Count
    digest: bytes


class RecordFetch(Message, frozen=True, gc=False, tag=36):
    """Send me your copy of this record if it is newer than mine (version 0: I have none), else report which one you have."""

    key: NodeId
    version: Count = 0
    digest: bytes = b""


class Offer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One line of a `RecordOffer`."""

    key: NodeId
    version: Count
    digest: bytes


class RecordOffer(Message, frozen=True, gc=False, tag=37):
    """I hold these; request those that you lack with `RecordFetch`, confirm the rest with `RecordHeld`."""

    offers: Annotated[tuple[Offer, ...], msgspec.Meta(max_length=MAX_OFFERS)]


class Announced(Message, frozen=True, gc=False, tag=370):
    """Answer to `Announce`; `sightings` are those leaves of the sender that the announcer did not list and should have."""

    number: Count
    refutations: Count
    sightings: Sightings = ()
    vitals: Vitals | None = None


class LeafDigest(Message, frozen=True, gc=False, tag=371):
    """Digest of the members that, as far as the sender knows, stand in its leaf set and in the receiver's.

    Equal to the receiver's own: no answer. Else the receiver sends a `LeafRequest` with its leaf set.
    """

    number: Count
    refutations: Count
    digest: Annotated[bytes, msgspec.Meta(max_length=16)]


class NeighbourRequest(Message, frozen=True, gc=False, tag=372):
    """Send me your neighbourhood set, the nearest first; answered by `RowState`."""


PastryMessage = (
    JoinRequest
    | JoinRows
    | JoinRefused
    | LeafRequest
    | LeafState
    | Announce
    | Accused
    | PeerProbe
    | ProbeAck
    | IndirectProbe
    | IndirectProbeAck
    | Suspect
    | ConfirmSuspicion
    | Refute
    | DeclaredFailed
    | Departing
    | RowRequest
    | RowState
    | RouteHop
    | RouteAck
    | RecordWrite
    | RecordRead
    | RecordReply
    | RecordCopy
    | RecordHeld
    | RecordFetch
    | RecordOffer
    | Announced
    | LeafDigest
    | NeighbourRequest
)
"""All messages of this module; `protocol` joins them with those of the ring and of the trees."""
