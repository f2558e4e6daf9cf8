"""Exceptions that the ledger of deaths grants."""

from agiledart_kernel.instants import SECOND
from agiledart_overlay.wire.effects import LeaveCompleted, PeerFailed
from agiledart_simulation.checkers.death_ledger import DeathLedger
from tests.simulation.bench import built_ring


def test_a_live_node_is_not_dead_and_a_departed_one_is() -> None:
    ring, ids = built_ring(3)
    ledger = DeathLedger(ring.world, lambda _a, _b: True)
    me, other = (ring.world.nodes[node].peer for node in ids[:2])
    ledger.on_effect(me, PeerFailed(other, "silent"))
    assert [line.split()[0] for line in ledger.violations] == ["dead_1:"]
    ledger.violations.clear()
    ledger.on_effect(other, LeaveCompleted())
    ledger.on_effect(me, PeerFailed(other, "silent"))
    assert ledger.violations == []
    ring.world.run_for(40 * SECOND)
    assert ledger.stale_violations() != []


def test_dead_nodes_may_reappear_only_while_links_hold_their_last_messages() -> None:
    ring, ids = built_ring(2)
    watcher, dead = (ring.world.nodes[node].peer for node in ids)
    calm = [False]
    ledger = DeathLedger(ring.world, lambda _a, _b: calm[0])
    ledger.on_death(dead.incarnation_key)
    for _ in range(2):
        ledger.on_effect(watcher, PeerFailed(dead, "silent"))
    assert ledger.violations == []
    calm[0] = True
    ledger.on_effect(watcher, PeerFailed(dead, "silent"))
    assert "had come back" in ledger.violations[0]
