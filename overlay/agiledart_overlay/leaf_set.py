"""The leaf set: the members numerically closest to a node, half on each side. Routing is right as long as these are right.

In a ring so small that the halves meet, one peer stands in both.
"""

from collections.abc import Container

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer


class LeafSet:
    """Nearest members each way round, nearest first.

    Args:
        owner: the node in the middle; never a member.
        size: both halves together; even.
        bits: length of an id.
    """

    __slots__ = ("_bits", "_ccw", "_cw", "_far_ccw", "_far_cw", "_half", "_mask", "_members", "_owner", "_whole")

    def __init__(self, owner: NodeId, size: int, bits: int) -> None:
        self._owner, self._half, self._bits = owner, size // 2, bits
        self._mask = (1 << bits) - 1
        self._cw: list[Peer] = []
        self._ccw: list[Peer] = []
        self._members: dict[NodeId, Peer] = {}
        self._whole = True
        self._far_cw = self._far_ccw = self._mask + 1

    @property
    def clockwise(self) -> tuple[Peer, ...]:
        """Members with growing ids from the owner, nearest first."""
        return tuple(self._cw)

    @property
    def counterclockwise(self) -> tuple[Peer, ...]:
        """Members with falling ids from the owner, nearest first."""
        return tuple(self._ccw)

    @property
    def members(self) -> tuple[Peer, ...]:
        """All members once, clockwise ones first."""
        return tuple(self._members.values())

    @property
    def successor(self) -> Peer | None:
        """The nearest member clockwise."""
        return self._cw[0] if self._cw else None

    @property
    def predecessor(self) -> Peer | None:
        """The nearest member counter-clockwise."""
        return self._ccw[0] if self._ccw else None

    @property
    def is_whole(self) -> bool:
        """Whether a half is short or the halves overlap: then no node is known that is not a member."""
        return self._whole

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._members

    def get(self, node: NodeId) -> Peer | None:
        """The member with this id."""
        return self._members.get(node)

    def fits(self, node: NodeId) -> bool:
        """Whether a node would become a member; false for the owner and for members."""
        if node == self._owner or node in self._members:
            return False
        cw = (node - self._owner) & self._mask
        return cw < self._far_cw or self._mask + 1 - cw < self._far_ccw

    def add(self, peer: Peer) -> bool:
        """Put a peer where it belongs; true when the membership changed. A known id takes over the new peer's data."""
        if peer.node == self._owner:
            return False
        if peer.node in self._members:
            self._refresh(peer)
            return False
        if not self.fits(peer.node):
            return False
        self._place(self._cw, peer, 1)
        self._place(self._ccw, peer, -1)
        self._index()
        return True

    def remove(self, node: NodeId) -> bool:
        """Forget a member; true when it was one. In a small ring the other half refills this one."""
        if node not in self._members:
            return False
        self._cw = [peer for peer in self._cw if peer.node != node]
        self._ccw = [peer for peer in self._ccw if peer.node != node]
        for peer in self._members.values():
            if peer.node != node:
                self._place(self._cw, peer, 1)
                self._place(self._ccw, peer, -1)
        self._index()
        return True

    def covers(self, key: NodeId) -> bool:
        """Whether the key lies between the farthest members, so that the closest node to it is the owner or a member."""
        if self._whole:
            return True
        cw = (key - self._owner) & self._mask
        return cw <= self._far_cw or self._mask + 1 - cw <= self._far_ccw

    def closest(self, key: NodeId, avoid: Container[NodeId] = ()) -> Peer | None:
        """The member closest to a key, or None when the owner is; at equal distance the smaller id."""
        bits = self._bits
        best: Peer | None = None
        best_rank = (ring_distance(self._owner, key, bits), self._owner)
        for node, peer in self._members.items():
            rank = (ring_distance(node, key, bits), node)
            if rank < best_rank and node not in avoid:
                best, best_rank = peer, rank
        return best

    def nearest_to(self, key: NodeId, count: int) -> tuple[Peer, ...]:
        """So many members closest to a key, closest first."""
        bits = self._bits
        ranked = sorted(self._members.values(), key=lambda peer: (ring_distance(peer.node, key, bits), peer.node))
        return tuple(ranked[:count])

    def _place(self, side: list[Peer], peer: Peer, direction: int) -> None:
        away = direction * (peer.node - self._owner) & self._mask
        for index, other in enumerate(side):
            distance = direction * (other.node - self._owner) & self._mask
            if distance == away:
                return
            if distance > away:
                side.insert(index, peer)
                break
        else:
            if len(side) < self._half:
                side.append(peer)
            return
        if len(side) > self._half:
            side.pop()

    def _refresh(self, peer: Peer) -> None:
        if self._members[peer.node] is peer:
            return
        for side in (self._cw, self._ccw):
            for index, other in enumerate(side):
                if other.node == peer.node:
                    side[index] = peer
        self._index()

    def _index(self) -> None:
        self._members = {peer.node: peer for peer in (*self._cw, *self._ccw)}
        # Distance of the farthest member each way; a half with room takes anybody.
        size, mask = self._mask + 1, self._mask
        self._far_cw = (self._cw[-1].node - self._owner) & mask if len(self._cw) == self._half else size
        self._far_ccw = (self._owner - self._ccw[-1].node) & mask if len(self._ccw) == self._half else size
        short = size in (self._far_cw, self._far_ccw)
        self._whole = short or len(self._members) < len(self._cw) + len(self._ccw)
