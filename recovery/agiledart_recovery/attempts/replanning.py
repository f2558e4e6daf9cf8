"""Plan of the next attempt: survivors stay, lost instances move, numbers and owners of key groups stay. Pure functions.

The register's value names the new host before any node acts, so claims need no order of their own.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_recovery.host_rules import HostFit, HostRules, NoHostRules
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, Plan, RegisterValue, SavedState

NO_RULES: Final = NoHostRules()


def successors(value: RegisterValue, lost: Assignment, candidates: Sequence[Peer]) -> list[Peer]:
    """Return nodes that may take an instance over, best first: the lost host's ring successor, replica nodes of its state, the
    others.
    """
    if not candidates:
        return []
    successor = min(candidates, key=lambda peer: (ring_distance(peer.node, lost.host.node), peer.node))
    replica_nodes = {
        replica_node: None
        for saved in value.saved_for(lost.instance)
        for snapshot in saved.chain
        for replica_node in snapshot.replica_nodes
    }
    rest = [peer for peer in candidates if peer.node != successor.node]
    return [
        successor,
        *(peer for peer in rest if peer.node in replica_nodes),
        *(peer for peer in rest if peer.node not in replica_nodes),
    ]


def missing_replica_nodes(
    value: RegisterValue, lost: Assignment, is_there: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    """Return the replica nodes that are missing to rebuild an instance's state; empty when enough of them are reachable."""
    return unreachable_replica_nodes(value.saved_for(lost.instance), lost, is_there)


def unreachable_replica_nodes(
    saved: Iterable[SavedState], lost: Assignment, is_there: Callable[[NodeId], bool]
) -> tuple[NodeId, ...]:
    """Return the replica nodes that are missing to rebuild saved states; empty when enough of them are reachable.

    Content of the register itself needs none of them.
    """
    for snapshot in (snapshot for saved_state in saved for snapshot in saved_state.chain if not snapshot.content):
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
    rules: HostRules = NO_RULES,
) -> tuple[Plan | None, tuple[NodeId, ...]]:
    """Return the plan of the next attempt, or None with the nodes that are missing.

    Missing are pinned hosts, replica nodes of which a state needs one more, or any host when there is no capacity at all.

    Args:
        is_there: whether a node can be reached and has not been silent.
        candidates: nodes that could take over an instance, best first.
        newest: returns the newest handle of a node. A plan names incarnations of hosts; a host of a later incarnation refuses it.
        unfit: reachable hosts that could not enter the last attempt: unpinned instances leave them, if they can.
        rules: those that forbid a host, or prefer another one.
    """
    missing: dict[NodeId, None] = {}
    made: list[Assignment] = []
    load: dict[NodeId, int] = {}
    hosts: dict[InstanceId, Peer] = {}
    known = {peer.node: None for peer in candidates}
    standbys = {held.host.node: held.host for held in value.standbys if held.host.node not in known}
    candidates = (*candidates, *standbys.values())
    for assignment in value.plan.assignments:
        if is_there(assignment.host.node):
            load[assignment.host.node] = load.get(assignment.host.node, 0) + 1
            hosts[assignment.instance] = assignment.host
    for assignment in value.plan.assignments:
        is_here = is_there(assignment.host.node)
        others = {instance: host for instance, host in hosts.items() if instance != assignment.instance}
        there = [
            (fit, peer)
            for peer in successors(value, assignment, candidates)
            if is_there(peer.node)
            and peer.node not in unfit
            and (fit := rules.fit(value, assignment, peer, others)) is not HostFit.FORBIDDEN
        ]
        state = missing_replica_nodes(value, assignment, is_there)
        if is_here and (assignment.is_pinned or assignment.host.node not in unfit or not there or state):
            made.append(msgspec.structs.replace(assignment, host=newest(assignment.host)))
            continue
        if assignment.is_pinned or not there or state:
            missing |= dict.fromkeys((assignment.host.node, *(() if assignment.is_pinned else state)))
            continue
        standby = {held.host.node for held in value.standbys if held.instance == assignment.instance}
        _, successor = min(
            there,
            key=lambda choice: (choice[0], choice[1].node not in standby, load.get(choice[1].node, 0)),
        )
        hosts[assignment.instance] = successor
        load[successor.node] = load.get(successor.node, 0) + 1
        made.append(msgspec.structs.replace(assignment, host=newest(successor)))
    if missing:
        return None, tuple(missing)
    return msgspec.structs.replace(value.plan, assignments=tuple(made)), ()


def forbidding_rule(
    value: RegisterValue, is_there: Callable[[NodeId], bool], candidates: Sequence[Peer], rules: HostRules
) -> str:
    """Return the rule that keeps reachable nodes from taking a lost instance over, in words; empty: none does."""
    for assignment in value.plan.assignments:
        if is_there(assignment.host.node) or assignment.is_pinned:
            continue
        broken = [rules.forbidding(value, assignment, peer) for peer in candidates if is_there(peer.node)]
        if broken and all(broken):
            return f"no other reachable node fulfils its rule ({broken[0]})"
    return ""
