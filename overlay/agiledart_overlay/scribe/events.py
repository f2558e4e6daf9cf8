"""Requests of the node above about topic trees, and the effects that answer them."""

from agiledart_kernel.machine import Effect, Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class JoinTopic(Event, frozen=True, gc=False):
    """Subscribe to a topic: receive its publications from now on."""

    topic: NodeId


class LeaveTopic(Event, frozen=True, gc=False):
    """Unsubscribe from a topic."""

    topic: NodeId


class PublishTo(Event, frozen=True, gc=False):
    """Publish a payload to all subscribers, this node included if it is one."""

    topic: NodeId
    payload: bytes


class SearchTopic(Event, frozen=True, gc=False):
    """Find one subscriber that accepts the payload, near this node first; answered by one `SearchEnded`."""

    request: int
    topic: NodeId
    payload: bytes


class AnswerOffer(Event, frozen=True, gc=False):
    """Answer an `Offered`."""

    offer: int
    accepted: bool


class AskTopic(Event, frozen=True, gc=False):
    """Read the owner's state at a topic's root, or write it there; answered by one `TopicAnswer`."""

    request: int
    topic: NodeId
    state: bytes | None = None


class TopicMessage(Effect, frozen=True, gc=False):
    """Publication under a topic that this node joined."""

    topic: NodeId
    payload: bytes
    origin: Peer


class Offered(Effect, frozen=True, gc=False):
    """Search that has come to this subscriber; answer with `AnswerOffer`."""

    offer: int
    topic: NodeId
    payload: bytes
    origin: Peer


class SearchEnded(Effect, frozen=True, gc=False):
    """End of a `SearchTopic`: the accepting peer, or None; `hops` nodes were passed."""

    request: int
    peer: Peer | None
    hops: int


class TopicAnswer(Effect, frozen=True, gc=False):
    """End of an `AskTopic`; not ok: there is no state, another node owns the topic, or the ring did not answer."""

    request: int
    ok: bool
    owner: Peer | None
    state: bytes
