"""Crashes, restarts, pauses, losses and cuts: detection times, and that the ring is right again."""

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.wire.effects import PeerLeft
from agiledart_overlay.wire.events import LeaveRing, WatchPeer
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing
from tests.simulation.bench import all_violations, built_ring, lookups


def declared(ring: OverlayRing, node: NodeId, since: int) -> list[float]:
    """Seconds after which each other member declared a node dead."""
    return sorted((at - since) / SECOND for at, _, effect in ring.failures if effect.peer.node == node)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
@pytest.mark.parametrize("silent", [True, False])
def test_a_dead_node_is_declared_in_time(count: int, silent: bool) -> None:
    """Loss of power within 3 s, a killed process well under that, at every other member."""
    for seed in range(5):
        ring, ids = built_ring(count, seed)
        ring.world.run_for(seed * 137 * MILLISECOND)
        since = ring.world.now
        ring.world.crash(ids[seed % count], silent=silent)
        ring.world.run_for(5 * SECOND)
        times = declared(ring, ids[seed % count], since)
        assert len(times) == count - 1
        assert times[-1] < (3.0 if silent else 1.6)
        assert len(ring.failures) == count - 1, "no other node was declared dead"
        assert all_violations(ring) == []


def test_dead_nodes_are_detected_under_loss() -> None:
    """5 % loss: 95 of 100 declarations within 3.5 s, and no false one."""
    times: list[float] = []
    for seed in range(12):
        ring, ids = built_ring(8, seed, NetworkConfig(loss=0.05))
        since = ring.world.now
        ring.world.crash(ids[2], silent=True)
        ring.world.run_for(8 * SECOND)
        times.extend(declared(ring, ids[2], since))
        assert {effect.peer.node for _, _, effect in ring.failures} == {ids[2]}
    times.sort()
    assert len(times) == 12 * 7
    assert times[int(0.95 * len(times))] < 3.5


@pytest.mark.parametrize("adjacent", [3, 11])
def test_adjacent_nodes_that_crash_at_once_are_detected(adjacent: int) -> None:
    """Up to half a leaf set less one: the leaf sets close over the gap."""
    ring, _ = built_ring(40, 2)
    for node in ring.members[7 : 7 + adjacent]:
        ring.world.crash(node, silent=True)
    assert ring.world.run_until(lambda: not leaf_violations(ring.machines, 24), 4 * SECOND)
    ring.world.run_for(30 * SECOND)  # tables far away find their dead in turn, or when they are used
    assert all_violations(ring) == []
    assert lookups(ring, 50) == []


@pytest.mark.parametrize(("count", "which"), [(1, "random"), (3, "random"), (12, "random"), (12, "adjacent")])
def test_leaf_sets_are_right_soon_after_deaths(count: int, which: str) -> None:
    """However many lose power at once: detection and a few round trips, not the turns of periodic exchanges."""
    ring, ids = built_ring(100, 1)
    for node in ids[:count] if which == "random" else ring.members[20 : 20 + count]:
        ring.world.crash(node, silent=True)
    assert ring.world.run_until(lambda: not leaf_violations(ring.machines, 24), 4 * SECOND)


@pytest.mark.parametrize("down_ms", [0, 100, 700, 1_500, 4_000])
def test_a_killed_node_returns_with_its_id(down_ms: int) -> None:
    """Before, while and after the others notice: back in the ring within 5 s of its restart, with its new incarnation
    known everywhere.
    """
    ring, ids = built_ring(5)
    ring.world.crash(ids[2])
    ring.world.run_for(down_ms * MILLISECOND)
    started = ring.world.now
    peer = ring.start(ids[2], [ids[0], ids[4]])
    assert peer.incarnation == 2
    assert ring.world.run_until(lambda: ids[2] in ring.members, 5 * SECOND)
    assert (ring.world.now - started) < 5 * SECOND
    ring.world.run_for(3 * SECOND)
    assert all_violations(ring) == []
    dead = {(effect.peer.node, effect.peer.incarnation) for _, _, effect in ring.failures}
    assert dead == {(ids[2], 1)}, "the old life is declared dead, the new one is not"
    others = {peer.node for _, peer, _ in ring.failures}
    assert others == set(ids) - {ids[2]}, "every other member tells its node that the old life is over"


def test_the_founder_returns() -> None:
    """A restarted founder joins through the others like any node."""
    ring, ids = built_ring(3)
    ring.world.crash(ids[0])
    ring.world.run_for(SECOND)
    ring.start(ids[0], ids[1:])
    ring.world.run_for(4 * SECOND)
    assert all_violations(ring) == []


@pytest.mark.parametrize("pause_ms", [200, 600, 1_000])
def test_a_short_pause_kills_nobody(pause_ms: int) -> None:
    ring, ids = built_ring(8)
    ring.world.pause(ids[3], pause_ms * MILLISECOND)
    ring.world.run_for(10 * SECOND)
    assert ring.failures == []
    assert all_violations(ring) == []


def test_a_long_sleeper_accuses_no_node_and_returns() -> None:
    """Declared dead while it slept, it refutes; and it does not take its own sleep for the death of all others."""
    ring, ids = built_ring(8)
    ring.world.pause(ids[3], 12 * SECOND)
    ring.world.run_for(20 * SECOND)
    assert {effect.peer.node for _, _, effect in ring.failures} == {ids[3]}
    assert all(peer.node != ids[3] for _, peer, _ in ring.failures)
    assert all_violations(ring) == []


def test_one_isolated_node_returns() -> None:
    """Both sides hold each other for dead; when the partition heals they find each other by themselves."""
    ring, ids = built_ring(8)
    ring.world.network.partition((ids[3],))
    ring.world.run_for(15 * SECOND)
    assert len(ring.machine(ids[3]).leaf_set) == 0
    assert all(ids[3] not in ring.machine(node).leaf_set for node in ids if node != ids[3])
    ring.world.network.heal()
    assert ring.world.run_until(lambda: not all_violations(ring, 10), 20 * SECOND)


def test_two_halves_merge() -> None:
    ring, ids = built_ring(12, 3)
    ring.world.network.partition(tuple(ids[:6]))
    ring.world.run_for(30 * SECOND)
    assert all(len(machine.leaf_set) == 5 for machine in ring.machines)
    ring.world.network.heal()
    assert ring.world.run_until(lambda: not all_violations(ring, 10), 40 * SECOND)


def test_a_broken_link_between_two_nodes_kills_neither() -> None:
    """Others still reach both ends: indirect probes decide."""
    ring, _ = built_ring(6)
    members = ring.members
    ring.world.network.clog(members[0], members[1])
    ring.world.network.clog(members[1], members[0])
    ring.world.run_for(30 * SECOND)
    assert ring.failures == []


def test_leaving_is_no_failure() -> None:
    left: list[tuple[NodeId, PeerLeft]] = []
    ring, ids = built_ring(6)
    effects = ring.world._on_effect
    assert effects is not None
    ring.world._on_effect = lambda peer, effect: (
        left.append((peer.node, effect)) if isinstance(effect, PeerLeft) else effects(peer, effect)
    )
    ring.world.inject(ids[2], LeaveRing())
    assert ring.world.run_until(lambda: bool(ring.left), 2 * SECOND)
    ring.world.crash(ids[2])
    ring.world.run_for(5 * SECOND)
    assert {node for node, _ in left} == set(ids) - {ids[2]}
    assert ring.failures == []
    assert all_violations(ring) == []


def test_a_sleeping_node_told_to_leave_leaves_after_the_ring_closed_over_it() -> None:
    """It joins again, since what it keeps may be nowhere else, and goes then; it does not stay a member for ever."""
    ring, ids = built_ring(7)
    ring.world.pause(ids[2], 4 * SECOND)
    ring.world.inject(ids[2], LeaveRing(), delay_ns=2 * SECOND)
    ring.world.run_for(4 * SECOND - 1)
    assert all(ids[2] not in ring.machine(node).leaf_set for node in ids if node != ids[2])
    assert ring.world.run_until(lambda: bool(ring.left), ring.config.leave_timeout_ns)
    ring.world.crash(ids[2])
    ring.world.run_for(5 * SECOND)
    assert all_violations(ring) == []


def test_a_watched_non_member_is_declared_dead() -> None:
    """In a ring of 40 most nodes are in few leaf sets; a watched one is probed all the same."""
    ring, _ = built_ring(40, 2)
    members = ring.members
    watcher, watched = members[0], members[20]
    assert watched not in ring.machine(watcher).leaf_set
    ring.world.inject(watcher, WatchPeer(ring.world.nodes[watched].peer))
    ring.world.run_for(2 * SECOND)
    since = ring.world.now
    ring.world.crash(watched, silent=True)
    ring.world.run_for(3 * SECOND + 200 * MILLISECOND)
    assert watcher in {peer.node for _, peer, effect in ring.failures if effect.peer.node == watched}
    assert since < ring.world.now
