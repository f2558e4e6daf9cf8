"""Knowledge about each peer beyond its place in the tables: incarnation, distance, last message; and the dead peers.

Incarnations are ordered by (incarnation, refutations): a declared failure counts for that incarnation up to that refutation, a
later one undoes it. The dead are remembered for a while ("tombstones"), so that outdated gossip cannot bring them back.
"""

from collections.abc import Iterator

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.messages import Vitals

MAX_TOMBSTONES = 1_024
_GONE_FOR_GOOD = 1 << 62
"""Refutations of an incarnation that ended by its own will: only a higher incarnation returns."""


class KnownPeer:
    """One live peer.

    Attributes:
        refutations: number of refutations of its death in this incarnation.
        last_received_at: instant of its last message.
        rtt_ns, variation_ns: round trip, smoothed as in TCP (1/8 and 1/4); 0: never measured.
        vitals: its last report: its place in the space of latencies, and its load.
        congestion_permille: used share of the link to it, as the node above reports; 0 to 1000.
        is_placed: offered to the tables since it was last met as a member; a watched peer may be known without.
    """

    __slots__ = (
        "congestion_permille",
        "is_placed",
        "last_received_at",
        "peer",
        "refutations",
        "rtt_ns",
        "variation_ns",
        "vitals",
    )

    def __init__(self, peer: Peer, refutations: int, last_received_at: Instant) -> None:
        self.peer = peer
        self.refutations = refutations
        self.last_received_at = last_received_at
        self.rtt_ns = 0
        self.variation_ns = 0
        self.vitals: Vitals | None = None
        self.congestion_permille = 0
        self.is_placed = False

    def measure(self, sample_ns: int) -> None:
        """Take one measured round trip."""
        sample_ns, rtt_ns = max(1, sample_ns), self.rtt_ns
        if rtt_ns == 0:
            self.rtt_ns, self.variation_ns = sample_ns, sample_ns // 2
            return
        self.variation_ns += (abs(sample_ns - rtt_ns) - self.variation_ns) // 4
        self.rtt_ns = rtt_ns + (sample_ns - rtt_ns) // 8  # at least 1, as both are


class Tombstone:
    """One incarnation that was declared dead.

    Attributes:
        silent_since: instant of the first question that it did not answer; `at` when there was none.
    """

    __slots__ = ("accused_at", "at", "has_left", "peer", "refutations", "silent_since")

    def __init__(self, peer: Peer, refutations: int, at: Instant, has_left: bool) -> None:
        self.peer = peer
        self.refutations = _GONE_FOR_GOOD if has_left else refutations
        self.at = self.silent_since = at
        self.has_left = has_left
        self.accused_at: Instant | None = None


class PeerBook:
    """Acquaintances and tombstones by id; a node is in one of the two or in none. Also the dead reported by the range owner."""

    __slots__ = ("_inherited", "_tombstones", "alive")

    def __init__(self) -> None:
        self.alive: dict[NodeId, KnownPeer] = {}
        """Live peers; only this class changes it."""
        self._tombstones: dict[NodeId, Tombstone] = {}
        self._inherited: dict[NodeId, tuple[Peer, Instant]] = {}

    def __len__(self) -> int:
        return len(self.alive)

    def __contains__(self, node: NodeId) -> bool:
        return node in self.alive

    def __iter__(self) -> Iterator[KnownPeer]:
        return iter(self.alive.values())

    @property
    def tombstones(self) -> tuple[Tombstone, ...]:
        """Return all remembered dead, oldest first."""
        return tuple(self._tombstones.values())

    @property
    def lost(self) -> list[Peer]:
        """Return peers believed dead, here or by this node's range owner, the latest last: perhaps another half of the ring."""
        unknown = [node for node in self._inherited if node not in self.alive and node not in self._tombstones]
        return [
            *(self._inherited[node][0] for node in unknown),
            *(tombstone.peer for tombstone in self._tombstones.values() if not tombstone.has_left),
        ]

    def inherit(self, lost: tuple[Peer, ...], now: Instant) -> None:
        """Store the lost peers of the range owner that admitted this node; they replace an earlier list."""
        self._inherited = {peer.node: (peer, now) for peer in lost}

    def get(self, node: NodeId) -> KnownPeer | None:
        """Return a live peer."""
        return self.alive.get(node)

    def tombstone(self, node: NodeId) -> Tombstone | None:
        """Return the tombstone of a dead peer."""
        return self._tombstones.get(node)

    def is_dead(self, peer: Peer, refutations: int) -> bool:
        """Report whether this incarnation, at this number of refutations, is known to be over."""
        tombstone = self._tombstones.get(peer.node)
        return tombstone is not None and (peer.incarnation, refutations) <= (
            tombstone.peer.incarnation,
            tombstone.refutations,
        )

    def meet(self, peer: Peer, refutations: int, now: Instant) -> KnownPeer:
        """Note that a peer is alive, by its own message. Not to be called while `is_dead`."""
        self._tombstones.pop(peer.node, None)
        known = self.alive.get(peer.node)
        if known is None:
            known = self.alive[peer.node] = KnownPeer(peer, refutations, now)
            return known
        if known.peer != peer or known.peer.reach.revision < peer.reach.revision:
            known.peer = peer
        known.refutations = max(known.refutations, refutations)
        known.last_received_at = now
        return known

    def mark_dead(self, peer: Peer, refutations: int, now: Instant, *, has_left: bool) -> None:
        """Note that this incarnation is over."""
        self.alive.pop(peer.node, None)
        self._tombstones.pop(peer.node, None)
        if len(self._tombstones) >= MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        self._tombstones[peer.node] = Tombstone(peer, refutations, now, has_left)

    def forget(self, node: NodeId) -> None:
        """Drop a live peer that no table needs."""
        self.alive.pop(node, None)

    def forget_tombstones(self, older_than: int) -> None:
        """Drop tombstones, and reported dead, from before this instant."""
        for node in [node for node, tombstone in self._tombstones.items() if tombstone.at < older_than]:
            del self._tombstones[node]
        for node in [node for node, (_, at) in self._inherited.items() if at < older_than]:
            del self._inherited[node]

    def violations(self) -> list[str]:
        """Check that a node is alive or dead, stands under its own id, and that tombstones are bounded."""
        complaints = [
            f"book: {node.short} lives and has a tombstone" for node in self.alive if node in self._tombstones
        ]
        for node, known in self.alive.items():
            if known.peer.node != node or min(known.refutations, known.rtt_ns, known.variation_ns) < 0:
                complaints.append(f"book: the entry of {node.short} is invalid")
        if len(self._tombstones) > MAX_TOMBSTONES:
            complaints.append(f"book: {len(self._tombstones)} tombstones, at most {MAX_TOMBSTONES}")
        return complaints
