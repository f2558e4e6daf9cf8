"""Messages between nodes about the trees of topics. Tags 320 to 349."""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId, key_of_name
from agiledart_kernel.peer import Peer

MAX_PAYLOAD_BYTES = 64 << 10
"""Bytes that one publication or anycast may carry: news, not data."""

MAX_ROOT_BYTES = 16 << 10
"""Bytes that the owner of a topic may store at its root."""

MAX_TOPICS = 1_024
"""Topics of which one node is a part; also the lines of one heartbeat."""

MAX_SEARCHED = 256
"""Nodes that one anycast visits."""

MAX_SIBLINGS = 64

Payload = Annotated[bytes, msgspec.Meta(max_length=MAX_PAYLOAD_BYTES)]
State = Annotated[bytes, msgspec.Meta(max_length=MAX_ROOT_BYTES)]
RootPath = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_PATH)]
Visited = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_SEARCHED)]


def topic_id(name: str, creator: str) -> NodeId:
    """Return the key of a topic's root: hash(topic name, creator name)."""
    return key_of_name("topic", f"{name}\0{creator}")


class Subscribe(Message, frozen=True, gc=False, tag=320):
    """Take me as a child for this topic. A receiver outside the tree joins it by subscribing itself."""

    topic: NodeId
    number: Count


class Subscribed(Message, frozen=True, gc=False, tag=321):
    """You are my child; `root_path` leads from the root to me, and is short while I am not attached myself."""

    topic: NodeId
    number: Count
    root_path: RootPath


class SubscribeRefused(Message, frozen=True, gc=False, tag=322):
    """I cannot be your parent: you are above me, or I have no space for more topics."""

    topic: NodeId
    number: Count


class Unsubscribe(Message, frozen=True, gc=False, tag=323):
    """I am no longer your child for this topic (the paper's LEAVE)."""

    topic: NodeId


class HeartbeatEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One topic of a heartbeat: the path from its root to the sender."""

    topic: NodeId
    root_path: RootPath


class Heartbeat(Message, frozen=True, gc=False, tag=324):
    """Parent → child: I am alive, for these topics. Answered by `HeartbeatAck`, which keeps the child in the parent's table."""

    lines: Annotated[tuple[HeartbeatEntry, ...], msgspec.Meta(max_length=MAX_TOPICS)]


class HeartbeatAck(Message, frozen=True, gc=False, tag=325):
    """Child → parent: of your topics you are my parent for these."""

    topics: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=MAX_TOPICS)]


class Publish(Message, frozen=True, gc=False, tag=326):
    """Publication on its route to the root, which sends it down the tree; (origin, number) identifies duplicates."""

    topic: NodeId
    origin: Peer
    number: Count
    hops: Count
    payload: Payload


class Published(Message, frozen=True, gc=False, tag=327):
    """Root → origin: I have sent it down the tree. The origin sends the next one directly here."""

    topic: NodeId
    number: Count


class Multicast(Message, frozen=True, gc=False, tag=328):
    """Parent → child: a publication."""

    topic: NodeId
    origin: Peer
    number: Count
    payload: Payload


class Sibling(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Child of the sender, and its round trip to the sender in microseconds (0: unknown)."""

    peer: Peer
    rtt_us: Count


class ChildDropped(Message, frozen=True, gc=False, tag=329):
    """I have too many children: subscribe to that sibling through which I am nearest."""

    topic: NodeId
    siblings: Annotated[tuple[Sibling, ...], msgspec.Meta(max_length=MAX_SIBLINGS)]


class SiblingProbe(Message, frozen=True, gc=False, tag=330):
    """Request of a `SiblingAck`, which measures the distance."""

    number: Count


class SiblingAck(Message, frozen=True, gc=False, tag=331):
    """Answer to `SiblingProbe`."""

    number: Count


class Anycast(Message, frozen=True, gc=False, tag=332):
    """Depth-first search for one member that accepts; `stack` leads back to its entry into the tree."""

    topic: NodeId
    origin: Peer
    number: Count
    payload: Payload
    visited: Visited = ()
    stack: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=MAX_PATH)] = ()
    hops: Count = 0


class AnycastEnd(Message, frozen=True, gc=False, tag=333):
    """Sender → origin: I accepted, or no member did."""

    number: Count
    accepted: bool
    hops: Count


class RootCopy(Message, frozen=True, gc=False, tag=334):
    """Root → leaf, or old root → new root: the root's knowledge of its topic."""

    topic: NodeId
    version: Count
    owner: Peer | None
    state: State


class RootStateHeld(Message, frozen=True, gc=False, tag=335):
    """I hold this version, or a later one."""

    topic: NodeId
    version: Count


class TopicRequest(Message, frozen=True, gc=False, tag=336):
    """Routed to the root: read the owner's state there, or (`state` given) write it, as the first writer or the owner."""

    topic: NodeId
    client: Peer
    number: Count
    hops: Count
    state: State | None = None


class TopicReply(Message, frozen=True, gc=False, tag=337):
    """The root's answer; not ok: there is no state, or another node owns the topic."""

    number: Count
    ok: bool
    owner: Peer | None
    state: State


ScribeMessage = (
    Subscribe
    | Subscribed
    | SubscribeRefused
    | Unsubscribe
    | Heartbeat
    | HeartbeatAck
    | Publish
    | Published
    | Multicast
    | ChildDropped
    | SiblingProbe
    | SiblingAck
    | Anycast
    | AnycastEnd
    | RootCopy
    | RootStateHeld
    | TopicRequest
    | TopicReply
)
