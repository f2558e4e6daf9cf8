"""A watched peer is known without being in a table; when it is met as a member it must come into the tables all the same."""

from agiledart_kernel.instants import SECOND
from agiledart_overlay.wire.events import WatchPeer
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from tests.simulation.bench import built_ring


def test_a_node_that_watches_all_has_complete_leaf_sets_after_a_rejoin() -> None:
    """Applications make nodes watch each other. State kept for a sleeper hid its peers from its tables."""
    ring, ids = built_ring(12)
    sleeper = ids[3]
    for node in ids:
        if node != sleeper:
            ring.world.inject(sleeper, WatchPeer(ring.world.nodes[node].peer))
    ring.world.run_for(SECOND)
    ring.world.pause(sleeper, 8 * SECOND)
    ring.world.run_for(30 * SECOND)
    assert leaf_violations(ring.machines, 24) == []
