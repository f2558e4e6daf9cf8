"""What it costs to forward through a peer: one number from round trip, hops, congestion, zone and load.

The round trip counts in units of the median round trip to the peers that a node knows, so that the weights mean the same in a
room and across continents. With all weights zero this is Pastry's own choice by proximity.

Source: the project's overlay specification §3; [Pastry proximity] (choice by round trip).
"""

from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.config import OverlayConfig

PERMILLE = 1_000


def hops_between(a: Peer, b: Peer) -> int:
    """Hops of the network between two nodes: 0 within a host, 1 within a zone, else 2. A stand-in: nobody counts routers here."""
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
    """cost(u, v), the smaller the better; at least 0.

    Args:
        config: the four weights.
        rtt_ns: smoothed or guessed round trip.
        reference_rtt_ns: median round trip to the peers that the owner knows; positive.
        hops: between the two in the network.
        congestion_permille: how much of the link between them is in use, 0 to 1000.
        leaves_zone: whether the two are in different zones.
        load_permille: how much of the peer's capacity is in use, 0 to 1000.
    """
    cost = rtt_ns / reference_rtt_ns + config.hop_weight * hops
    if leaves_zone:
        cost += config.zone_weight
    if congestion_permille:
        cost += config.congestion_weight * congestion_permille / PERMILLE
    if load_permille:
        cost += config.load_weight * load_permille / PERMILLE
    return cost


def median(values: list[int]) -> int:
    """The middle of some positive figures, the upper one of two; 1 when there is none."""
    return sorted(values)[len(values) // 2] if values else 1
