"""Leaf sets against the truth: invariant I2 of the overlay. Each machine checks I1 and I3 itself, see `periodic_checks`.

Source: the project's overlay specification §2.
"""

from collections.abc import Sequence

from agiledart_kernel.node_id import NodeId
from agiledart_overlay.overlay_machine import OverlayMachine


def true_leaves(ids: Sequence[NodeId], index: int, half: int) -> tuple[list[NodeId], list[NodeId]]:
    """Return the nearest ids in each direction from the one at `index` of a sorted list."""
    count = len(ids)
    reach = min(half, count - 1)
    clockwise = [ids[(index + step) % count] for step in range(1, reach + 1)]
    return clockwise, [ids[(index - step) % count] for step in range(1, reach + 1)]


def leaf_violations(machines: Sequence[OverlayMachine], leaf_count: int) -> list[str]:
    """Return violations of I2: each leaf set has the nearest live nodes in each direction. Valid when the ring is quiet."""
    ordered = sorted(machines, key=lambda machine: machine.me.node)
    ids = [machine.me.node for machine in ordered]
    violations = []
    for index, machine in enumerate(ordered):
        clockwise, counterclockwise = true_leaves(ids, index, leaf_count // 2)
        if not machine.joined:
            violations.append(f"I2: {machine.me.node.short} is no member")
        for name, have, want in (
            ("clockwise", machine.leaf_set.clockwise, clockwise),
            ("counterclockwise", machine.leaf_set.counterclockwise, counterclockwise),
        ):
            nodes = [peer.node for peer in have]
            if nodes != want:
                missing = [node.short for node in want if node not in nodes]
                extra = [node.short for node in nodes if node not in want]
                violations.append(f"I2: {machine.me.node.short} {name}: missing {missing}, extra {extra}")
    return violations


def core_violations(core: Sequence[OverlayMachine], faulty: Sequence[NodeId], leaf_count: int) -> list[str]:
    """Return violations of I2 around broken nodes: without them, each healthy leaf set begins with the nearest healthy nodes."""
    ordered = sorted(core, key=lambda machine: machine.me.node)
    ids = [machine.me.node for machine in ordered]
    violations = []
    for index, machine in enumerate(ordered):
        sides = machine.leaf_set.clockwise, machine.leaf_set.counterclockwise
        for have, want in zip(sides, true_leaves(ids, index, leaf_count // 2), strict=True):
            nodes = [peer.node for peer in have if peer.node not in faulty]
            sure = min(len(want), leaf_count // 2 - len(faulty))
            if nodes[:sure] != want[:sure]:
                violations.append(f"I2 of the core: {machine.me.node.short} has {[node.short for node in nodes]}")
    return violations


def stale_violations(machines: Sequence[OverlayMachine], incarnations: dict[NodeId, int]) -> list[str]:
    """Return leaves that are old incarnations of a node; `incarnations` are the true ones. Valid when the ring is quiet."""
    return [
        f"life: {machine.me.node.short} knows {peer.node.short} with incarnation {peer.incarnation}"
        for machine in machines
        for peer in machine.leaf_set.members
        if incarnations.get(peer.node) != peer.incarnation
    ]
