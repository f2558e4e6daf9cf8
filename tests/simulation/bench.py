"""Rings for the simulation tests."""

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.checkers.leaf_sets import leaf_violations, stale_violations
from agiledart_simulation.checkers.periodic_checks import machine_violations
from agiledart_simulation.checkers.routing import root_of, route_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids
from tests.machine_checks import look_at


def built_ring(
    count: int, seed: int = 1, network: NetworkConfig | None = None, settle_s: int = 3, is_judged: bool = True
) -> tuple[OverlayRing, list[NodeId]]:
    """A ring made by real joins, each message encoded and decoded on its way, and its ids in the order of joining.

    Args:
        is_judged: machines are asked now and then what does not hold of them; not where a mistake was planted in them.
    """
    ring = OverlayRing(seed, network=network, checks_wire=True)
    if is_judged:
        look_at(ring.world, every=31)
    ids = simulated_ids(seed, count)
    assert ring.build(ids, SECOND // 20)
    ring.world.run_for(settle_s * SECOND)
    return ring, ids


def all_violations(ring: OverlayRing, routes: int = 100) -> list[str]:
    """Everything that must hold of a quiet ring."""
    config, machines = ring.config, ring.machines
    random = RandomStream(ring.world.seed, "checks")
    keys = [NodeId(random.bits(ID_BITS)) for _ in range(routes)]
    sources = [random.choice(machines).me.node for _ in keys]
    lives = {node: life.peer.incarnation for node, life in ring.world.nodes.items()}
    return [
        *leaf_violations(machines, config.leaf_count),
        *machine_violations(machines),
        *stale_violations(machines, lives),
        *route_violations(machines, keys, sources, ID_BITS, config.digit_bits),
    ]


def lookups(ring: OverlayRing, count: int, wait_s: int = 3) -> list[str]:
    """Send messages to random keys from random members; return messages that did not arrive exactly once at the closest
    member.
    """
    random = RandomStream(ring.world.seed, "lookups", len(ring.delivered))
    members = ring.members
    keys = [NodeId(random.bits(ID_BITS)) for _ in range(count)]
    ring.delivered.clear()
    for key in keys:
        ring.route(random.choice(members), key, b"hello")
    ring.world.run_for(wait_s * SECOND)
    wrong = []
    for key in keys:
        at = [peer.node for peer, delivered in ring.delivered if delivered.key == key]
        if at != [root_of(members, key, ID_BITS)]:
            wrong.append(f"{key.short} at {[node.short for node in at]}")
    return wrong
