"""The neighbourhood set: peers near in latency, kept apart from peers near in id. Seeds the tables of joiners and offers helpers.

Source: [Pastry] §2.2 (M).
"""

from collections.abc import Iterator

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


class Neighbourhood:
    """The `size` peers with the least round-trip time; at equal time the smaller id."""

    __slots__ = ("_peers", "_size", "_worst_ns")

    def __init__(self, size: int) -> None:
        self._size = size
        self._worst_ns = 0
        self._peers: dict[NodeId, tuple[int, Peer]] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._peers

    def __iter__(self) -> Iterator[Peer]:
        for _, peer in self._peers.values():
            yield peer

    @property
    def has_room(self) -> bool:
        """Whether any peer would be taken."""
        return len(self._peers) < self._size

    @property
    def nearest(self) -> tuple[Peer, ...]:
        """All peers, nearest first."""
        return tuple(peer for _, peer in sorted(self._peers.values(), key=lambda entry: (entry[0], entry[1].node)))

    def offer(self, peer: Peer, rtt_ns: int) -> bool:
        """A measured peer; true when it is in afterwards."""
        if rtt_ns >= self._worst_ns and len(self._peers) >= self._size and peer.node not in self._peers:
            return False
        self._peers[peer.node] = (rtt_ns, peer)
        if len(self._peers) > self._size:
            farthest = max(self._peers.values(), key=lambda entry: (entry[0], entry[1].node))[1].node
            del self._peers[farthest]
            self._worst_ns = max(rtt for rtt, _ in self._peers.values())
            return farthest != peer.node
        return True

    def remove(self, node: NodeId) -> bool:
        """Forget a peer; true when it was there."""
        return self._peers.pop(node, None) is not None
