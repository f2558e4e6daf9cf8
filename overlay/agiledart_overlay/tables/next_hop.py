"""Next hop of a key: one pure function with the three cases of Pastry.

Source: [Pastry] §2.3; exact wording in the project's overlay specification §4.
"""

from collections.abc import Container, Iterable
from enum import IntEnum

import msgspec

from agiledart_kernel.node_id import NodeId, ring_distance, shared_prefix
from agiledart_kernel.peer import Peer
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.routing_table import RoutingTable


class Rule(IntEnum):
    """Case that decided."""

    LEAF = 1
    TABLE = 2
    RARE = 3


class Hop(msgspec.Struct, frozen=True, gc=False):
    """Next node (None: deliver here) and the rule that chose it."""

    peer: Peer | None
    rule: Rule


def next_hop(
    owner: NodeId,
    key: NodeId,
    leaf_set: LeafSet,
    table: RoutingTable,
    neighbourhood: Iterable[Peer],
    bits: int,
    digit_bits: int,
    avoid: Container[NodeId] = (),
) -> Hop:
    """Return the next hop from `owner` to `key`.

        1. The leaf set covers the key: its member closest to the key, or the owner.
        2. A node that shares one digit more with the key, the cheapest of its slot.
        3. Any known node that shares at least as many digits and is closer; the one that shares most, then the closest.

    Args:
        avoid: nodes to pass over, for example those that did not answer.
    """
    if leaf_set.covers(key):
        return Hop(leaf_set.closest(key, avoid), Rule.LEAF)
    nearer = table.towards(key, avoid)
    if nearer is not None:
        return Hop(nearer, Rule.TABLE)
    shared = shared_prefix(owner, key, bits, digit_bits)
    best: Peer | None = None
    best_rank = (0, 0, 0)
    own_distance = ring_distance(owner, key, bits)
    for peer in (*leaf_set.members, *table, *neighbourhood):
        node = peer.node
        prefix = shared_prefix(node, key, bits, digit_bits)
        if prefix < shared:
            continue
        distance = ring_distance(node, key, bits)
        if distance >= own_distance or node in avoid:
            continue
        rank = (-prefix, distance, node)
        if best is None or rank < best_rank:
            best, best_rank = peer, rank
    return Hop(best, Rule.RARE)
