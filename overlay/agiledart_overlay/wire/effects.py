"""What the overlay tells the node above, beside the kernel's `Send`, `SetTimer` and `CancelTimer`."""

from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class JoinCompleted(Effect, frozen=True, gc=False):
    """This node is in the ring: it answers for its keys. Again after each `Rejoining`."""


class JoinFailed(Effect, frozen=True, gc=False):
    """The ring was not reached or refused this node; `reason` is fit for a user to read. Nothing is retried."""

    reason: str


class Rejoining(Effect, frozen=True, gc=False):
    """The ring goes on without this node, which joins again: it answers for nothing until the next `JoinCompleted`."""

    reason: str


class LeaveCompleted(Effect, frozen=True, gc=False):
    """This node is out of the ring; it answers nothing until the next `JoinRing` with a higher incarnation."""


class Delivered(Effect, frozen=True, gc=False):
    """A routed message has arrived where it belongs: here.

    Args:
        key: where it was sent to; this node is the closest live one.
        payload: what was sent.
        source: who sent it.
        path: all nodes visited, the source first, this node last.
    """

    key: NodeId
    payload: bytes
    source: Peer
    path: tuple[Peer, ...]


class Forwarding(Effect, frozen=True, gc=False):
    """A routed message is passed on from here; also at its source. Repeated when a hop turns out dead and another is tried.

    Args:
        key, payload, source: as in `Delivered`.
        previous: who handed it to this node; None at the source.
        next: who gets it now.
    """

    key: NodeId
    payload: bytes
    source: Peer
    previous: Peer | None
    next: Peer


class PeerFailed(Effect, frozen=True, gc=False):
    """A peer was declared dead in this life; `reason`: silent, link, rumour or restarted. It may come back later."""

    peer: Peer
    reason: str


class PeerLeft(Effect, frozen=True, gc=False):
    """A peer said good-bye."""

    peer: Peer


class NeighboursChanged(Effect, frozen=True, gc=False):
    """The leaf set is not what it was; at most one in the effects of a step."""


class RecordAnswer(Effect, frozen=True, gc=False):
    """The end of a `StoreRecord` or `ReadRecord`.

    Args:
        request: number given by the asker.
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
