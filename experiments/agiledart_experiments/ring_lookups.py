"""A ledger of look-ups: each is sent once; where it arrives, and how often, is compared with the truth."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from agiledart_kernel.node_id import ID_BITS, NodeId, ring_distance
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.world.overlay_ring import OverlayRing


def nearest(ids: Sequence[NodeId], key: NodeId, bits: int = ID_BITS) -> NodeId:
    """The id closest to a key among sorted ids; the smaller one at equal distance."""
    place = bisect_left(ids, key)
    around = (ids[place - 1], ids[place % len(ids)])
    return min(around, key=lambda node: (ring_distance(node, key, bits), node))


class RingLookups:
    """Look-ups of one ring.

    Attributes:
        sent: look-ups sent.
        hops: overlay hops of each that arrived, in the order of arrival.
        stretches: length of the route over the direct distance, where source and target differ.
        wrong: arrived at another node than the closest member. doubles: arrived once more.
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
        """Sent and not arrived so far."""
        return len(self._waiting)

    @property
    def delivered_correctly(self) -> float:
        """Share of those sent that arrived at the right node."""
        return (len(self.hops) - self.wrong) / self.sent if self.sent else 1.0

    def send(self, members: Sequence[NodeId], count: int) -> None:
        """Send so many from random members (sorted ids) to random keys."""
        for _ in range(count):
            key = NodeId(self._random.bits(ID_BITS))
            self._waiting[key] = nearest(members, key)
            self._ring.route(self._random.choice(members), key)
            self.sent += 1

    def collect(self, accepted: Sequence[NodeId] | None = None) -> None:
        """Take in what has arrived. `accepted`: the members now, when the ring changed since: either closest one is right."""
        distance = self._ring.world.network.distance_ns
        for at, delivered in self._ring.delivered:
            want = self._waiting.pop(delivered.key, None)
            if want is None:
                self.doubles += 1
                continue
            if at.node != want and (accepted is None or at.node != nearest(accepted, delivered.key)):
                self.wrong += 1
            nodes = [peer.node for peer in delivered.path]
            self.hops.append(len(nodes) - 1)
            if len(nodes) > 1 and nodes[0] != nodes[-1]:
                length = sum(distance(a, b) for a, b in pairwise(nodes))
                self.stretches.append(length / distance(nodes[0], nodes[-1]))
        self._ring.delivered.clear()


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
