"""Leaf sets and tables against the truth: invariants I1 to I3 of the overlay.

Source: the project's overlay specification §2.
"""

from collections.abc import Sequence

from agiledart_kernel.node_id import NodeId, digit, shared_prefix
from agiledart_overlay.machine import OverlayMachine


def table_violations(machines: Sequence[OverlayMachine], bits: int, digit_bits: int) -> list[str]:
    """I1: every entry stands in its row and column. I3: nobody is in its own tables. Holds always."""
    found = []
    for machine in machines:
        me = machine.me.node
        for (row, column), candidates in machine.routing_table.items():
            for peer in candidates:
                same_row = shared_prefix(me, peer.node, bits, digit_bits) == row
                if not same_row or digit(peer.node, row, bits, digit_bits) != column:
                    found.append(f"I1: {peer.node.short} in slot {row},{column} of {me.short}")
        tables = (*machine.leaf_set.members, *machine.routing_table, *machine.neighbourhood)
        if any(peer.node == me for peer in tables):
            found.append(f"I3: {me.short} is in its own tables")
    return found


def true_leaves(ids: Sequence[NodeId], index: int, half: int) -> tuple[list[NodeId], list[NodeId]]:
    """The nearest ids each way round from the one at `index` of a sorted list."""
    count = len(ids)
    reach = min(half, count - 1)
    clockwise = [ids[(index + step) % count] for step in range(1, reach + 1)]
    return clockwise, [ids[(index - step) % count] for step in range(1, reach + 1)]


def leaf_violations(machines: Sequence[OverlayMachine], leaf_count: int) -> list[str]:
    """I2: each leaf set is the true nearest live nodes each way. Holds when the ring is quiet."""
    ordered = sorted(machines, key=lambda machine: machine.me.node)
    ids = [machine.me.node for machine in ordered]
    found = []
    for index, machine in enumerate(ordered):
        clockwise, counterclockwise = true_leaves(ids, index, leaf_count // 2)
        if not machine.joined:
            found.append(f"I2: {machine.me.node.short} is no member")
        for name, have, want in (
            ("clockwise", machine.leaf_set.clockwise, clockwise),
            ("counterclockwise", machine.leaf_set.counterclockwise, counterclockwise),
        ):
            nodes = [peer.node for peer in have]
            if nodes != want:
                missing = [node.short for node in want if node not in nodes]
                extra = [node.short for node in nodes if node not in want]
                found.append(f"I2: {machine.me.node.short} {name}: missing {missing}, extra {extra}")
    return found


def stale_violations(machines: Sequence[OverlayMachine], incarnations: dict[NodeId, int]) -> list[str]:
    """No leaf is an old life of a node: incarnations are the true ones. Holds when the ring is quiet."""
    return [
        f"life: {machine.me.node.short} knows {peer.node.short} with incarnation {peer.incarnation}"
        for machine in machines
        for peer in machine.leaf_set.members
        if incarnations.get(peer.node) != peer.incarnation
    ]
