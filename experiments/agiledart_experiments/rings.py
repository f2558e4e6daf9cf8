"""Rings for experiments, built by real joins and observed from outside."""

from collections.abc import Callable

from agiledart_experiments import huge_pages
from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.protocol import OverlayMessage
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids

JOINS_PER_SECOND = 400
PLANE = NetworkConfig(base_ns=50_000, span_ns=40 * MILLISECOND, jitter_ns=0)
"""Nodes are points in the unit square, 40 ms across: distance decides, as in the published simulations."""


class Meter(Codec[OverlayMessage]):
    """Codec that counts the messages and bytes that it encodes."""

    def __init__(self) -> None:
        super().__init__(OverlayMessage)
        self.messages = self.bytes = 0

    def encode(self, message: OverlayMessage) -> bytes:
        """Encode a message and count it."""
        raw = super().encode(message)
        self.messages += 1
        self.bytes += len(raw)
        return raw


def built_ring(
    nodes: int,
    seed: int,
    progress: Callable[[str], None],
    config: OverlayConfig | None = None,
    limit_s: int = 300,
    codec: Codec[OverlayMessage] | None = None,
) -> OverlayRing:
    """Build a ring of `nodes` nodes, each of which joins through a random member; return when all leaf sets are correct.

    Raises RuntimeError when a leaf set is still wrong after `limit_s` virtual seconds.
    """
    ring = OverlayRing(seed, config or OverlayConfig.simulation(nodes), PLANE, codec=codec)
    random = RandomStream(seed, "build")
    ids = simulated_ids(seed, nodes)
    ring.start(ids[0], ())
    world = ring.world
    for index, node in enumerate(ids[1:], start=1):
        world.run_for(SECOND // JOINS_PER_SECOND)
        ring.start(node, [ids[random.index(index)], ids[random.index(index)], ids[0]])
        if index % 500 == 0:
            huge_pages.gather()
            progress(f"{index:,} of {nodes:,} nodes started, virtual time {world.now / SECOND:.0f} s")
    run_until_stable(ring, limit_s)
    return ring


def run_until_stable(ring: OverlayRing, limit_s: int) -> float:
    """Advance virtual time until every leaf set is correct; return the virtual seconds elapsed."""
    started = ring.world.now

    def is_right() -> bool:
        return not leaf_violations(ring.machines, ring.config.leaf_count)

    if not ring.world.run_until(is_right, limit_s * SECOND, SECOND // 4):
        wrong = leaf_violations(ring.machines, ring.config.leaf_count)
        raise RuntimeError(f"after {limit_s} virtual seconds {len(wrong)} leaf sets are wrong: {wrong[0]}")
    return (ring.world.now - started) / SECOND
