"""Routes against the truth: I4 and I5 of the overlay.

Source: the project's overlay specification §2 and §4.
"""

from collections.abc import Sequence
from itertools import pairwise

from agiledart_kernel.node_id import NodeId, ring_distance, shared_prefix
from agiledart_overlay.overlay_machine import OverlayMachine


def root_of(ids: Sequence[NodeId], key: NodeId, bits: int) -> NodeId:
    """Return the id closest to a key; the smaller one at equal distance."""
    return min(ids, key=lambda node: (ring_distance(node, key, bits), node))


def walk(machines: dict[NodeId, OverlayMachine], source: NodeId, key: NodeId, limit: int = 64) -> list[NodeId]:
    """Return the nodes that a message visits by the tables as they are, without time passing.

    A dead entry of a routing table is skipped, like a silent hop; a dead leaf ends the walk.
    """
    path: list[NodeId] = [source]
    silent: dict[NodeId, None] = {}
    while len(path) + len(silent) <= limit:
        here = machines[path[-1]]
        hop = here.next_hop(key, silent)
        if hop is None:
            return path
        if hop.node not in machines and hop.node not in here.leaf_set:
            silent[hop.node] = None
            continue
        path.append(hop.node)
        if hop.node not in machines:
            return path
    return path


def route_violations(
    machines: Sequence[OverlayMachine], keys: Sequence[NodeId], sources: Sequence[NodeId], bits: int, digit_bits: int
) -> list[str]:
    """Return violations of I4, each route ends at the closest live node, and I5, it has no loop. Valid when the ring is quiet."""
    by_id = {machine.me.node: machine for machine in machines}
    ids = sorted(by_id)
    violations = []
    for key, source in zip(keys, sources, strict=True):
        path = walk(by_id, source, key)
        want = root_of(ids, key, bits)
        if path[-1] != want:
            violations.append(f"I4: {key:x} from {source.short} ends at {path[-1].short}, not at {want.short}")
        if len(path) != len(dict.fromkeys(path)):
            violations.append(f"I5: {key:x} from {source.short} visits a node twice")
        violations.extend(_hop_violations(by_id, path, key, bits, digit_bits))
    return violations


def _hop_violations(
    machines: dict[NodeId, OverlayMachine], path: list[NodeId], key: NodeId, bits: int, digit_bits: int
) -> list[str]:
    """Return hops that neither share more digits with the key nor are closer to it."""
    violations = []
    for here, there in pairwise(path):
        gained = shared_prefix(there, key, bits, digit_bits) > shared_prefix(here, key, bits, digit_bits)
        closer = (ring_distance(there, key, bits), there) < (ring_distance(here, key, bits), here)
        if not gained and not closer and here in machines:
            violations.append(f"I5: hop {here.short} to {there.short} brings {key:x} no nearer")
    return violations
