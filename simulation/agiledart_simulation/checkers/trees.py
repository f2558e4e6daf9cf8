"""Trees against the truth (tr_1): parent pointers form a tree with the root as its only sink, and every subscriber is in it.

Source: the project's overlay specification §8, last line.
"""

from collections.abc import Sequence

from agiledart_kernel.node_id import NodeId
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_simulation.checkers.routing import root_of


def loop_violations(machines: Sequence[OverlayMachine], topic: NodeId) -> list[str]:
    """Return nodes that are above themselves. Valid when the ring is quiet, and except for one heartbeat always."""
    parents = {machine.me.node: _parent(machine, topic) for machine in machines}
    violations = []
    for node in parents:
        seen = {node: None}
        here = parents[node]
        while here is not None and here in parents:
            if here in seen:
                violations.append(f"tr_1: {node.short} comes to a loop above itself for topic {topic.short}")
                break
            seen[here] = None
            here = parents[here]
    return violations


def tree_violations(machines: Sequence[OverlayMachine], topic: NodeId, bits: int, max_children: int) -> list[str]:
    """Return violations of tr_1 and what goes with it. Valid when the ring is quiet."""
    by_id = {machine.me.node: machine for machine in machines}
    members = [machine for machine in machines if topic in machine.scribe.topics]
    violations = loop_violations(machines, topic)
    root = root_of(sorted(by_id), topic, bits)
    if members and topic not in by_id[root].scribe.topics:
        violations.append(f"tr_1: {root.short} is responsible for topic {topic.short} and knows nothing of it")
    for machine in members:
        place, me = machine.scribe.topics[topic], machine.me.node
        if place.is_root != (me == root):
            violations.append(f"tr_1: {me.short} {'is' if place.is_root else 'is not'} the root of topic {topic.short}")
        if not place.is_attached:
            violations.append(f"tr_1: {me.short} has no parent for topic {topic.short}")
        parent = by_id.get(place.parent.node) if place.parent is not None else None
        if place.parent is not None and (parent is None or me not in _children(parent, topic)):
            violations.append(f"tr_1: {me.short} is no child of its parent {place.parent.node.short}")
        for child in place.children:
            if child not in by_id or _parent(by_id[child], topic) != me:
                violations.append(f"tr_1: {me.short} is not the parent of its child {child.short}")
    for machine in machines:
        count = sum(len(place.children) for place in machine.scribe.topics.values())
        if count > max_children and any(len(place.children) > 1 for place in machine.scribe.topics.values()):
            violations.append(f"tr_1: {machine.me.node.short} has {count} children, at most {max_children}")
    return violations


def _parent(machine: OverlayMachine, topic: NodeId) -> NodeId | None:
    place = machine.scribe.topics.get(topic)
    return place.parent.node if place is not None and place.parent is not None else None


def _children(machine: OverlayMachine, topic: NodeId) -> tuple[NodeId, ...]:
    place = machine.scribe.topics.get(topic)
    return tuple(place.children) if place is not None else ()
