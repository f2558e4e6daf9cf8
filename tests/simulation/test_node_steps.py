"""Steps of a whole node."""

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_node.context.config import NodeConfig
from agiledart_simulation.world.node_ring import NodeRing


def test_a_bug_in_a_part_costs_the_ring_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The effects of the step are those of the next one: without its timers a node would answer and admit no other."""
    ring = NodeRing(3, 2, NodeConfig())
    assert ring.join_all()
    ring.world.run_for(3 * SECOND)
    survivor = ring.machine("a2")
    with monkeypatch.context() as patch:
        patch.setattr(survivor.schedulers, "neighbours_changed", lambda: 1 // 0)
        ring.crash("a1")
        with pytest.raises(ZeroDivisionError):
            ring.world.run_for(3 * SECOND)
    ring.world.run_for(60 * SECOND)
    timers = survivor.overlay._view._timers
    assert timers
    assert all(at > ring.world.now for at in timers.values()), timers
