"""Events that the node above gives the overlay, beside the kernel's `Received`, `TimerFired` and `LinkLost`."""

from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability


class JoinRing(Event, frozen=True, gc=False):
    """Become a member; `seeds` are peers that may be in the ring, with real ids. No seeds: create a new ring.

    Answered by `JoinCompleted` or `JoinFailed`. When seeds answer but none of them is in a ring either (all agents started at
    once), the one with the smallest id creates it.
    """

    seeds: tuple[Peer, ...]


class LeaveRing(Event, frozen=True, gc=False):
    """Hand records over, notify the others, leave; answered by `LeaveCompleted` within `leave_timeout_ns`."""


class RouteMessage(Event, frozen=True, gc=False):
    """Route `payload` to the live node whose id is closest to `key`."""

    key: NodeId
    payload: bytes


class StoreRecord(Event, frozen=True, gc=False):
    """Write a record at its key if its version is still `expected_version` (0: it must not exist yet).

    Answered by one `RecordAnswer` with the same `request`; a request number is used once in the life of a process.
    """

    request: int
    key: NodeId
    expected_version: int
    value: bytes


class ReadRecord(Event, frozen=True, gc=False):
    """Read the record at a key; answered by one `RecordAnswer` with the same `request`."""

    request: int
    key: NodeId


class WatchPeer(Event, frozen=True, gc=False):
    """Probe this peer like a leaf until `UnwatchPeer`, so that `PeerFailed` reports its death although it is no leaf."""

    peer: Peer


class UnwatchPeer(Event, frozen=True, gc=False):
    """Undo `WatchPeer`; a node that is not watched is ignored."""

    node: NodeId


class SetLoad(Event, frozen=True, gc=False):
    """Set the used share of this node's capacity, 0 to 1000; it travels on acknowledgements, and is part of the cost of a hop."""

    load_permille: int


class SetReachability(Event, frozen=True, gc=False):
    """Set how other nodes reach this one from now on. An older revision than the present one changes nothing.

    Args:
        address: its present HOST:PORT; empty: the one of before.
    """

    reach: Reachability
    address: str = ""


class SetCongestion(Event, frozen=True, gc=False):
    """Set the used share of the link to a peer, 0 to 1000; part of the cost of a hop."""

    node: NodeId
    congestion_permille: int
