"""What overlay machines say to each other. Tags 10 to 37 and 370 to 379 belong to this module; none is ever used again.

A claim about oneself ("I joined", "I leave", "I live") counts only for the verified sender of the message, so such messages
carry no id. Claims about others are hints: they are checked by contact before they change anything.
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

RecordValue = Annotated[bytes, msgspec.Meta(max_length=MAX_RECORD_BYTES)]


class JoinRequest(Message, frozen=True, gc=False, tag=10):
    """Routed towards `joiner`'s id on its behalf; `attempt` numbers the tries of one joiner.

    `path` lists the members met. Having reached the closest member it walks along agreed neighbours to the guardian of the gap,
    the member just before the joiner (`walking`). `refutations` tells a rejoin from a late copy of an earlier one.
    """

    joiner: Peer
    attempt: Count
    path: Path = ()
    walking: bool = False
    refutations: Count = 0


class JoinRows(Message, frozen=True, gc=False, tag=11):
    """A member met on the way tells the joiner its rows 0 … shared prefix; the first one also its neighbourhood set."""

    attempt: Count
    position: Count
    sightings: Sightings


class JoinRefused(Message, frozen=True, gc=False, tag=13):
    """Not now (`busy`: try again) or not at all (`incarnation`: this id lives, or lived, with this or a higher one).

    With attempt 0 it goes to whoever speaks with an incarnation that is over: `left` when it said good-bye with this very one.
    """

    attempt: Count
    reason: str
    incarnation: Count = 0


class LeafRequest(Message, frozen=True, gc=False, tag=14):
    """Tell me your leaf set; here is mine. `joined` says whether the sender is a member: it is told only what it lacks."""

    number: Count
    refutations: Count
    joined: bool
    sightings: Sightings = ()


class LeafState(Message, frozen=True, gc=False, tag=15):
    """The answer to `LeafRequest`."""

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
    """I hold this incarnation of you for dead since it had refuted so many times; refute, or join again."""

    refutations: Count
    incarnation: Count = 0


class PeerProbe(Message, frozen=True, gc=False, tag=18):
    """Are you there? From a member it is also: put me where I fit."""

    number: Count
    refutations: Count
    joined: bool
    vitals: Vitals | None = None


class ProbeAck(Message, frozen=True, gc=False, tag=19):
    """I am. `ring_age_ms`: so long ago the sender was in a ring or heard from a member; -1: never.

    `smallest`, to one that looks for a ring: the smallest node known to look for one, heard `smallest_age_ms` ago.
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
    """I suspect this life of `target`; confirm it to me, or let `target` refute. Sent to `target` too."""

    target: Peer
    refutations: Count


class ConfirmSuspicion(Message, frozen=True, gc=False, tag=23):
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


class Departing(Message, frozen=True, gc=False, tag=26):
    """I am going; forget this life of mine."""


class RowRequest(Message, frozen=True, gc=False, tag=27):
    """Tell me your entries of this row of the routing table; `column` -1: all of them."""

    row: Count
    column: int


class RowState(Message, frozen=True, gc=False, tag=28):
    """The answer to `RowRequest` (which row and column it asked for) and to `NeighbourRequest` (row -1)."""

    sightings: Sightings
    row: int = -1
    column: int = -1


class RouteHop(Message, frozen=True, gc=False, tag=29):
    """A routed message, one hop. `number` is the sender's, for `RouteAck`; `path` all nodes visited, the source first."""

    number: Count
    key: NodeId
    payload: bytes
    path: Annotated[tuple[Peer, ...], msgspec.Meta(min_length=1, max_length=MAX_PATH)]


class RouteAck(Message, frozen=True, gc=False, tag=30):
    """The hop with this number has been taken over."""

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
    """A whole record, for a replica or a new root.

    Args:
        writer: (id, incarnation, number) of the request that wrote it.
        follows: digest of the value that it took the place of; empty when that is not known.
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
    """I hold these; ask for what you lack with `RecordFetch`, confirm the rest with `RecordHeld`."""

    offers: Annotated[tuple[Offer, ...], msgspec.Meta(max_length=MAX_OFFERS)]


class Announced(Message, frozen=True, gc=False, tag=370):
    """The answer to `Announce`; `sightings` are those leaves of the teller that the announcer did not list and should have."""

    number: Count
    refutations: Count
    sightings: Sightings = ()
    vitals: Vitals | None = None


class LeafDigest(Message, frozen=True, gc=False, tag=371):
    """A digest of the members that, as far as the sender knows, stand in its leaf set and in the receiver's.

    Equal to the receiver's own: no answer. Else the receiver sends a `LeafRequest` with its leaf set.
    """

    number: Count
    refutations: Count
    digest: Annotated[bytes, msgspec.Meta(max_length=16)]


class NeighbourRequest(Message, frozen=True, gc=False, tag=372):
    """Tell me your neighbourhood set, the nearest first; answered by `RowState`."""


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
"""All of this module; `protocol` joins them with those of the ring and of the trees."""
