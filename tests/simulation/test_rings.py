"""Rings built by real joins: every leaf set right, every look-up at the closest member."""

import math

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import JoinRing
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids
from tests.simulation.bench import all_violations, built_ring, lookups


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 40])
def test_a_ring_built_by_joins_is_correct(count: int) -> None:
    ring, _ = built_ring(count)
    assert all_violations(ring) == []
    assert lookups(ring, 20) == []
    assert ring.failures == []
    assert ring.join_failures == []


def test_join_paths_of_forty_nodes_have_several_hops() -> None:
    ring, _ = built_ring(40)
    assert lookups(ring, 200) == []
    hops = [len(delivered.path) - 1 for _, delivered in ring.delivered]
    assert max(hops) >= 2
    assert max(hops) <= math.ceil(math.log(40, 16)) + 1
    for peer, delivered in ring.delivered:
        assert delivered.path[0] == delivered.source
        assert delivered.path[-1].node == peer.node


@pytest.mark.slow
def test_a_ring_of_four_hundred_is_correct() -> None:
    ring = OverlayRing(1, OverlayConfig.simulation(400))
    assert ring.build(simulated_ids(1, 400), 20 * MILLISECOND)
    assert ring.world.run_until(lambda: not leaf_violations(ring.machines, 24), 60 * SECOND, SECOND)
    assert all_violations(ring, 500) == []
    assert lookups(ring, 300) == []
    hops = sorted(len(delivered.path) - 1 for _, delivered in ring.delivered)
    assert hops[-1] <= math.ceil(math.log(400, 16)) + 1
    assert 1.7 < sum(hops) / len(hops) < 2.5, "log16(400) is 2.16"


def test_twenty_joiners_at_once() -> None:
    """A flash crowd: all knock at the same two members; the range owners admit one at a time."""
    ring, ids = built_ring(5, seed=4)
    crowd = simulated_ids(99, 20)
    started = ring.world.now
    for node in crowd:
        ring.start(node, ids[:2])
    assert ring.world.run_until(lambda: len(ring.members) == 25, 20 * SECOND)
    assert ring.world.now - started < 10 * SECOND
    assert ring.world.run_until(lambda: not leaf_violations(ring.machines, 24), 10 * SECOND)
    assert all_violations(ring) == []
    assert ring.failures == []


def test_the_smallest_id_bootstraps_when_all_agents_start_at_once() -> None:
    """No node is a member yet: each knows the others as seeds, and one ring comes of it."""
    ring = OverlayRing(5, checks_wire=True)
    ids = simulated_ids(5, 6)
    for node in ids:
        ring.world.network.place(node)
    peers = [ring.world.start(Peer(node, 1)).peer for node in ids]
    for node in ids:
        ring.world.inject(node, JoinRing(tuple(peer for peer in peers if peer.node != node)))
    assert ring.world.run_until(lambda: len(ring.members) == 6, 20 * SECOND)
    ring.world.run_for(10 * SECOND)
    assert all_violations(ring) == []


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_nodes_join_under_loss(loss: float) -> None:
    ring = OverlayRing(7, network=NetworkConfig(loss=loss, duplicate=0.02, reorder=0.1))
    assert ring.build(simulated_ids(7, 20), SECOND // 10)
    assert ring.world.run_until(lambda: not leaf_violations(ring.machines, 24), 30 * SECOND)
    assert lookups(ring, 100, wait_s=15) == []
    assert ring.failures == [], "loss alone kills no node"


def test_a_join_fails_when_no_seed_answers() -> None:
    ring = OverlayRing(1)
    ids = simulated_ids(1, 2)
    ring.start(ids[0], ())
    ring.world.run_for(SECOND)
    ring.world.crash(ids[0], silent=True)
    ring.start(ids[1], [ids[0]])
    ring.world.run_for(40 * SECOND)
    ((peer, reason),) = ring.join_failures
    assert peer.node == ids[1]
    assert "no answer" in reason


def test_a_second_copy_of_a_node_is_refused() -> None:
    """The same id with the same incarnation is a copied state directory, or a node that runs twice."""
    ring, ids = built_ring(5)
    twin = ids[3]
    ring.world.crash(twin, silent=True)
    incarnation = ring.world.nodes[twin].peer.incarnation
    ring.world.nodes[twin].peer = Peer(twin, incarnation - 1)
    ring.start(twin, [ids[0]])
    assert ring.world.nodes[twin].peer.incarnation == incarnation
    ring.world.run_for(SECOND)
    ((_, reason),) = ring.join_failures
    assert "incarnation" in reason


def test_an_idle_ring_is_cheap() -> None:
    """The `lan` preset makes about 14 to 18 steps a node and second; the `simulation` preset of a large ring below 2."""
    ring, _ = built_ring(8)
    before = ring.world.events
    ring.world.run_for(10 * SECOND)
    assert (ring.world.events - before) / 8 / 10 < 20
