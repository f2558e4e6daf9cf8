"""Distances to peers, costs of forwarding through them, and this node's place in the space of latencies.

A measured round trip counts; else it is guessed by coordinates, unless these are too uncertain; else it is the median.

The cost of forwarding through a peer is one number from round trip, hops, congestion, zone and load. The round trip counts in
units of the median round trip to the peers that a node knows, so that the weights mean the same in a room and across continents.
With all weights zero this is Pastry's own choice by proximity.

Sources: [Vivaldi], see `coordinates`; [Pastry proximity] (choice by round trip); the project's overlay specification §3.
"""

from collections.abc import Sequence

from agiledart_kernel.coordinates import ORIGIN, Coordinate, estimated_rtt_ns, refined
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.state.peer_book import KnownPeer, PeerBook
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.messages import Sighting, Vitals

_PERMILLE = 1_000

_MAX_SAMPLES = 48
"""Measured peers from which a new node finds its coordinate."""
_USABLE_ERROR = 500_000
"""A guess by coordinates whose error may exceed this, in millionths, is not used."""


class Distances:
    """Distances from one node to its peers.

    Attributes:
        vitals: this node's report on acknowledgements: its coordinate and its load.
        is_locating: a new node only collects samples: `sample` then takes no Vivaldi step, and `locate` replays them.
    """

    __slots__ = ("_book", "_config", "_me", "_random", "_reference_rtt_ns", "is_locating", "vitals")

    def __init__(self, me: Peer, config: OverlayConfig, book: PeerBook, random: RandomStream) -> None:
        self._me, self._config, self._book, self._random = me, config, book, random
        self.vitals = Vitals()
        self.is_locating = False
        self._reference_rtt_ns = 1

    def guessed_rtt_ns(self, coordinate: Coordinate) -> int | None:
        """Return the round trip to a place; None when the coordinates of either node are too uncertain."""
        mine = self.vitals.coordinate
        if mine.error > _USABLE_ERROR or coordinate.error > _USABLE_ERROR:
            return None
        return estimated_rtt_ns(mine, coordinate)

    def cost(self, peer: Peer) -> float:
        """Return the cost of forwarding through a peer: measured, else guessed by coordinates, else by the median distance."""
        known = self._book.alive.get(peer.node)
        return self._cost(peer, 0, 0, 0) if known is None else self.cost_of(known, known.rtt_ns or self.rtt_ns(known))

    def rtt_ns(self, known: KnownPeer) -> int:
        """Return the round trip to a peer, measured, else guessed; 0 when neither is possible."""
        if known.rtt_ns or known.vitals is None:
            return known.rtt_ns
        return self.guessed_rtt_ns(known.vitals.coordinate) or 0

    def cost_of(self, known: KnownPeer, rtt_ns: int) -> float:
        """Return the cost of forwarding through a peer at this distance; 0: the median distance."""
        load_permille = known.vitals.load_permille if known.vitals is not None else 0
        return self._cost(known.peer, rtt_ns, known.congestion_permille, load_permille)

    def renew_reference(self) -> None:
        """Set the reference round trip to the median of the measured ones; it also stands for unknown ones."""
        self._reference_rtt_ns = median([known.rtt_ns for known in self._book if known.rtt_ns])

    def cost_at(self, peer: Peer, rtt_ns: int) -> float:
        """Return the cost of a peer of which only the distance is known."""
        return self._cost(peer, rtt_ns, 0, 0)

    def _cost(self, peer: Peer, rtt_ns: int, congestion_permille: int, load_permille: int) -> float:
        reference, me = self._reference_rtt_ns, self._me
        return forwarding_cost(
            self._config,
            rtt_ns or reference,
            reference,
            hops_between(me, peer),
            congestion_permille,
            peer.zone != me.zone,
            load_permille,
        )

    def guessed_cost(self, sighting: Sighting) -> float | None:
        """Return the cost of a peer known by gossip only; None when its coordinate is missing or too uncertain."""
        if sighting.coordinate is None:
            return None
        rtt = self.guessed_rtt_ns(sighting.coordinate)
        return self.cost_at(sighting.peer, rtt) if rtt is not None else None

    def sample(self, known: KnownPeer, took_ns: int, vitals: Vitals | None) -> bool:
        """Take a measured round trip and the peer's vitals; return False when its place is invalid."""
        known.measure(min(took_ns, 10 * self._config.probe_timeout_ns))
        if vitals is None:
            return True
        if not vitals.coordinate.is_sane:
            return False
        known.vitals = vitals
        if not self.is_locating:
            self._move(((vitals.coordinate, known.rtt_ns),), 1)
        return True

    def _move(self, samples: Sequence[tuple[Coordinate, int]], passes: int) -> None:
        """Move by steps of Vivaldi."""
        mine = self.vitals.coordinate
        between = self._random.between
        direction = (1.0, 0.0, 0.0)
        if mine.error == ORIGIN.error:
            direction = (between(-1.0, 1.0), between(-1.0, 1.0), between(0.1, 1.0))
        self.vitals = Vitals(refined(mine, samples, passes, direction), self.vitals.load_permille)

    def set_load(self, load_permille: int) -> None:
        """Set the load that the node above reports."""
        self.vitals = Vitals(self.vitals.coordinate, max(0, min(_PERMILLE, load_permille)))

    def set_congestion(self, node: NodeId, congestion_permille: int) -> None:
        """Set the use of a peer's link that the node above reports."""
        known = self._book.alive.get(node)
        if known is not None:
            known.congestion_permille = max(0, min(_PERMILLE, congestion_permille))

    def locate(self, passes: int) -> None:
        """Find this node's place from all its measurements so far, each taken several times.

        A new node has few measurements of nodes that know their places; one step for each would leave it half-way.
        """
        self.is_locating = False
        known = [known_peer for known_peer in self._book if known_peer.rtt_ns and known_peer.vitals is not None]
        samples = [
            (known_peer.vitals.coordinate, known_peer.rtt_ns) for known_peer in known if known_peer.vitals is not None
        ]
        if samples:
            self._move(samples[:_MAX_SAMPLES], passes)


def hops_between(a: Peer, b: Peer) -> int:
    """Return network hops between two nodes: 0 within a host, 1 within a zone, else 2. A stand-in: no routers are counted here."""
    if a.host and a.host == b.host:
        return 0
    return 1 if a.zone == b.zone else 2


def forwarding_cost(
    config: OverlayConfig,
    rtt_ns: int,
    reference_rtt_ns: int,
    hops: int,
    congestion_permille: int,
    leaves_zone: bool,
    load_permille: int,
) -> float:
    """Return cost(u, v), the smaller the better; at least 0.

    Args:
        config: the four weights.
        rtt_ns: smoothed or guessed round trip.
        reference_rtt_ns: median round trip to the peers that the owner knows; positive.
        hops: between the two in the network.
        congestion_permille: used share of the link between them, 0 to 1000.
        leaves_zone: whether the two are in different zones.
        load_permille: used share of the peer's capacity, 0 to 1000.
    """
    cost = rtt_ns / reference_rtt_ns + config.hop_weight * hops
    if leaves_zone:
        cost += config.zone_weight
    if congestion_permille:
        cost += config.congestion_weight * congestion_permille / _PERMILLE
    if load_permille:
        cost += config.load_weight * load_permille / _PERMILLE
    return cost


def median(values: list[int]) -> int:
    """Return the middle of some positive figures, the upper one of two; 1 when there is none."""
    return sorted(values)[len(values) // 2] if values else 1
