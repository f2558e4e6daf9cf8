"""What is known about each peer beyond its place in the tables: its life, how far it is, when it was heard; and who is dead.

Lives are ordered by (incarnation, refutations): a declared failure counts for that life up to that refutation, a later one
undoes it. The dead are remembered for a while ("graves"), so that gossip that is behind cannot bring them back.
"""

from collections.abc import Iterator

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.messages import Vitals

MAX_TOMBSTONES = 1_024
_GONE_FOR_GOOD = 1 << 62
"""Refutations of a life that ended by its own will: only a higher incarnation returns."""


class KnownPeer:
    """One live peer.

    Attributes:
        refutations: how often it has refuted its death in this life.
        heard_at: when it last sent anything.
        rtt_ns, variation_ns: round trip, smoothed as in TCP (1/8 and 1/4); 0: never measured.
        vitals: what it last said of itself: where it lies in the space of latencies, and its load.
        congestion_permille: how much of the link to it is in use, as the node above says; 0 to 1000.
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
    """One life that was declared dead.

    Attributes:
        silent_since: when it was asked for the last sign of life, of which none came; `at` when nobody asked.
    """

    __slots__ = ("accused_at", "at", "has_left", "peer", "refutations", "silent_since")

    def __init__(self, peer: Peer, refutations: int, at: Instant, has_left: bool) -> None:
        self.peer = peer
        self.refutations = _GONE_FOR_GOOD if has_left else refutations
        self.at = self.silent_since = at
        self.has_left = has_left
        self.accused_at: Instant | None = None


class PeerBook:
    """Acquaintances and graves by id; a node is in one of the two or in none. Beside them the dead of whoever let this node in."""

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
        """All remembered dead, oldest first."""
        return tuple(self._tombstones.values())

    @property
    def lost(self) -> list[Peer]:
        """Who was taken for dead, here or by the guardian of this node, the latest last: perhaps another half of the ring."""
        unknown = [node for node in self._inherited if node not in self.alive and node not in self._tombstones]
        return [
            *(self._inherited[node][0] for node in unknown),
            *(tombstone.peer for tombstone in self._tombstones.values() if not tombstone.has_left),
        ]

    def inherit(self, lost: tuple[Peer, ...], now: Instant) -> None:
        """The guardian that let this node in tells whom it has lost; replaces what an earlier one told."""
        self._inherited = {peer.node: (peer, now) for peer in lost}

    def get(self, node: NodeId) -> KnownPeer | None:
        """A live peer."""
        return self.alive.get(node)

    def tombstone(self, node: NodeId) -> Tombstone | None:
        """A dead one."""
        return self._tombstones.get(node)

    def is_dead(self, peer: Peer, refutations: int) -> bool:
        """Whether this life, having refuted so often, is known to be over."""
        tombstone = self._tombstones.get(peer.node)
        return tombstone is not None and (peer.incarnation, refutations) <= (
            tombstone.peer.incarnation,
            tombstone.refutations,
        )

    def meet(self, peer: Peer, refutations: int, now: Instant) -> KnownPeer:
        """A peer is alive, from its own mouth. Not to be called while `is_dead`."""
        self._tombstones.pop(peer.node, None)
        known = self.alive.get(peer.node)
        if known is None:
            known = self.alive[peer.node] = KnownPeer(peer, refutations, now)
            return known
        if known.peer != peer:
            known.peer = peer
        known.refutations = max(known.refutations, refutations)
        known.last_received_at = now
        return known

    def mark_dead(self, peer: Peer, refutations: int, now: Instant, *, has_left: bool) -> None:
        """This life is over."""
        self.alive.pop(peer.node, None)
        self._tombstones.pop(peer.node, None)
        if len(self._tombstones) >= MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        self._tombstones[peer.node] = Tombstone(peer, refutations, now, has_left)

    def forget(self, node: NodeId) -> None:
        """Drop a live peer that no table needs."""
        self.alive.pop(node, None)

    def forget_tombstones(self, older_than: int) -> None:
        """Drop the dead that were buried, or heard of, before this instant."""
        for node in [node for node, tombstone in self._tombstones.items() if tombstone.at < older_than]:
            del self._tombstones[node]
        for node in [node for node, (_, at) in self._inherited.items() if at < older_than]:
            del self._inherited[node]

    def violations(self) -> list[str]:
        """A node lives or is dead; each stands under its own id; graves are bounded."""
        found = [f"book: {node.short} lives and has a grave" for node in self.alive if node in self._tombstones]
        for node, known in self.alive.items():
            if known.peer.node != node or min(known.refutations, known.rtt_ns, known.variation_ns) < 0:
                found.append(f"book: what is known of {node.short} makes no sense")
        if len(self._tombstones) > MAX_TOMBSTONES:
            found.append(f"book: {len(self._tombstones)} graves, at most {MAX_TOMBSTONES}")
        return found
