"""Loss policies of a run: it waits, fails, begins a state empty, or rolls back to the previous epoch. Pure functions.

| policy | a host of a source or sink is gone | a state cannot be rebuilt, and the wait for its replica nodes is over |
|---|---|---|
| wait | the run waits for it | it waits on |
| fail | the run fails, at once | the run fails |
| empty | | the instance begins with no state |
| previous | | all roll back to the previous epoch, if that is complete; else the run waits on |

A roll-back (`RegisterValue.switched_checkpoint`) undoes no commit: sinks keep the rows that they have emitted, so a movable
sink needs what it saved at both epochs. The awkward case: the hosts find that the previous epoch is lost, too. Then the run
rolls forward again if the later epoch is complete by then, and else waits for replica nodes of the earlier one.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.attempts.replanning import missing_replica_nodes, unreachable_replica_nodes
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, LossPolicy, Plan, RegisterValue, SavedState

IsReachable = Callable[[NodeId], bool]
LackingReplicaNodes = Mapping[NodeId, Collection[NodeId]]
"""Hosts that could not rebuild a state in the last attempt, with the replica nodes that they asked."""


@dataclass(frozen=True, slots=True)
class LossDecision:
    """Decision of a run's loss policies.

    Args:
        ends: why the run has failed; empty: it continues, or waits.
        empty: instances whose state is gone and that begin with none.
        switches_checkpoint: whether all continue from the other epoch that is kept.
        note: what the next attempt cannot restore, in words.
    """

    ends: str = ""
    empty: tuple[InstanceId, ...] = ()
    switches_checkpoint: bool = False
    note: str = ""

    def applied(self, value: RegisterValue) -> RegisterValue:
        """Return the value from which the next attempt begins."""
        return value.switched_checkpoint if self.switches_checkpoint else with_empty_states(value, self.empty)


def decide_loss(
    value: RegisterValue,
    is_there: IsReachable,
    lacking: LackingReplicaNodes,
    name: Callable[[NodeId], str],
    *,
    may_wait_for_state: bool,
    unfit: Collection[NodeId] = (),
) -> LossDecision:
    """Apply a run's loss policies.

    Args:
        is_there: whether a node can be reached.
        lacking: hosts that could not rebuild a state in the last attempt, with the replica nodes that they asked.
        name: returns a node's name for people.
        may_wait_for_state: whether replica nodes of a missing state may still come back. The loss of a pinned host is not delayed.
        unfit: reachable hosts from which the next attempt moves what can move.
    """
    empty: list[Assignment] = []
    back: dict[NodeId, None] = {}
    for assignment in value.plan.assignments:
        if assignment.is_pinned:
            if assignment.if_lost is LossPolicy.FAIL and not is_there(assignment.host.node):
                return LossDecision(
                    f"{name(assignment.host.node)}, which ran a {assignment.role} of this run, is lost; the run's policy is to fail"
                )
        elif not may_wait_for_state and (gone := nodes_lost_with_state(value, assignment, is_there, lacking)):
            if value.plan.may_roll_back:
                back |= dict.fromkeys(gone)
            elif assignment.if_lost is LossPolicy.FAIL:
                nodes = ", ".join(dict.fromkeys(name(node) for node in gone))
                return LossDecision(
                    f"the state of the instances on {name(assignment.host.node)} is lost with {nodes}; the run's policy is to fail"
                )
            elif assignment.if_lost is LossPolicy.EMPTY:
                empty.append(assignment)
    if back and can_switch_checkpoint(value, is_there, lacking, unfit):
        return LossDecision(switches_checkpoint=True, note=fallback_note(value, ", ".join(name(node) for node in back)))
    hosts = ", ".join(dict.fromkeys(name(assignment.host.node) for assignment in empty))
    note = f"instances that ran on {hosts} began with an empty state" if empty else ""
    return LossDecision(empty=tuple(assignment.instance for assignment in empty), note=note)


def nodes_lost_with_state(
    value: RegisterValue, each: Assignment, is_there: IsReachable, lacking: LackingReplicaNodes
) -> tuple[NodeId, ...]:
    """Return the nodes whose loss makes an instance's state unavailable; empty when it can be rebuilt."""
    if not is_there(each.host.node):
        return missing_replica_nodes(value, each, is_there)
    asked = lacking.get(each.host.node, ())
    snapshots = [snapshot for saved in value.saved_for(each.instance) for snapshot in saved.chain]
    return (
        tuple(asked)
        if any(
            set(asked) == {replica_node for replica_node in snapshot.replica_nodes if replica_node}
            for snapshot in snapshots
        )
        else ()
    )


def can_switch_checkpoint(
    value: RegisterValue,
    is_there: IsReachable,
    lacking: LackingReplicaNodes | None = None,
    unfit: Collection[NodeId] = (),
) -> bool:
    """Return whether a run can continue from the other epoch that is kept, as far as reachable replica nodes say.

    Roll back only where movable sources with a log stay: what they read between the epochs is in no state, only in their log.
    Roll forward only where all of the later epoch can be rebuilt: some state of it was lacking, and no record says which.
    """
    if value.fallback_checkpoint is None:
        return False
    other = value.switched_checkpoint
    is_back = other.rolled_back_to is not None
    movable = [assignment for assignment in value.plan.assignments if not assignment.is_pinned]
    moving = [
        assignment for assignment in movable if not is_there(assignment.host.node) or assignment.host.node in unfit
    ]
    if is_back and any(assignment.has_log for assignment in moving):
        return False
    lost = [
        assignment
        for assignment in movable
        if not is_back
        or not is_there(assignment.host.node)
        or nodes_lost_with_state(value, assignment, is_there, lacking or {})
    ]
    ends = [assignment for assignment in lost if assignment.role is InstanceRole.SINK]
    return not any(missing_replica_nodes(other, assignment, is_there) for assignment in lost) and not any(
        unreachable_replica_nodes((saved for saved in other.emitted if saved.instance == end.instance), end, is_there)
        for end in ends
    )


def remaining_fallback(value: RegisterValue, plan: Plan) -> CheckpointId | None:
    """Return the other epoch to which the run may still switch in an attempt with this plan.

    None where a source with a log moves: its log stays behind, and only there are the rows read between the two epochs.
    """
    hosts = {assignment.instance: assignment.host.node for assignment in value.plan.assignments}
    has_moved = any(
        assignment.has_log and hosts.get(assignment.instance) != assignment.host.node for assignment in plan.assignments
    )
    return None if has_moved else value.fallback_checkpoint


def fallback_note(value: RegisterValue, lost_with: str) -> str:
    """Return, for people, what continuing from the other epoch means."""
    other = value.switched_checkpoint
    if other.rolled_back_to is None:
        return f"continues from epoch {other.committed.epoch} after all: its state is available again, and no row comes twice"
    first, last = other.rolled_back_to.epoch + 1, other.committed.epoch
    which = f"epoch {last} come" if first == last else f"epochs {first} to {last} come"
    return f"rolled back to epoch {first - 1}, because a state of epoch {last} is lost with {lost_with}: rows of {which} twice"


def with_empty_states(value: RegisterValue, instances: Collection[InstanceId]) -> RegisterValue:
    """Return the value in which the committed epoch has no state of these instances: they begin empty."""
    saved = tuple(SavedState(each.instance) if each.instance in instances else each for each in value.saved)
    return msgspec.structs.replace(value, saved=saved) if instances else value
