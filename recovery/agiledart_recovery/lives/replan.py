"""The plan of the next life: survivors stay, lost instances go to others, numbers and owners of key groups stay. Pure functions.

Who takes over is part of the register's value before anybody acts, so claims need no order of their own.
"""

from collections.abc import Callable, Sequence

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.value import Assignment, Plan, Value


def heirs(value: Value, lost: Assignment, room: Sequence[Peer]) -> list[Peer]:
    """Who may take an instance over, best first: the ring successor (first of `room`), holders of its fragments, the others."""
    holders = {holder: None for element in value.saved_of(lost.party).chain for holder in element.holders}
    behind = [peer for peer in room[1:] if peer.node in holders]
    others = [peer for peer in room[1:] if peer.node not in holders]
    return [*room[:1], *behind, *others]


def next_plan(
    value: Value, is_there: Callable[[NodeId], bool], room: Sequence[Peer], newest: Callable[[Peer], Peer]
) -> tuple[Plan | None, tuple[NodeId, ...]]:
    """The plan of the next life; without one, which hosts are missing: pinned ones, or any when there is no room at all.

    Args:
        is_there: whether a node can be reached and has not been silent.
        room: nodes that could take over an instance, best first.
        newest: the newest handle of a node: a plan names lives of hosts, and a host of a later life refuses it.
    """
    missing: dict[NodeId, None] = {}
    made: list[Assignment] = []
    load: dict[NodeId, int] = {}
    for each in value.plan.assignments:
        if is_there(each.host.node):
            load[each.host.node] = load.get(each.host.node, 0) + 1
    for each in value.plan.assignments:
        if is_there(each.host.node):
            made.append(msgspec.structs.replace(each, host=newest(each.host)))
            continue
        there = [peer for peer in heirs(value, each, room) if is_there(peer.node)]
        if each.is_pinned or not there:
            missing[each.host.node] = None
            continue
        heir = min(there, key=lambda peer: load.get(peer.node, 0))
        load[heir.node] = load.get(heir.node, 0) + 1
        made.append(msgspec.structs.replace(each, host=newest(heir)))
    if missing:
        return None, tuple(missing)
    return msgspec.structs.replace(value.plan, assignments=tuple(made)), ()
