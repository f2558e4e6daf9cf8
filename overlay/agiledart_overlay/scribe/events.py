"""What the node above wants of trees, and what it is told."""

from agiledart_kernel.machine import Effect, Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class JoinTopic(Event, frozen=True, gc=False):
    """Receive what is published under this topic from now on."""

    topic: NodeId


class LeaveTopic(Event, frozen=True, gc=False):
    """Receive it no longer."""

    topic: NodeId


class PublishTo(Event, frozen=True, gc=False):
    """Bring a payload to all subscribers, this node included if it is one."""

    topic: NodeId
    payload: bytes


class SearchTopic(Event, frozen=True, gc=False):
    """Find one subscriber that accepts the payload, near this node first; answered by one `SearchEnded`."""

    request: int
    topic: NodeId
    payload: bytes


class AnswerOffer(Event, frozen=True, gc=False):
    """The answer to `Offered`."""

    offer: int
    accepted: bool


class AskTopic(Event, frozen=True, gc=False):
    """Read what the topic's owner left at its root, or leave something there; answered by one `TopicAnswer`."""

    request: int
    topic: NodeId
    state: bytes | None = None


class TopicMessage(Effect, frozen=True, gc=False):
    """Something was published under a topic that this node joined."""

    topic: NodeId
    payload: bytes
    origin: Peer


class Offered(Effect, frozen=True, gc=False):
    """A search has come to this subscriber; answer with `AnswerOffer`."""

    offer: int
    topic: NodeId
    payload: bytes
    origin: Peer


class SearchEnded(Effect, frozen=True, gc=False):
    """The end of a `SearchTopic`: who accepted, or None; `hops` nodes were passed."""

    request: int
    peer: Peer | None
    hops: int


class TopicAnswer(Effect, frozen=True, gc=False):
    """The end of an `AskTopic`; not ok: nothing is there, somebody else owns the topic, or the ring did not answer."""

    request: int
    ok: bool
    owner: Peer | None
    state: bytes
