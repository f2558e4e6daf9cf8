"""The plan of the next life: survivors stay, lost instances go to others, numbers and owners of key groups stay. Pure functions.

Who takes over is part of the register's value before anybody acts, so claims need no order of their own.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.register_value import Assignment, Plan, RegisterValue, SavedState


def successors(value: RegisterValue, lost: Assignment, candidates: Sequence[Peer]) -> list[Peer]:
    """Who may take an instance over, best first: the ring successor of the lost host, holders of its fragments, the others."""
    if not candidates:
        return []
    heir = min(candidates, key=lambda peer: (ring_distance(peer.node, lost.host.node), peer.node))
    replica_nodes = {
        replica_node: None
        for saved in value.saved_for(lost.instance)
        for snapshot in saved.chain
        for replica_node in snapshot.replica_nodes
    }
    rest = [peer for peer in candidates if peer.node != heir.node]
    return [
        heir,
        *(peer for peer in rest if peer.node in replica_nodes),
        *(peer for peer in rest if peer.node not in replica_nodes),
    ]


def missing_replica_nodes(
    value: RegisterValue, lost: Assignment, is_there: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    """Holders without whom the state of a party cannot be rebuilt; empty when enough of them are there."""
    return unreachable_replica_nodes(value.saved_for(lost.instance), lost, is_there)


def unreachable_replica_nodes(
    saved: Iterable[SavedState], lost: Assignment, is_there: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    """Holders without whom what was saved of a party cannot be rebuilt; empty when enough of them are there."""
    for snapshot in (snapshot for each in saved for snapshot in each.chain):
        gone = tuple(
            replica_node for replica_node in snapshot.replica_nodes if replica_node and not is_there(replica_node)
        )
        if sum(1 for replica_node in snapshot.replica_nodes if replica_node) - len(gone) < snapshot.m:
            return gone or (lost.host.node,)
    return ()


def next_plan(
    value: RegisterValue,
    is_there: Callable[[NodeId], bool],
    candidates: Sequence[Peer],
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
        there = [peer for peer in successors(value, each, candidates) if is_there(peer.node) and peer.node not in unfit]
        state = missing_replica_nodes(value, each, is_there)
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
