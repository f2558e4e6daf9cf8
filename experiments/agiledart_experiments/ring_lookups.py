"""Ledger of look-ups: compare where each look-up arrives, and how often, with the correct target."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from agiledart_kernel.node_id import ID_BITS, NodeId, ring_distance
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.world.overlay_ring import OverlayRing


def nearest(ids: Sequence[NodeId], key: NodeId, bits: int = ID_BITS) -> NodeId:
    """Return the id closest to a key among sorted ids; at equal distance the smaller id."""
    place = bisect_left(ids, key)
    neighbours = (ids[place - 1], ids[place % len(ids)])
    return min(neighbours, key=lambda node: (ring_distance(node, key, bits), node))


class RingLookups:
    """Ledger of the look-ups of one ring.

    Attributes:
        sent: number of look-ups sent.
        hops: overlay hops of each arrived look-up, in the order of arrival.
        stretches: length of the route divided by the direct distance, where source and target differ.
        wrong: number of look-ups that arrived at another node than the closest member.
        doubles: number of repeated arrivals.
    """

    def __init__(self, ring: OverlayRing, seed: int) -> None:
        self._ring = ring
        self._random = RandomStream(seed, "lookups")
        self._waiting: dict[NodeId, NodeId] = {}
        self.sent = self.wrong = self.doubles = 0
        self.hops: list[int] = []
        self.stretches: list[float] = []

    @property
    def lost(self) -> int:
        """Return the number of look-ups that have not arrived so far."""
        return len(self._waiting)

    @property
    def delivered_correctly(self) -> float:
        """Return the share of the look-ups that arrived at the correct node."""
        return (len(self.hops) - self.wrong) / self.sent if self.sent else 1.0

    def send(self, members: Sequence[NodeId], count: int) -> None:
        """Send `count` look-ups from random members (sorted ids) to random keys."""
        for _ in range(count):
            key = NodeId(self._random.bits(ID_BITS))
            self._waiting[key] = nearest(members, key)
            self._ring.route(self._random.choice(members), key)
            self.sent += 1

    def collect(self, accepted: Sequence[NodeId] | None = None) -> None:
        """Record the look-ups that have arrived.

        Args:
            accepted: the present members when the ring has changed; the node closest then or now is correct.
        """
        distance = self._ring.world.network.distance_ns
        for at, delivered in self._ring.delivered:
            expected = self._waiting.pop(delivered.key, None)
            if expected is None:
                self.doubles += 1
                continue
            if at.node != expected and (accepted is None or at.node != nearest(accepted, delivered.key)):
                self.wrong += 1
            nodes = [peer.node for peer in delivered.path]
            self.hops.append(len(nodes) - 1)
            if len(nodes) > 1 and nodes[0] != nodes[-1]:
                length = sum(distance(a, b) for a, b in pairwise(nodes))
                self.stretches.append(length / distance(nodes[0], nodes[-1]))
        self._ring.delivered.clear()


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies; 0 when there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
