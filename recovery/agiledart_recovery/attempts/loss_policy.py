"""What the policies of a run make of what is lost: it waits, ends, begins a state empty, or goes on from the epoch before. Pure.

| policy | a host of a source or sink is gone | a state cannot be rebuilt, and nobody waits for its holders any more |
|---|---|---|
| wait | the run waits for it | it waits on |
| fail | it has failed, at once | it has failed |
| empty | | what had the state begins with none |
| previous | | all go on from the epoch before, if that can be had whole; else it waits on |

Going back (`RegisterValue.switched_checkpoint`) takes no commit back: sinks keep what they have shown, so a sink that may move needs what it
saved at both epochs. The awkward case: the epoch before turns out to be lost, too, when hosts look for it. Then the run goes forth
again if all of the later one can be had by then, and else waits for holders of the earlier one.
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
"""Hosts that could not rebuild a state in the last life, with the holders whom they asked."""


@dataclass(frozen=True, slots=True)
class LossDecision:
    """What the policies of a run make of what is lost.

    Args:
        ends: why the run has failed; empty: it goes on, or waits.
        empty: parties whose state is gone and that begin with none.
        goes_back: all go on from the other epoch that is kept.
        note: what the next life cannot bring back, in words.
    """

    ends: str = ""
    empty: tuple[InstanceId, ...] = ()
    switches_checkpoint: bool = False
    note: str = ""

    def applied(self, value: RegisterValue) -> RegisterValue:
        """The value from which the next life begins."""
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
    """What becomes of a run by its policies.

    Args:
        is_there: whether a node can be reached.
        unfit: hosts that are there, and from which the next life moves what can move.
        name: of a node, for people.
        is_patient: holders of a state that is lacking may still come back; a host whose loss ends the run has no such time.
    """
    empty: list[Assignment] = []
    back: dict[NodeId, None] = {}
    for each in value.plan.assignments:
        if each.is_pinned:
            if each.if_lost is LossPolicy.FAIL and not is_there(each.host.node):
                return LossDecision(
                    f"{name(each.host.node)}, which has a {each.role} of it, is gone, and it was to fail then"
                )
        elif not may_wait_for_state and (gone := nodes_lost_with_state(value, each, is_there, lacking)):
            if value.plan.may_roll_back:
                back |= dict.fromkeys(gone)
            elif each.if_lost is LossPolicy.FAIL:
                nodes = ", ".join(dict.fromkeys(name(node) for node in gone))
                return LossDecision(
                    f"the state of what ran on {name(each.host.node)} is lost with {nodes}, and it was to fail then"
                )
            elif each.if_lost is LossPolicy.EMPTY:
                empty.append(each)
    if back and can_switch_checkpoint(value, is_there, lacking, unfit):
        return LossDecision(switches_checkpoint=True, note=fallback_note(value, ", ".join(name(node) for node in back)))
    hosts = ", ".join(dict.fromkeys(name(each.host.node) for each in empty))
    note = f"what ran on {hosts} began with an empty state" if empty else ""
    return LossDecision(empty=tuple(each.instance for each in empty), note=note)


def nodes_lost_with_state(
    value: RegisterValue, each: Assignment, is_there: IsReachable, lacking: LackingReplicaNodes
) -> tuple[NodeId, ...]:
    """Nodes with which the state of a party is gone; empty when it can be had."""
    if not is_there(each.host.node):
        return missing_replica_nodes(value, each, is_there)
    asked = lacking.get(each.host.node, ())
    snapshots = [snapshot for saved in value.saved_for(each.instance) for snapshot in saved.chain]
    return (
        tuple(asked)
        if any(set(asked) == {one for one in snapshot.replica_nodes if one} for snapshot in snapshots)
        else ()
    )


def can_switch_checkpoint(
    value: RegisterValue,
    is_there: IsReachable,
    lacking: LackingReplicaNodes | None = None,
    unfit: Collection[NodeId] = (),
) -> bool:
    """Whether a run can go on from the other epoch that is kept, as far as reachable holders tell.

    Back only where sources that may move, and have a log, stay: what they read between the epochs is in no state then, only there.
    Forth only where all of the later epoch can be had: some state of it was lacking, and nothing says any more whose.
    """
    if value.fallback_checkpoint is None:
        return False
    other = value.switched_checkpoint
    is_back = other.rolled_back_to is not None
    movable = [each for each in value.plan.assignments if not each.is_pinned]
    moving = [each for each in movable if not is_there(each.host.node) or each.host.node in unfit]
    if is_back and any(each.has_log for each in moving):
        return False
    lost = [
        each
        for each in movable
        if not is_back or not is_there(each.host.node) or nodes_lost_with_state(value, each, is_there, lacking or {})
    ]
    ends = [each for each in lost if each.role is InstanceRole.SINK]
    return not any(missing_replica_nodes(other, each, is_there) for each in lost) and not any(
        unreachable_replica_nodes((saved for saved in other.emitted if saved.instance == each.instance), each, is_there)
        for each in ends
    )


def remaining_fallback(value: RegisterValue, plan: Plan) -> CheckpointId | None:
    """The other epoch from which the run may still go on in a life with this plan.

    None where a source with a log moves: that stays behind, and what was read between the two epochs is nowhere else.
    """
    hosts = {each.instance: each.host.node for each in value.plan.assignments}
    has_moved = any(each.has_log and hosts.get(each.instance) != each.host.node for each in plan.assignments)
    return None if has_moved else value.fallback_checkpoint


def fallback_note(value: RegisterValue, lost_with: str) -> str:
    """What going on from the other epoch means, in words."""
    other = value.switched_checkpoint
    if other.rolled_back_to is None:
        return (
            f"goes on from epoch {other.committed.epoch} after all: its state is there again, and nothing comes twice"
        )
    first, last = other.rolled_back_to.epoch + 1, other.committed.epoch
    which = f"epoch {last} come" if first == last else f"epochs {first} to {last} come"
    return (
        f"went back to epoch {first - 1}, for a state of epoch {last} is lost with {lost_with}: rows of {which} twice"
    )


def with_empty_states(value: RegisterValue, instances: Collection[InstanceId]) -> RegisterValue:
    """The value in which the committed epoch has nothing of these parties: they begin empty."""
    saved = tuple(SavedState(each.instance) if each.instance in instances else each for each in value.saved)
    return msgspec.structs.replace(value, saved=saved) if instances else value
