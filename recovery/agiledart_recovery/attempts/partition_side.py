"""Side of a network partition, and what it may do. Pure functions.

| side | is | does |
|---|---|---|
| COMMITS | a majority of the voters can be reached | begins epochs and attempts, commits |
| MINORITY | no majority, but a complete path from a source to a sink | works on inside the open epoch |
| WAITS | neither | sources block, as at any full channel |

On a minority side sink rows stay uncommitted, and source logs grow up to `island_bytes`; then the overload policy decides.

A side changes nothing in the register: the name is for status, for the logs' bound, and for people. A minority side that meets
the majority again may still be in the current attempt; then the next epoch commits all its work. Or a newer attempt has begun,
and its rows come again from its sources' logs.
"""

from collections.abc import Callable
from enum import StrEnum

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.register_value import InstanceRole, Plan, RegisterValue


class PartitionSide(StrEnum):
    """Side of a partition; the module's head has the table."""

    COMMITS = "commits"
    MINORITY = "minority"
    WAITS = "waits"


def partition_side_of(value: RegisterValue, can_reach: Callable[[NodeId], bool]) -> PartitionSide:
    """Return the side of a partition of a node that can reach these others."""
    voters = value.voters
    if 2 * sum(can_reach(voter.peer.node) for voter in voters) > len(voters):
        return PartitionSide.COMMITS
    return PartitionSide.MINORITY if has_complete_path(value.plan, can_reach) else PartitionSide.WAITS


def has_complete_path(plan: Plan, can_reach: Callable[[NodeId], bool]) -> bool:
    """Return whether rows of some source can reach some sink, along stages all of whose instances can be reached."""
    whole = {assignment.instance.stage: True for assignment in plan.assignments}
    for assignment in plan.assignments:
        whole[assignment.instance.stage] &= can_reach(assignment.host.node)
    # One source alone may be cut off from its sisters: its own rows still have a path.
    reached = {
        source_instance.instance.stage: None
        for source_instance in plan.of(InstanceRole.SOURCE)
        if can_reach(source_instance.host.node)
    }
    front = list(reached)
    while front:
        stage = front.pop()
        for source, target in plan.edges:
            if source == stage and target not in reached and whole.get(target):
                reached[target] = None
                front.append(target)
    return any(sink_instance.instance.stage in reached for sink_instance in plan.of(InstanceRole.SINK))
