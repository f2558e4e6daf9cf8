"""The lease that an admission gives is short; a beat may be longer. No undelivered key waits for the heartbeat."""

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids


@pytest.mark.parametrize("config", [OverlayConfig.lan(), OverlayConfig.paper(), OverlayConfig.simulation(1_600)])
def test_every_key_has_an_owner_at_all_times_once_the_ring_is_built(config: OverlayConfig) -> None:
    ring = OverlayRing(1, config)
    assert ring.build(simulated_ids(1, 12), 100 * MILLISECOND)
    ring.world.run_for(SECOND // 2)
    for _ in range(100):
        ring.world.run_for(100 * MILLISECOND)
        assert all(machine.claim(ring.world.now) is not None for machine in ring.machines)
