"""Pure parts of recovery: plans of the next attempt, sides of a partition, voters, epochs, the fragment store."""

import msgspec
import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.epoch_tracker import EpochTracker
from agiledart_recovery.attempts.loss_policy import LossDecision, decide_loss, with_empty_states
from agiledart_recovery.attempts.partition_side import PartitionSide, partition_side_of
from agiledart_recovery.attempts.recovery_progress import RecoveryProgress
from agiledart_recovery.attempts.replanning import next_plan, successors
from agiledart_recovery.fragments.fragment_store import FragmentStore
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.register.quorums import successor_of
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.messages import AttemptProgress, NeededFragments, Prepared
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import LossPolicy, RegisterValue, SavedState
from tests.unit.recovery.bench import RUN, peer, plan, value


def same(one: Peer) -> Peer:
    return one


def test_survivors_stay_and_lost_instances_go_to_the_ring_successor() -> None:
    made, missing = next_plan(value(), lambda node: node != 2, (peer(9), peer(6)), same)
    assert missing == ()
    assert made is not None
    assert [int(each.host.node) for each in made.assignments] == [1, 6, 3]


def test_after_the_ring_successor_replica_nodes_come_before_other_nodes() -> None:
    now = value(committed=CheckpointId(1, 4))
    found = successors(now, now.plan.assignments[1], (peer(9), peer(5), peer(7), peer(4)))
    assert [int(each.node) for each in found] == [4, 7, 9, 5]


def test_a_host_that_could_not_enter_an_attempt_is_left_out_of_the_next() -> None:
    now = value(committed=CheckpointId(1, 4))
    made, _ = next_plan(now, lambda node: True, (peer(9), peer(6)), same, (NodeId(2), NodeId(6)))
    assert made is not None
    assert [int(each.host.node) for each in made.assignments] == [1, 9, 3]
    alone, missing = next_plan(now, lambda node: True, (), same, (NodeId(2),))
    assert alone == now.plan, "without another node it is tried again"
    assert missing == ()


def test_a_state_with_too_few_reachable_fragments_is_waited_for() -> None:
    now = value(committed=CheckpointId(1, 4))  # m = 2, on 6, 7 and 8
    made, _ = next_plan(now, lambda node: node not in (2, 6), (peer(9),), same)
    assert made is not None
    nobody, missing = next_plan(now, lambda node: node not in (2, 6, 8), (peer(9),), same)
    assert nobody is None
    assert [int(node) for node in missing] == [2, 6, 8]


def with_policies(now: RegisterValue, *policies: LossPolicy) -> RegisterValue:
    """The run whose source, stage and sink have these."""
    made = [
        msgspec.structs.replace(each, if_lost=policy)
        for each, policy in zip(now.plan.assignments, policies, strict=True)
    ]
    return msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=tuple(made)))


def named(node: NodeId) -> str:
    return f"node-{int(node)}"


def test_a_run_set_to_fail_without_its_source_fails_at_once_and_others_wait() -> None:
    fails = with_policies(value(), LossPolicy.FAIL, LossPolicy.WAIT, LossPolicy.WAIT)
    assert (
        "node-1, which ran a source"
        in decide_loss(fails, lambda node: node != 1, {}, named, may_wait_for_state=True).ends
    )
    assert not decide_loss(fails, lambda node: node != 3, {}, named, may_wait_for_state=True).ends
    assert not decide_loss(value(), lambda node: node != 1, {}, named, may_wait_for_state=False).ends


def test_an_unrecoverable_state_fails_the_run_or_starts_empty_after_the_timeout() -> None:
    now = value(committed=CheckpointId(1, 4))  # m = 2, on 6, 7 and 8; the stage's host is 2

    def there(node: NodeId) -> bool:
        return node not in (2, 6, 8)

    fails = with_policies(now, LossPolicy.WAIT, LossPolicy.FAIL, LossPolicy.WAIT)
    assert decide_loss(fails, there, {}, named, may_wait_for_state=True) == LossDecision()
    assert "node-6, node-8" in decide_loss(fails, there, {}, named, may_wait_for_state=False).ends
    assert not decide_loss(fails, lambda node: node not in (2, 6), {}, named, may_wait_for_state=False).ends, (
        "two of three are enough"
    )
    empties = with_policies(now, LossPolicy.WAIT, LossPolicy.EMPTY, LossPolicy.WAIT)
    judged = decide_loss(empties, there, {}, named, may_wait_for_state=False)
    assert judged.empty == (InstanceId("stage"),)
    assert "node-2 began with an empty state" in judged.note
    after = with_empty_states(empties, judged.empty)
    assert [saved.chain for saved in after.saved] == [()]
    made, missing = next_plan(after, there, (peer(9),), same)
    assert made is not None
    assert (int(made.assignments[1].host.node), missing) == (9, ())


def test_only_the_host_that_could_not_rebuild_a_state_continues_without_it() -> None:
    now = with_policies(value(committed=CheckpointId(1, 4)), LossPolicy.WAIT, LossPolicy.EMPTY, LossPolicy.WAIT)
    replica_nodes = (NodeId(6), NodeId(7), NodeId(8))
    assert decide_loss(now, lambda node: True, {NodeId(2): replica_nodes}, named, may_wait_for_state=False).empty == (
        InstanceId("stage"),
    )
    assert (
        decide_loss(now, lambda node: True, {NodeId(9): replica_nodes}, named, may_wait_for_state=False)
        == LossDecision()
    )


def test_unneeded_fragments_are_released() -> None:
    fragment_store, instance = FragmentStore(), InstanceId("stage")
    keys = [
        FragmentKey(RUN, instance, CheckpointId(attempt, epoch), 0)
        for attempt, epoch in ((1, 3), (2, 4), (2, 5), (2, 6))
    ]
    for key in keys:
        fragment_store.put(key, NodeId(2))
    kept = NeededFragments(RUN, 2, instance, CheckpointId(2, 5), (CheckpointId(2, 4), CheckpointId(2, 5)))
    assert fragment_store.keep(NodeId(9), kept) == (), "a stranger's word is nothing"
    assert fragment_store.keep(NodeId(2), kept) == (keys[0],)
    assert fragment_store.has(keys[3]), "it is not committed yet"
    assert fragment_store.refusal(keys[0], 1) == "attempt 1 is over, the current one is 2"
    over = NeededFragments(RUN, 2, instance, CheckpointId(2, 6), (), is_over=True)
    assert fragment_store.keep(NodeId(2), over) == tuple(keys[1:])
    assert fragment_store.runs == ()


def test_phases_of_a_recovery_are_timed() -> None:
    made = RecoveryProgress()
    made.enter("restore", Instant(1))
    assert made.end(Instant(2)) == {}, "a life that nothing was lost before is no recovery"
    for phase, at in (("plan", 10), ("restore", 12), ("fetch", 13), ("replay", 20)):
        made.enter(phase, Instant(at), "a host was lost")
    assert made.answered(NodeId(1), AttemptProgress(RUN, 2, "fetch", 5, 9))
    assert not made.answered(NodeId(1), AttemptProgress(RUN, 2, "fetch", 5, 9))
    assert made.bytes() == (5, 9)
    assert made.end(Instant(50)) == {"plan": 2, "restore": 1, "fetch": 7, "replay": 30}
    assert made.since is None


def test_a_pinned_host_is_waited_for() -> None:
    assert next_plan(value(), lambda node: node != 1, (peer(9),), same) == (None, (NodeId(1),))
    assert next_plan(value(), lambda node: node != 2, (), same) == (None, (NodeId(2),))


def test_only_the_majority_side_of_a_partition_continues() -> None:
    assert partition_side_of(value(), lambda node: node in (1, 4)) is PartitionSide.COMMITS
    assert partition_side_of(value(), lambda node: node in (1, 2, 3)) is PartitionSide.MINORITY
    assert partition_side_of(value(), lambda node: node in (2, 3)) is PartitionSide.WAITS
    assert partition_side_of(value(), lambda node: node in (1, 3)) is PartitionSide.WAITS


def test_a_lost_voter_is_replaced_on_another_host() -> None:
    voters = value().voters
    assert successor_of(voters[0], voters, [peer(4), peer(9)]) == peer(9)
    assert successor_of(voters[0], voters, [peer(4)]) is None


def _answer(name: str, epoch: int, *, has_ended: bool = False, attempt: int = 1) -> Prepared:
    instance = InstanceId(name)
    return Prepared(
        RUN, attempt, epoch, instance, SavedState(instance), 7 if name == "sink" else 0, has_ended=has_ended
    )


def test_an_epoch_is_complete_when_all_have_answered_in_this_attempt() -> None:
    epochs = EpochTracker(1, plan(), 0)
    instances = {each.instance: each for each in plan().assignments}
    assert not epochs.take(_answer("sink", 1, attempt=2), instances)
    assert not epochs.take(_answer("stranger", 1), instances)
    for name in ("source", "stage"):
        assert epochs.take(_answer(name, 1), instances)
        assert epochs.complete() is None
    assert epochs.take(_answer("sink", 1), instances)
    done = epochs.complete()
    assert done is not None
    assert (done.epoch, done.is_last) == (1, False)


def test_an_ended_instance_counts_only_above_its_last_barrier() -> None:
    epochs = EpochTracker(1, plan(), 0)
    instances = {each.instance: each for each in plan().assignments}
    epochs.begun = 3
    for answer in (_answer("source", 2, has_ended=True), _answer("stage", 2), _answer("sink", 2)):
        epochs.take(answer, instances)
    assert epochs.complete() is None
    for answer in (_answer("stage", 3), _answer("sink", 3)):
        epochs.take(answer, instances)
    done = epochs.complete()
    assert done is not None
    assert done.epoch == 3


def test_the_fragment_store_keeps_needed_and_uncommitted_fragments() -> None:
    fragment_store, stage = FragmentStore(), InstanceId("stage")
    old, needed, ahead = (FragmentKey(RUN, stage, CheckpointId(1, epoch), 0) for epoch in (3, 4, 5))
    for key in (old, needed, ahead):
        fragment_store.put(key)
    assert fragment_store.release(value(committed=CheckpointId(1, 4))) == (old,)
    assert fragment_store.refusal(FragmentKey(RUN, stage, CheckpointId(1, 6), 0), 1) == ""
    # A later attempt: an epoch that it did not commit of the one before can't be any more.
    assert fragment_store.release(value(attempt=2, committed=CheckpointId(1, 4))) == (ahead,)
    assert "attempt 1 is over" in fragment_store.refusal(FragmentKey(RUN, stage, CheckpointId(1, 6), 0), 1)


def test_inconsistent_parameters_are_rejected() -> None:
    RecoveryConfig().validate()
    with pytest.raises(ConfigurationError, match="two ticks"):
        RecoveryConfig(silence_ns=1).validate()
    with pytest.raises(ConfigurationError, match="raw fragment"):
        RecoveryConfig(m=0).validate()


def test_a_run_that_begins_from_a_checkpoint_supersedes_the_deployed_attempt() -> None:
    plain = value(0)
    assert plain.next_attempt == 1
    saved = tuple(SavedState(InstanceId("stage", 0, index), ()) for index in range(3))
    brought = msgspec.structs.replace(plain, origin="steps", saved=saved)
    assert brought.next_attempt == 2
    assert brought.is_brought
    assert msgspec.structs.replace(brought, attempt=2).next_attempt == 3
    assert not msgspec.structs.replace(brought, attempt=2, committed=CheckpointId(2, 1)).is_brought
    assert brought.saved_for(InstanceId("stage", 1, 0)) == saved, "each instance looks for its groups in all of them"
