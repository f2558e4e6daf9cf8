"""The overlay specification §3: the cost of forwarding through a peer, and the tables' use of it."""

from dataclasses import replace

import pytest

from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.state.distances import forwarding_cost, hops_between, median
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.sightings import Sighting, Vitals

LAN = OverlayConfig.lan()
PURE = replace(LAN, hop_weight=0.0, congestion_weight=0.0, zone_weight=0.0, load_weight=0.0)


def test_section_3_each_term_of_the_cost() -> None:
    """2 ms where the median is 4: 0.5; two hops 0.2; half-used link 0.5; another zone 0.25; four fifths loaded 0.4."""
    assert forwarding_cost(LAN, 2_000_000, 4_000_000, 2, 500, True, 800) == pytest.approx(1.85)
    assert forwarding_cost(LAN, 2_000_000, 4_000_000, 0, 0, False, 0) == pytest.approx(0.5)


def test_section_3_all_weights_zero_is_pastry() -> None:
    assert forwarding_cost(PURE, 3_000_000, 4_000_000, 2, 1_000, True, 1_000) == 0.75


def test_section_3_the_reference_is_the_median() -> None:
    assert median([5, 1, 9]) == 5
    assert median([]) == 1


def test_section_7_virtual_nodes_of_one_host_are_no_hop_apart() -> None:
    here, there = Peer(NodeId(1), 1, host="a", zone="x"), Peer(NodeId(2), 1, host="a", zone="x")
    assert hops_between(here, there) == 0
    assert hops_between(here, replace_zone(there, "x", "b")) == 1
    assert hops_between(here, replace_zone(there, "y", "b")) == 2
    assert hops_between(Peer(NodeId(1)), Peer(NodeId(2))) == 1, "unknown hosts are not the same one"


def replace_zone(peer: Peer, zone: str, host: str) -> Peer:
    return Peer(peer.node, peer.incarnation, peer.name, peer.address, zone, host)


def view_of(config: OverlayConfig = LAN) -> View:
    view = View(Peer(NodeId(1 << 120), 1, zone="x"), config, RandomStream(1), lambda _: None)
    view.joined = True
    view.now = Instant(10**10)
    return view


def met(view: View, number: int, rtt_ns: int, zone: str = "x", load_permille: int = 0) -> Peer:
    peer = Peer(NodeId(number << 120), 1, zone=zone)
    view.meet(peer, 0, Vitals(load_permille=load_permille), Instant(view.now - rtt_ns))
    return peer


def test_section_3_a_slot_orders_its_candidates_by_cost_the_first_is_primary() -> None:
    view = view_of()
    far, near, middle = met(view, 0x51, 9_000_000), met(view, 0x52, 1_000_000), met(view, 0x53, 4_000_000)
    view.collect_garbage()
    assert view.routing_table.candidates(0, 5) == (near, middle, far)
    dearest = met(view, 0x54, 20_000_000)
    assert dearest.node not in view.routing_table
    assert dearest in [known.peer for known in view.book], "until the next tidying"


def test_section_3_another_zone_and_load_count_against_a_peer() -> None:
    view = view_of()
    local, foreign = met(view, 0x51, 4_000_000), met(view, 0x52, 4_000_000, zone="y")
    busy = met(view, 0x53, 4_000_000, load_permille=1_000)
    view.collect_garbage()
    assert view.routing_table.candidates(0, 5) == (local, foreign, busy)
    assert view.distances.cost(foreign) - view.distances.cost(local) == pytest.approx(0.25 + 0.1)
    assert view.distances.cost(busy) - view.distances.cost(local) == pytest.approx(0.5)
    view.book.alive[local.node].congestion_permille = 1_000
    view.collect_garbage()
    assert view.routing_table.candidates(0, 5) == (foreign, busy, local), (
        "a link in full use costs one median round trip"
    )


def test_section_3_round_trips_are_smoothed_by_an_eighth() -> None:
    view = view_of()
    peer = met(view, 0x51, 8_000_000)
    view.measure(peer.node, Instant(view.now - 16_000_000))
    assert view.book.alive[peer.node].rtt_ns == 9_000_000


def test_section_5_gossiped_nodes_are_contacted_only_if_clearly_cheaper() -> None:
    """Second stage: a stranger whose coordinate promises half the cost of the entry is probed, one of the same cost is not."""
    view = view_of(replace(LAN, neighbour_count=1))
    view.distances.vitals = Vitals(Coordinate(error=100_000))
    met(view, 0x51, 10_000_000)
    met(view, 0x61, 1_000_000)
    view.collect_garbage()
    view.distances.vitals = Vitals(Coordinate(error=100_000))
    effects = len(view.effects)
    same = Sighting(Peer(NodeId(0x52 << 120), 1, zone="x"), 0, Coordinate(x=9_900, error=100_000))
    unsure = Sighting(Peer(NodeId(0x53 << 120), 1, zone="x"), 0, Coordinate(x=3_000, error=900_000))
    nearer = Sighting(Peer(NodeId(0x54 << 120), 1, zone="x"), 0, Coordinate(x=3_000, error=100_000))
    peer_gossip = PeerGossip(view)
    for sighting, is_wanted in ((same, False), (unsure, False), (nearer, True)):
        assert peer_gossip.would_improve(sighting) == is_wanted
    assert peer_gossip.contact(nearer)
    assert len(view.effects) == effects + 1
    assert not peer_gossip.contact(nearer), "it was asked just now"
