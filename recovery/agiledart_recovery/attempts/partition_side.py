"""What a side of a partition may do. Pure functions.

| side | is | does |
|---|---|---|
| COMMITS | a majority of the voters can be reached | begins epochs and lives, commits |
| ISLAND | no majority, and a whole way from a source to a sink | works on inside the open epoch |
| WAITS | neither | sources block, as at any full channel |

On an island sink rows stay uncommitted, and source logs grow up to `island_bytes`; then the overload policy decides.

No side changes anything in the register by being one: the name is for status, for the logs' bound, and for people. An island that
meets the majority again is in the same life, and the next epoch commits all that it did; or a newer life has begun, and its rows
come again from its sources' logs.
"""

from collections.abc import Callable
from enum import StrEnum

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.register_value import InstanceRole, Plan, RegisterValue


class PartitionSide(StrEnum):
    """See the module."""

    COMMITS = "commits"
    MINORITY = "island"
    WAITS = "waits"


def partition_side_of(value: RegisterValue, can_reach: Callable[[NodeId], bool]) -> PartitionSide:
    """On which side of a partition a node is that can reach these others."""
    voters = value.voters
    if 2 * sum(can_reach(voter.peer.node) for voter in voters) > len(voters):
        return PartitionSide.COMMITS
    return PartitionSide.MINORITY if has_complete_path(value.plan, can_reach) else PartitionSide.WAITS


def has_complete_path(plan: Plan, can_reach: Callable[[NodeId], bool]) -> bool:
    """Whether some source's rows can reach some sink: along stages all of whose instances can be reached."""
    whole = {each.instance.stage: True for each in plan.assignments}
    for each in plan.assignments:
        whole[each.instance.stage] &= can_reach(each.host.node)
    # One source alone may be cut off from its sisters: its own rows still have a way.
    reached = {each.instance.stage: None for each in plan.of(InstanceRole.SOURCE) if can_reach(each.host.node)}
    front = list(reached)
    while front:
        stage = front.pop()
        for source, target in plan.edges:
            if source == stage and target not in reached and whole.get(target):
                reached[target] = None
                front.append(target)
    return any(each.instance.stage in reached for each in plan.of(InstanceRole.SINK))
