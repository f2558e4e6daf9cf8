"""Neighbourhood set: peers near in latency, apart from peers near in id. It seeds the tables of joiners and offers helpers.

Source: [Pastry] §2.2 (M).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

UNMEASURED_NS = 1 << 62
"""Round trip of an unmeasured peer: farther than all others, so that it only fills free places."""


class Neighbourhood:
    """The `size` peers with the least round-trip time; at equal time the smaller id."""

    __slots__ = ("_order", "_peers", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._order: list[tuple[int, NodeId]] = []
        self._peers: dict[NodeId, tuple[int, Peer]] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._peers

    def __iter__(self) -> Iterator[Peer]:
        return iter([peer for _, peer in self._peers.values()])

    @property
    def has_free_slot(self) -> bool:
        """Report whether any peer would be taken."""
        return len(self._peers) < self._size

    @property
    def worst_ns(self) -> int:
        """Return the round trip that a new peer must be below; no bound while there is a free place."""
        return self._order[-1][0] if len(self._order) >= self._size else UNMEASURED_NS

    @property
    def nearest(self) -> tuple[Peer, ...]:
        """Return all peers, nearest first."""
        peers = self._peers
        return tuple([peers[node][1] for _, node in self._order])

    def offer(self, peer: Peer, rtt_ns: int) -> bool:
        """Offer a measured peer; return True when it is in the set afterwards."""
        node = peer.node
        order = self._order
        old = self._peers.get(node)
        if old is not None:
            if old[0] == rtt_ns and old[1] is peer:
                return True
            if old[0] != rtt_ns:
                del order[bisect_left(order, (old[0], node))]
                insort(order, (rtt_ns, node))
            self._peers[node] = (rtt_ns, peer)
            return True
        if len(order) >= self._size:
            worst = order[-1]
            if (rtt_ns, node) >= worst:
                return False
            order.pop()
            del self._peers[worst[1]]
        insort(order, (rtt_ns, node))
        self._peers[node] = (rtt_ns, peer)
        return True

    def remove(self, node: NodeId) -> bool:
        """Remove a peer; return True when it was in the set."""
        old = self._peers.pop(node, None)
        if old is None:
            return False
        del self._order[bisect_left(self._order, (old[0], node))]
        return True

    def violations(self) -> list[str]:
        """Check ring_1: the set is bounded, nearest first."""
        if len(self._order) <= self._size and self._order == sorted(
            (rtt, node) for node, (rtt, _) in self._peers.items()
        ):
            return []
        return [f"ring_1: the neighbourhood has {len(self._order)} nodes, at most {self._size}, or no order"]
