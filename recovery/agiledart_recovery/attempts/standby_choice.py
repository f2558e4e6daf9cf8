"""Choice of standby hosts: which node holds an instance's committed state ready, to take it over. Pure functions.

The register's value names them, so any coordinator knows them. A standby stays while it can be reached. It is chosen anew when it
is lost, or when it has taken the instance over. A standby is on another machine than the instance where there is one.
"""

from collections.abc import Callable, Sequence

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.replanning import NO_RULES, successors
from agiledart_recovery.fragments.placement import host_of
from agiledart_recovery.host_rules import HostFit, HostRules
from agiledart_recovery.wire.register_value import Assignment, RegisterValue, Standby


def with_standbys(
    value: RegisterValue,
    is_there: Callable[[NodeId], bool],
    candidates: Sequence[Peer],
    newest: Callable[[Peer], Peer],
    rules: HostRules = NO_RULES,
) -> RegisterValue:
    """Return the value with a standby for each instance that asks for one; the same value where nothing changes.

    Args:
        is_there: whether a node can be reached.
        candidates: nodes that could take over an instance, best first.
        newest: returns the newest handle of a node.
        rules: those that forbid a host, or prefer another one.
    """
    asking = [assignment for assignment in value.plan.assignments if assignment.standby and not assignment.is_pinned]
    held = {standby.instance: standby.host for standby in value.standbys}
    load: dict[NodeId, int] = {}
    made: list[Standby] = []
    for assignment in asking:
        before = held.get(assignment.instance)
        if before is not None and before.node != assignment.host.node and is_there(before.node):
            made.append(Standby(assignment.instance, newest(before)))
            load[before.node] = load.get(before.node, 0) + 1
    names = {standby.instance: None for standby in made}
    for assignment in asking:
        if assignment.instance in names:
            continue
        host = _best(value, assignment, [peer for peer in candidates if is_there(peer.node)], load, rules)
        if host is not None:
            made.append(Standby(assignment.instance, newest(host)))
            load[host.node] = load.get(host.node, 0) + 1
    standbys = tuple(sorted(made, key=lambda standby: standby.instance))
    return value if standbys == value.standbys else msgspec.structs.replace(value, standbys=standbys)


def _best(
    value: RegisterValue, assignment: Assignment, candidates: Sequence[Peer], load: dict[NodeId, int], rules: HostRules
) -> Peer | None:
    """Return the best standby host of an instance: on another machine, running nothing of the run, no voter, least loaded."""
    hosts = {other.instance: other.host for other in value.plan.assignments if other.instance != assignment.instance}
    voters = {voter.peer.node: None for voter in value.voters}
    running = value.plan.hosts
    fitting = [
        (fit, peer)
        for peer in successors(value, assignment, candidates)
        if peer.node != assignment.host.node
        and (fit := rules.fit(value, assignment, peer, hosts)) is not HostFit.FORBIDDEN
    ]
    if not fitting:
        return None
    return min(
        fitting,
        key=lambda choice: (
            choice[0],
            host_of(choice[1]) == host_of(assignment.host),
            choice[1].node in running,
            choice[1].node in voters,
            load.get(choice[1].node, 0),
        ),
    )[1]
