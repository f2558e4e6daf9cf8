"""Leaf set: the members numerically closest to a node, half on each side. Routing is right as long as these are right.

In a ring so small that the halves meet, one peer stands in both.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable
from itertools import pairwise

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer


class LeafSet:
    """Nearest members each way round, nearest first.

    Args:
        owner: the node in the middle; never a member.
        size: both halves together; even.
        bits: length of an id.
    """

    __slots__ = (
        "_bits", "_ccw", "_ccw_away", "_cw", "_cw_away", "_far_ccw", "_far_cw", "_half", "_mask", "_members", "_owner", "_whole",
    )  # fmt: skip

    def __init__(self, owner: NodeId, size: int, bits: int) -> None:
        self._owner, self._half, self._bits = owner, size // 2, bits
        self._mask = (1 << bits) - 1
        self._cw: list[Peer] = []
        self._ccw: list[Peer] = []
        self._cw_away: list[int] = []
        self._ccw_away: list[int] = []
        self._members: dict[NodeId, Peer] = {}
        self._whole = True
        self._far_cw = self._far_ccw = self._mask + 1

    @property
    def clockwise(self) -> tuple[Peer, ...]:
        """Return members with growing ids from the owner, nearest first."""
        return tuple(self._cw)

    @property
    def counterclockwise(self) -> tuple[Peer, ...]:
        """Return members with falling ids from the owner, nearest first."""
        return tuple(self._ccw)

    @property
    def members(self) -> tuple[Peer, ...]:
        """Return all members once, clockwise ones first."""
        if len(self._members) == len(self._cw) + len(self._ccw):
            return (*self._cw, *self._ccw)
        return tuple({peer.node: peer for peer in (*self._cw, *self._ccw)}.values())

    @property
    def successor(self) -> Peer | None:
        """Return the nearest member clockwise."""
        return self._cw[0] if self._cw else None

    @property
    def predecessor(self) -> Peer | None:
        """Return the nearest member counter-clockwise."""
        return self._ccw[0] if self._ccw else None

    @property
    def is_whole(self) -> bool:
        """Report whether a half is short or the halves overlap: then every known node is a member."""
        return self._whole

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._members

    @property
    def by_id(self) -> dict[NodeId, Peer]:
        """Return members by id, for callers with many look-ups. Read only, and only until the next change."""
        return self._members

    def get(self, node: NodeId) -> Peer | None:
        """Return the member with this id."""
        return self._members.get(node)

    def fits(self, node: NodeId) -> bool:
        """Report whether a node would become a member; false for the owner and for members."""
        if node == self._owner or node in self._members:
            return False
        cw = (node - self._owner) & self._mask
        return cw < self._far_cw or self._mask + 1 - cw < self._far_ccw

    def add(self, peer: Peer) -> bool:
        """Put a peer where it belongs; return True when the membership changed. A known id takes over the new peer's data."""
        node = peer.node
        if node in self._members:
            self._refresh(peer)
            return False
        away = (node - self._owner) & self._mask
        back = self._mask + 1 - away
        if not away or (away >= self._far_cw and back >= self._far_ccw):
            return False
        pushed_out = (
            self._insert(self._cw, self._cw_away, peer, away) if away < self._far_cw else None,
            self._insert(self._ccw, self._ccw_away, peer, back) if back < self._far_ccw else None,
        )
        self._members[node] = peer
        for other in pushed_out:
            # Only in a ring so small that the halves met can it stand in the other half.
            if other is not None and other.node != node and not (self._whole and self._stands_in_a_half(other.node)):
                self._members.pop(other.node, None)
        self._bound()
        return True

    def _stands_in_a_half(self, node: NodeId) -> bool:
        away = (node - self._owner) & self._mask
        for distances, distance in ((self._cw_away, away), (self._ccw_away, self._mask + 1 - away)):
            index = bisect_left(distances, distance)
            if index < len(distances) and distances[index] == distance:
                return True
        return False

    def remove(self, node: NodeId) -> bool:
        """Remove a member; return True when it was one. In a small ring the other half refills this one."""
        if node not in self._members:
            return False
        away = (node - self._owner) & self._mask
        for side, distances, distance in (
            (self._cw, self._cw_away, away),
            (self._ccw, self._ccw_away, self._mask + 1 - away),
        ):
            index = bisect_left(distances, distance)
            if index < len(side) and side[index].node == node:
                del side[index], distances[index]
        for peer in self._members.values():
            if peer.node != node:
                away = (peer.node - self._owner) & self._mask
                self._insert(self._cw, self._cw_away, peer, away)
                self._insert(self._ccw, self._ccw_away, peer, self._mask + 1 - away)
        self._index()
        return True

    def covers(self, key: NodeId) -> bool:
        """Report whether the key lies between the farthest members, so that the node closest to it is the owner or a member."""
        if self._whole:
            return True
        cw = (key - self._owner) & self._mask
        return cw <= self._far_cw or self._mask + 1 - cw <= self._far_ccw

    def closest(self, key: NodeId, avoid: Container[NodeId] = ()) -> Peer | None:
        """Return the member closest to a key, or None when the owner is; at equal distance the smaller id."""
        if not self._whole and not avoid:
            cw = (key - self._owner) & self._mask
            if cw <= self._far_cw:
                return self._closer(self._cw, self._cw_away, cw, is_clockwise=True)
            if self._mask + 1 - cw <= self._far_ccw:
                return self._closer(self._ccw, self._ccw_away, self._mask + 1 - cw, is_clockwise=False)
        bits = self._bits
        best: Peer | None = None
        best_rank = (ring_distance(self._owner, key, bits), self._owner)
        for node, peer in self._members.items():
            rank = (ring_distance(node, key, bits), node)
            if rank < best_rank and node not in avoid:
                best, best_rank = peer, rank
        return best

    def _closer(self, side: list[Peer], away: list[int], distance: int, *, is_clockwise: bool) -> Peer | None:
        """Return the closer of the two nodes around a key on one side; no other node can be closer."""
        index = bisect_left(away, distance)
        outer, outer_distance = side[index], away[index] - distance
        inner, inner_distance = (side[index - 1], distance - away[index - 1]) if index else (None, distance)
        if outer_distance != inner_distance:
            return outer if outer_distance < inner_distance else inner
        inner_node = self._owner if inner is None else inner.node
        return outer if outer.node < inner_node else inner

    def lacking(self, owner: NodeId, listed: Iterable[NodeId]) -> list[Peer]:
        """Return members that belong into another node's leaf set and are not in its list; never that node itself.

        The owner of this leaf set is not returned, though the other may lack it, too.
        """
        mask, half = self._mask, self._half
        known = dict.fromkeys(listed)
        unlisted = [peer for node, peer in self._members.items() if node not in known and node != owner]
        if len(known) < half or not unlisted:
            return unlisted
        cw = sorted([(node - owner) & mask for node in known])
        far_cw, far_ccw = cw[half - 1], cw[-half]
        return [peer for peer in unlisted if not far_cw <= (peer.node - owner) & mask <= far_ccw]

    def shared_with(self, node: NodeId) -> list[Peer]:
        """Return members that should also be in this member's leaf set, as far as this node can tell, in the order of the ring."""
        if self._whole:
            return sorted(self._members.values(), key=lambda peer: peer.node)
        half = self._half
        ring = [*reversed(self._ccw), *self._cw]
        for index, peer in enumerate(ring):
            if peer.node == node:
                # Places left of the owner are -12 … -1, right of it 1 … 12; the other node sees 12 beyond itself each way.
                place = index - half if index < half else index - half + 1
                return ring[max(0, place) : len(ring) + min(0, place)]
        return []

    def nearest_to(self, key: NodeId, count: int) -> tuple[Peer, ...]:
        """Return `count` members closest to a key, closest first."""
        bits = self._bits
        ranked = sorted(self._members.values(), key=lambda peer: (ring_distance(peer.node, key, bits), peer.node))
        return tuple(ranked[:count])

    def violations(self) -> list[str]:
        """Check ring_1: each half is sorted, bounded, full and without the owner; members are those of both halves."""
        complaints = []
        expected_count = min(self._half, len(self._members))
        for name, side, distances, sign in (
            ("clockwise", self._cw, self._cw_away, 1),
            ("counterclockwise", self._ccw, self._ccw_away, -1),
        ):
            away = [sign * (peer.node - self._owner) & self._mask for peer in side]
            if len(side) != expected_count or away != distances or any(a >= b for a, b in pairwise((0, *away))):
                complaints.append(
                    f"ring_1: the {name} leaves are {[peer.node.short for peer in side]}, {expected_count} of them wanted"
                )
        if self._members != {peer.node: peer for peer in (*self._cw, *self._ccw)}:
            complaints.append("ring_1: the members of the leaf set are not those of its halves")
        return complaints

    def _insert(self, side: list[Peer], distances: list[int], peer: Peer, distance: int) -> Peer | None:
        """Insert a peer into one half, unless it is there or the half is full of nearer ones; return the peer that it replaced."""
        index = bisect_left(distances, distance)
        if index == self._half or (index < len(side) and distances[index] == distance):
            return None
        side.insert(index, peer)
        distances.insert(index, distance)
        if len(side) > self._half:
            distances.pop()
            return side.pop()
        return None

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
        self._bound()

    def _bound(self) -> None:
        """Set the distance of the farthest member each way; a half with a free place takes any node."""
        size = self._mask + 1
        self._far_cw = self._cw_away[-1] if len(self._cw) == self._half else size
        self._far_ccw = self._ccw_away[-1] if len(self._ccw) == self._half else size
        short = self._far_cw == size or self._far_ccw == size
        self._whole = short or len(self._members) < 2 * self._half
