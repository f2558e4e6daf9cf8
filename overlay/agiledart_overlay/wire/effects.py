"""Effects of the overlay for the node above, beside the kernel's `Send`, `SetTimer` and `CancelTimer`."""

from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class JoinCompleted(Effect, frozen=True, gc=False):
    """This node is in the ring: it answers for its keys. Again after each `Rejoining`."""


class JoinFailed(Effect, frozen=True, gc=False):
    """The ring was not reached or refused this node; `reason` is a text for users. Nothing is retried."""

    reason: str


class Rejoining(Effect, frozen=True, gc=False):
    """The ring goes on without this node, which rejoins: it answers for no keys until the next `JoinCompleted`."""

    reason: str


class LeaveCompleted(Effect, frozen=True, gc=False):
    """This node is out of the ring; it answers no message until the next `JoinRing` with a higher incarnation."""


class Delivered(Effect, frozen=True, gc=False):
    """Routed message that has arrived at its owner: this node.

    Args:
        key: its target; this node is the closest live one.
        payload: its content.
        source: its sender.
        path: all nodes visited, the source first, this node last.
    """

    key: NodeId
    payload: bytes
    source: Peer
    path: tuple[Peer, ...]


class Forwarding(Effect, frozen=True, gc=False):
    """Routed message that this node passes on, also at its source. Repeated when a hop turns out dead and another is tried.

    Args:
        key, payload, source: as in `Delivered`.
        previous: the node that passed it to this one; None at the source.
        next: the next node.
    """

    key: NodeId
    payload: bytes
    source: Peer
    previous: Peer | None
    next: Peer


class PeerFailed(Effect, frozen=True, gc=False):
    """A peer was declared dead in this incarnation; `reason`: silent, link, rumour or restarted. It may come back later."""

    peer: Peer
    reason: str


class PeerLeft(Effect, frozen=True, gc=False):
    """A peer has left."""

    peer: Peer


class NeighboursChanged(Effect, frozen=True, gc=False):
    """The leaf set has changed; at most one in the effects of a step."""


class RecordAnswer(Effect, frozen=True, gc=False):
    """End of a `StoreRecord` or `ReadRecord`.

    Args:
        request: number given by the client.
        ok: stored, or found.
        version: version now at the key; 0 when there is none.
        value: after a read, or on a conflict, the value now at the key; empty after a successful store.
        reason: empty, or one of `conflict`, `missing`, `timeout`, `overloaded`.
    """

    request: int
    ok: bool
    version: int
    value: bytes
    reason: str
