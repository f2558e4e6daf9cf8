"""The exact number of events and messages of two fixed scenarios: the cost of the protocol, without the noise of a clock.

A change of these figures is a change of cost. When it is meant, run `python -m tests.simulation.event_counts` and say in the
commit why the ring now says more, or less.
"""

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids

EXPECTED = {"join": (11873, 10633), "idle": (17924, 14924)}
"""Scenario → (events, messages)."""


def counts() -> dict[str, tuple[int, int]]:
    """Sixty nodes join one after the other; then they are idle for twenty seconds."""
    ring = OverlayRing(1, OverlayConfig.lan())
    assert ring.build(simulated_ids(1, 60), 50 * MILLISECOND)
    ring.world.run_for(5 * SECOND)
    joined = ring.world.events, ring.world.messages_sent
    ring.world.run_for(20 * SECOND)
    return {"join": joined, "idle": (ring.world.events - joined[0], ring.world.messages_sent - joined[1])}


if __name__ == "__main__":
    print(f"EXPECTED = {counts()}")
