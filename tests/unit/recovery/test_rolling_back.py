"""A state of the committed epoch is lost: by its topology's policy the run goes on from the epoch before.

Specification §2: "`previous` (the epoch before, if kept; rows of the epochs in between appear twice, said in status and ledger)".
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.attempts.loss_policy import can_switch_checkpoint, decide_loss
from agiledart_recovery.attempts.next_attempt import NextAttempt
from agiledart_recovery.attempts.participant import Participant
from agiledart_recovery.register.quorum_recovery import QuorumRecoveryCheck, recovered_value
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import EnterAttempt, StoreAttempt
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, Ballot, CheckpointId, InstanceId, Voter
from agiledart_recovery.wire.register_value import (
    InstanceRole,
    InstanceSnapshot,
    LossPolicy,
    Plan,
    RegisterValue,
    SavedState,
    SinkEnd,
)
from tests.unit.recovery.bench import RUN, context, peer, plan, value

BEFORE, LAST = CheckpointId(1, 11), CheckpointId(1, 12)
STAGE, SINK = InstanceId("stage"), InstanceId("sink")


def saved(at: CheckpointId, *replica_nodes: int) -> tuple[SavedState, ...]:
    """The source, the stage with its replica nodes, and the sink, which lies on its node's disk."""
    name = str(at.epoch).encode()
    kept = tuple(NodeId(number) for number in replica_nodes)
    return (
        SavedState(InstanceId("source"), (), name),
        SavedState(STAGE, (InstanceSnapshot(at, b"stage" + name, 10, 2, kept),)),
        SavedState(SINK, (InstanceSnapshot(at, b"sink" + name, 10, 1, ()),)),
    )


def going_back(made: Plan) -> Plan:
    assignments = tuple(
        msgspec.structs.replace(each, if_lost=LossPolicy.PREVIOUS) if each.role is InstanceRole.STAGE else each
        for each in made.assignments
    )
    return msgspec.structs.replace(made, assignments=assignments)


def lost() -> RegisterValue:
    """Epoch 12 is committed, with the stage's state on 6, 7 and 8; that of epoch 11 is on 7, 8 and 9. The stage runs on 2."""
    return msgspec.structs.replace(
        value(1, LAST, going_back(plan())),
        saved=saved(LAST, 6, 7, 8),
        before=saved(BEFORE, 7, 8, 9),
        parts=(SinkEnd("sink", 0, NodeId(3), LAST, 40),),
        fallback_checkpoint=BEFORE,
    )


def without(*gone: int) -> Callable[[NodeId], bool]:
    return lambda node: int(node) not in gone


def named(node: NodeId) -> str:
    return f"node-{int(node)}"


def test_the_run_rolls_back_to_the_previous_epoch_after_the_timeout() -> None:
    now, there = lost(), without(2, 6, 7)
    assert not decide_loss(now, there, {}, named, may_wait_for_state=True).switches_checkpoint
    judged = decide_loss(now, there, {}, named, may_wait_for_state=False)
    assert judged.switches_checkpoint
    assert judged.note == (
        "rolled back to epoch 11, because a state of epoch 12 is lost with node-6, node-7: rows of epoch 12 come twice"
    )
    after = judged.applied(now)
    assert after.saved == now.before, "all of them, not the lost one alone"
    assert after.before == now.saved, "it is not released before the next commit"
    assert (after.committed, after.at, after.parts) == (LAST, BEFORE, now.parts), "a commit is final"
    assert [one.chain[0].digest for one in after.emitted if one.instance == SINK] == [b"sink12"]


def test_a_run_waits_for_replica_nodes_when_the_previous_epoch_is_lost_too() -> None:
    now, there = lost(), without(2, 6, 7, 8)
    assert not decide_loss(now, there, {}, named, may_wait_for_state=False).switches_checkpoint
    world = NextAttempt(here := context(5))
    here.lost = {NodeId(number): None for number in (2, 6, 7, 8)}
    here.candidates, here.now = (peer(9),), Instant(SECOND)
    for _ in range(3):
        decision = world.decide(now)
        here.now = Instant(here.now + 61 * SECOND)
    assert decision.value is None
    assert [int(node) for node in decision.missing] == [2, 6, 7, 8]


def test_only_time_with_missing_state_counts_against_the_timeout() -> None:
    world = NextAttempt(here := context(5))
    here.candidates, here.now = (peer(9),), Instant(SECOND)
    here.lost = {NodeId(1): None}  # the source's host, which the run waits for
    assert world.decide(lost()).missing == (NodeId(1),)
    here.now = Instant(here.now + 600 * SECOND)
    here.lost = {NodeId(number): None for number in (2, 6, 7)}
    assert world.decide(lost()).value is None, "the holder of that state is away since a moment ago"
    here.now = Instant(here.now + 61 * SECOND)
    made = world.decide(lost()).value
    assert made is not None
    assert (made.rolled_back_to, made.attempt) == (BEFORE, 2)
    assert "rolled back to epoch 11" in made.reason


def test_a_futile_rollback_is_rolled_forward_when_the_later_state_is_back() -> None:
    back = msgspec.structs.replace(lost().switched_checkpoint, attempt=2, reason="rolled back to epoch 11")
    asked = {NodeId(2): (NodeId(7), NodeId(8), NodeId(9))}
    judged = decide_loss(back, without(), asked, named, may_wait_for_state=False)
    assert judged.switches_checkpoint
    assert "continues from epoch 12 after all" in judged.note
    forth = judged.applied(back)
    assert (forth.saved, forth.at, forth.fallback_checkpoint) == (lost().saved, LAST, BEFORE)
    assert can_switch_checkpoint(forth, without()), (
        "and back again, where that was in vain: holders come back in any order"
    )


def test_a_movable_sink_needs_its_state_of_both_epochs() -> None:
    now = lost()
    assignments = tuple(
        msgspec.structs.replace(each, is_pinned=False) if each.role is InstanceRole.SINK else each
        for each in now.plan.assignments
    )
    kept = tuple(
        SavedState(SINK, (msgspec.structs.replace(each.chain[0], replica_nodes=(NodeId(6),)),))
        if each.instance == SINK
        else each
        for each in now.saved
    )
    moves = msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=assignments), saved=kept)
    assert can_switch_checkpoint(moves, without(2, 6, 7)), "its host is there"
    assert not can_switch_checkpoint(moves, without(2, 3, 6, 7)), "no other node knows up to where it has emitted rows"


def moving_source(now: RegisterValue) -> RegisterValue:
    """Its source may move, and may have a log."""
    assignments = tuple(
        msgspec.structs.replace(each, is_pinned=False, has_log=True) if each.role is InstanceRole.SOURCE else each
        for each in now.plan.assignments
    )
    return msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=assignments))


def test_no_rollback_when_a_sources_log_is_lost_with_its_host() -> None:
    now = moving_source(lost())
    assert can_switch_checkpoint(now, without(2, 6, 7)), "its log is there"
    assert not can_switch_checkpoint(now, without(1, 2, 6, 7)), "rows read in between are in that log only"
    assert not can_switch_checkpoint(now, without(2, 6, 7), unfit=(NodeId(1),)), "it would move at once"
    back = now.switched_checkpoint
    assert can_switch_checkpoint(back, without(1)), "that it goes forth does not rest on what was read in between"


@pytest.mark.parametrize("gone", [1, 2])
def test_no_rollback_past_an_attempt_in_which_a_source_moves(gone: int) -> None:
    world = NextAttempt(here := context(5))
    here.lost, here.candidates, here.now = {NodeId(gone): None}, (peer(9),), Instant(SECOND)
    made = world.decide(moving_source(lost())).value
    assert made is not None
    assert made.fallback_checkpoint == (None if gone == 1 else BEFORE)
    here.lost = {NodeId(number): None for number in (2, 6, 7)}
    last = msgspec.structs.replace(made, plan=moving_source(lost()).plan)  # where it runs now says nothing any more
    assert decide_loss(last, without(2, 6, 7), {}, named, may_wait_for_state=False).switches_checkpoint == (gone == 2)


def test_a_source_without_a_log_does_not_prevent_a_rollback() -> None:
    """Its position is in the register, and what it read can be read again anywhere."""
    now = moving_source(lost())
    assignments = tuple(msgspec.structs.replace(each, has_log=False) for each in now.plan.assignments)
    now = msgspec.structs.replace(now, plan=msgspec.structs.replace(now.plan, assignments=assignments))
    assert can_switch_checkpoint(now, without(1, 2, 6, 7))


def test_a_rollback_requests_missing_state_from_present_hosts() -> None:
    """Where the other epoch is away, too, nothing is said, and no way is used up: they wait."""
    now, all_of_it = lost(), {NodeId(2): (NodeId(6), NodeId(7), NodeId(8))}
    assert decide_loss(now, without(6, 7), all_of_it, named, may_wait_for_state=False).switches_checkpoint
    assert not decide_loss(now, without(6, 7, 8), all_of_it, named, may_wait_for_state=False).switches_checkpoint


def test_no_roll_forward_before_the_later_state_is_back() -> None:
    back = msgspec.structs.replace(lost().switched_checkpoint, attempt=2)
    asked = {NodeId(2): (NodeId(7), NodeId(8), NodeId(9))}
    judged = decide_loss(back, without(6, 7, 8), asked, named, may_wait_for_state=False)
    assert (judged.switches_checkpoint, judged.note) == (False, "")
    assert not can_switch_checkpoint(back, without(6, 7, 8)), (
        "also for the host of the earlier one: it lacked the later one"
    )


def committed_after(now: RegisterValue, after: Plan | None = None) -> RegisterValue:
    """The value of the next commit in the attempt of a value."""
    commit_protocol = CommitProtocol(context(), RUN)
    commit_protocol.enter(now)
    commit_protocol.started(now)
    epoch = now.committed.epoch + 1
    commit_protocol.epochs.begun = epoch
    for each in now.plan.assignments:
        answer = wire.Prepared(RUN, now.attempt, epoch, each.instance, SavedState(each.instance), 50, after)
        commit_protocol.prepared(each.host, answer)
    made = commit_protocol.next_value(now)
    assert made is not None
    return made


def test_a_commit_names_the_epoch_available_for_rollback() -> None:
    now = lost()
    assert committed_after(now).fallback_checkpoint == LAST
    assert committed_after(msgspec.structs.replace(now, plan=plan())).fallback_checkpoint is None, (
        "no node has asked for it"
    )
    first = msgspec.structs.replace(now, committed=INITIAL_CHECKPOINT, fallback_checkpoint=None)
    assert committed_after(first).fallback_checkpoint is None, "at the beginning a source may begin elsewhere"
    again = committed_after(msgspec.structs.replace(now.switched_checkpoint, attempt=2))
    assert (again.fallback_checkpoint, again.rolled_back_to, again.before) == (BEFORE, None, now.before), (
        "the checkpoint that it really resumed from"
    )


def test_no_rollback_past_a_change() -> None:
    now = lost()
    assert committed_after(now, going_back(plan(stage=4))).fallback_checkpoint is None


@pytest.mark.parametrize("attempt", [1, 2])
def test_no_rollback_past_a_possible_source_move(attempt: int) -> None:
    now = lost()
    assignments = tuple(msgspec.structs.replace(each, is_pinned=False) for each in now.plan.assignments)
    moves = msgspec.structs.replace(
        now, attempt=attempt, plan=msgspec.structs.replace(now.plan, assignments=assignments)
    )
    assert committed_after(moves).fallback_checkpoint == (LAST if attempt == 1 else None)


def test_hosts_of_sinks_receive_what_the_sinks_had_emitted() -> None:
    here = context(3)
    part = Participant(here, RUN)
    back = msgspec.structs.replace(lost().switched_checkpoint, attempt=2)
    part.on_reset(peer(4), wire.Reset(RUN, Ballot(1, NodeId(4), 1), back))
    (kept,) = [one for one in here.effects if isinstance(one, StoreAttempt)]
    here.answered(kept.request, None, "")
    (enter,) = [one for one in here.effects if isinstance(one, EnterAttempt)]
    assert enter.base == 12, "barriers go on behind what is committed"
    assert [one.chain[0].digest for one in enter.saved] == [b"sink11"]
    assert [one.chain[0].digest for one in enter.emitted] == [b"sink12"]
    assert [end.offset for end in enter.ends] == [40]


def test_a_run_that_continues_without_a_voter_majority_cannot_roll_back() -> None:
    voters = (Voter(peer(4), 4),)
    made, _ = recovered_value(QuorumRecoveryCheck(value=lost()), (), voters, "without those")
    assert (made.fallback_checkpoint, made.before) == (None, ())
    back, _ = recovered_value(QuorumRecoveryCheck(value=lost().switched_checkpoint), (), voters, "without those")
    assert [one.chain[0].digest for one in back.emitted if one.instance == SINK] == [b"sink12"]


def test_values_of_older_formats_are_read() -> None:
    """A voter's file that was written before these fields were."""
    codec: Codec[RegisterValue] = Codec(RegisterValue)
    fields: list[Any] = msgspec.msgpack.decode(encode(value(1, LAST)))
    assert codec.decode(msgspec.msgpack.encode(fields[:-2])) == value(1, LAST)
    assert codec.decode(encode(lost())) == lost()
