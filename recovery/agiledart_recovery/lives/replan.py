"""The plan of the next life: survivors stay, lost instances go to others, numbers and owners of key groups stay. Pure functions.

Who takes over is part of the register's value before anybody acts, so claims need no order of their own.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.value import Assignment, Plan, Saved, Value


def heirs(value: Value, lost: Assignment, room: Sequence[Peer]) -> list[Peer]:
    """Who may take an instance over, best first: the ring successor of the lost host, holders of its fragments, the others."""
    if not room:
        return []
    heir = min(room, key=lambda peer: (ring_distance(peer.node, lost.host.node), peer.node))
    holders = {
        holder: None for saved in value.saved_for(lost.party) for element in saved.chain for holder in element.holders
    }
    rest = [peer for peer in room if peer.node != heir.node]
    return [
        heir,
        *(peer for peer in rest if peer.node in holders),
        *(peer for peer in rest if peer.node not in holders),
    ]


def unreachable_state(value: Value, lost: Assignment, is_there: Callable[[NodeId], bool]) -> tuple[NodeId, ...]:
    """Holders without whom the state of a party cannot be rebuilt; empty when enough of them are there."""
    return out_of_reach(value.saved_for(lost.party), lost, is_there)


def out_of_reach(saved: Iterable[Saved], lost: Assignment, is_there: Callable[[NodeId], bool]) -> tuple[NodeId, ...]:
    """Holders without whom what was saved of a party cannot be rebuilt; empty when enough of them are there."""
    for element in (element for each in saved for element in each.chain):
        gone = tuple(holder for holder in element.holders if holder and not is_there(holder))
        if sum(1 for holder in element.holders if holder) - len(gone) < element.m:
            return gone or (lost.host.node,)
    return ()


def next_plan(
    value: Value,
    is_there: Callable[[NodeId], bool],
    room: Sequence[Peer],
    newest: Callable[[Peer], Peer],
    unfit: Collection[NodeId] = (),
) -> tuple[Plan | None, tuple[NodeId, ...]]:
    """The plan of the next life; without one, who is missing: hosts that are pinned, holders of which a state needs one more, or
    any host when there is no room at all.

    Args:
        is_there: whether a node can be reached and has not been silent.
        room: nodes that could take over an instance, best first.
        newest: the newest handle of a node: a plan names lives of hosts, and a host of a later life refuses it.
        unfit: hosts that can be reached and could not enter the last life: what is not pinned there goes elsewhere, if it can.
    """
    missing: dict[NodeId, None] = {}
    made: list[Assignment] = []
    load: dict[NodeId, int] = {}
    for each in value.plan.assignments:
        if is_there(each.host.node):
            load[each.host.node] = load.get(each.host.node, 0) + 1
    for each in value.plan.assignments:
        is_here = is_there(each.host.node)
        there = [peer for peer in heirs(value, each, room) if is_there(peer.node) and peer.node not in unfit]
        state = unreachable_state(value, each, is_there)
        if is_here and (each.is_pinned or each.host.node not in unfit or not there or state):
            made.append(msgspec.structs.replace(each, host=newest(each.host)))
            continue
        if each.is_pinned or not there or state:
            missing |= dict.fromkeys((each.host.node, *(() if each.is_pinned else state)))
            continue
        heir = min(there, key=lambda peer: load.get(peer.node, 0))
        load[heir.node] = load.get(heir.node, 0) + 1
        made.append(msgspec.structs.replace(each, host=newest(heir)))
    if missing:
        return None, tuple(missing)
    return msgspec.structs.replace(value.plan, assignments=tuple(made)), ()
