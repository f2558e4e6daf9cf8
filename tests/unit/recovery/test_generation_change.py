"""One change of a run: valid requests, second requests, aborts."""

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.attempts.generation_change import (
    ChangeStep,
    GenerationChange,
    next_generation,
    plan_fault,
    with_changeover_pauses,
)
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, CheckpointId, GenerationPause, InstanceId, RunId, Voter
from agiledart_recovery.wire.observations import ChangeMeasured
from agiledart_recovery.wire.register_value import (
    Assignment,
    ChangeOutcome,
    InstanceRole,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    SavedState,
    StageChange,
)

RUN = RunId("taxi", 1)
HERE, THERE = Peer(NodeId(1), 1, "pi1"), Peer(NodeId(2), 1, "pi2")
BEFORE = Plan(
    (
        Assignment(InstanceId("S"), InstanceRole.SOURCE, HERE),
        Assignment(InstanceId("X", 1), InstanceRole.STAGE, HERE),
        Assignment(InstanceId("K"), InstanceRole.SINK, HERE),
    ),
    (("S", "X"), ("X", "K")),
)
VALUE = RegisterValue(RUN, 0, 1, BEFORE, CheckpointId(1, 3), (Voter(HERE, 7),))


def grown(generation: int = 2, count: int = 2) -> Plan:
    many = tuple(Assignment(InstanceId("X", generation, index), InstanceRole.STAGE, THERE) for index in range(count))
    change = StageChange("X", generation, 1, count, "scale", "a user")
    return msgspec.structs.replace(
        BEFORE, assignments=(BEFORE.assignments[0], *many, BEFORE.assignments[2]), changes=(change,)
    )


def generation_change() -> tuple[GenerationChange, RecoveryContext]:
    context = RecoveryContext(HERE, RecoveryConfig(), RandomStream(1), ignore)
    return GenerationChange(context, RUN), context


def test_only_a_fresh_generation_of_a_whole_stage_is_valid() -> None:
    assert plan_fault(VALUE, grown()) == ""
    assert "can't take the generation" in plan_fault(VALUE, grown(generation=1))
    old = StageChange("X", 2, 1, 2, fate=ChangeOutcome.DROPPED)
    assert "can't take the generation" in plan_fault(msgspec.structs.replace(VALUE, changes=(old,)), grown())
    assert next_generation(msgspec.structs.replace(VALUE, changes=(old,)), "X") == 3
    assert "changes no stage" in plan_fault(VALUE, BEFORE)
    unsaid = msgspec.structs.replace(
        grown(), assignments=(msgspec.structs.replace(BEFORE.assignments[0], host=THERE), *grown().assignments[1:])
    )
    assert "does not list" in plan_fault(VALUE, unsaid)
    assert "differently" in plan_fault(VALUE, msgspec.structs.replace(grown(), edges=()))


def test_a_second_change_is_refused_with_the_one_in_progress() -> None:
    one, context = generation_change()
    assert one.want(VALUE, grown()) == ""
    context.now = Instant(3 * SECOND)
    assert one.want(VALUE, grown()) == "scale of X is under way since 3 s"
    other, _ = generation_change()
    assert other.want(one.with_pending_changes(VALUE), grown(3)) == "scale of X is under way"


def test_a_host_that_refuses_aborts_the_change_and_all_hosts_are_notified() -> None:
    one, context = generation_change()
    one.want(VALUE, grown())
    one.on_tick(VALUE, Ballot(1), (HERE.node, THERE.node), "")
    asked = [each.message for each in context.effects if isinstance(each, Send)] + context.outbox
    assert [type(each) for each in asked] == [wire.ProposeGeneration, wire.ProposeGeneration]
    context.effects, context.outbox = [], []
    one.on_ready(THERE, wire.GenerationReady(RUN, 1, grown().digest, "pi2 is full"))
    told = [each.message for each in context.effects if isinstance(each, Send)] + context.outbox
    assert told == [wire.GenerationDropped(RUN, 1, grown().digest)] * 2
    (note,) = one.with_pending_changes(VALUE).changes
    assert (note.fate, note.why, one.step) == (ChangeOutcome.DROPPED, "pi2 is full", ChangeStep.IDLE)


def test_one_epoch_passes_and_the_register_is_written_before_the_change() -> None:
    one, _ = generation_change()
    one.want(VALUE, grown())
    for peer in (HERE, THERE):
        one.on_ready(peer, wire.GenerationReady(RUN, 1, grown().digest))
    assert one.wants_epoch
    assert not one.is_due(VALUE, SECOND)
    one.committed(VALUE, is_change=False)
    assert not one.is_due(VALUE, SECOND), "the register does not say yet that it runs"
    known = one.with_pending_changes(VALUE)
    assert one.is_due(known, SECOND)
    assert not one.is_due(known, 3 * SECOND)
    one.committed(known, is_change=False)
    one.committed(known, is_change=False)
    assert one.is_due(known, 3 * SECOND), "three are enough"
    assert one.carry() == grown()
    done = one.in_commit(known, grown(), is_last=False)
    assert [change.fate for change in done.changes] == [ChangeOutcome.DONE]
    lost = one.in_next_attempt(known, "pi2 was lost")
    assert [(change.fate, change.why) for change in lost.changes] == [(ChangeOutcome.ROLLED_BACK, "pi2 was lost")]


def test_another_commit_ends_the_change_of_a_lost_coordinator() -> None:
    lost, _ = generation_change()
    lost.want(VALUE, grown())
    heir, _ = generation_change()
    after = heir.in_commit(lost.with_pending_changes(VALUE), BEFORE, is_last=False)
    assert [(change.fate, change.why) for change in after.changes] == [
        (ChangeOutcome.DROPPED, "its coordinator was lost")
    ]


def answer(stage: str, *changeover_pauses: GenerationPause) -> wire.Prepared:
    return wire.Prepared(
        RUN, 1, 4, InstanceId(stage), SavedState(InstanceId(stage)), changeover_pauses=changeover_pauses
    )


def test_the_longest_pause_that_senders_report_stays_with_the_change() -> None:
    done, let_go = (
        StageChange("X", 2, 1, 2, fate=ChangeOutcome.DONE),
        StageChange("X", 3, 2, 3, fate=ChangeOutcome.DROPPED),
    )
    before = msgspec.structs.replace(VALUE, changes=(done, let_go))
    told = (
        answer("S", GenerationPause("X", 2, 40)),
        answer("T", GenerationPause("X", 2, 70)),
        answer("U", GenerationPause("X", 3, 900)),
    )
    value = with_changeover_pauses(before, told)
    assert [each.changeover_pause_ns for each in value.changes] == [70, 0], "an unfinished change has none"
    again = with_changeover_pauses(value, (answer("S", GenerationPause("X", 2, 50), GenerationPause("Y", 2, 99)),))
    assert [each.changeover_pause_ns for each in again.changes] == [70, 0], (
        "a shorter one, or one of a stage that did not change, says nothing"
    )
    one, context = generation_change()
    seen: list[object] = []
    context.observe = seen.append  # type: ignore[method-assign, assignment]
    one.written(before, value)
    one.written(value, again)
    assert seen == [ChangeMeasured(RUN, value.changes[0])]


def hastening() -> tuple[GenerationChange, RecoveryContext]:
    """All are ready; the state to be taken over is built at one of them, as of the committed epoch."""
    one, context = generation_change()
    one.want(VALUE, grown())
    one.on_ready(HERE, wire.GenerationReady(RUN, 1, grown().digest))
    one.on_ready(THERE, wire.GenerationReady(RUN, 1, grown().digest, builds=True, epoch=3))
    return one, context


def committed(epoch: int) -> RegisterValue:
    return msgspec.structs.replace(VALUE, committed=CheckpointId(1, epoch))


def test_the_next_epoch_waits_until_the_last_one_is_built() -> None:
    one, _ = hastening()
    before = one.wants_epoch
    one.committed(committed(4), is_change=False)
    known = one.with_pending_changes(committed(4))
    assert (before, one.wants_epoch) == (True, False)
    assert not one.is_due(known, SECOND)
    for told in (
        (THERE, wire.GenerationReady(RUN, 1, grown().digest, builds=True, epoch=3)),
        (HERE, wire.GenerationReady(RUN, 1, grown().digest)),
    ):
        one.on_ready(*told)
        assert not one.is_due(known, SECOND)
    one.on_ready(THERE, wire.GenerationReady(RUN, 1, grown().digest, builds=True, epoch=4))
    assert one.is_due(known, SECOND)


def test_a_host_that_does_not_build_in_time_is_named() -> None:
    one, context = hastening()
    one.committed(committed(4), is_change=False)
    context.now = Instant(context.config.prepare_timeout_ns)
    one.on_tick(committed(4), Ballot(1), (HERE.node, THERE.node), "")
    (note,) = one.with_pending_changes(VALUE).changes
    assert (note.fate, note.why) == (ChangeOutcome.DROPPED, "pi2 were not ready in 60 s")


def test_a_host_that_makes_progress_gets_more_time() -> None:
    one, context = generation_change()
    one.want(VALUE, grown())
    patience = context.config.prepare_timeout_ns
    for number, got in enumerate((10, 20), 1):
        context.now = Instant(number * (patience - SECOND))
        one.on_progress(THERE, wire.GenerationProgress(RUN, 1, grown().digest, got, 100))
        one.on_tick(VALUE, Ballot(1), (HERE.node, THERE.node), "")
        assert one.plan.changes
    one.on_progress(THERE, wire.GenerationProgress(RUN, 1, b"another", 90, 100))
    context.now = Instant(3 * (patience - SECOND))
    one.on_progress(THERE, wire.GenerationProgress(RUN, 1, grown().digest, 20, 100))
    one.on_progress(Peer(NodeId(9), 1, "pi9"), wire.GenerationProgress(RUN, 1, grown().digest, 90, 100))
    context.now = Instant(2 * (patience - SECOND) + patience)
    one.on_tick(VALUE, Ballot(1), (HERE.node, THERE.node), "")
    assert not one.listeners, "the same again is not farther"


def test_hosts_of_a_change_are_notified_of_commits() -> None:
    one, _ = hastening()
    assert list(one.listeners) == [HERE.node, THERE.node]
    one.carry()
    assert not one.listeners


def told_of(one: GenerationChange, *got: int) -> None:
    for each in got:
        one.on_progress(THERE, wire.GenerationProgress(RUN, 1, grown().digest, each, 100))


def test_the_same_bytes_in_each_further_epoch_are_no_progress() -> None:
    """Behind the last extra epoch, for otherwise epochs could follow each other for ever."""
    one, context = hastening()
    for epoch in range(4, 10):
        one.committed(committed(epoch), is_change=False)
        told_of(one, 0, 50)
    deadline = one._deadline
    context.now = Instant(SECOND)
    one.committed(committed(10), is_change=False)
    told_of(one, 0, 50)
    assert one._deadline == deadline
    told_of(one, 60)
    assert one._deadline == deadline + SECOND


def test_a_host_with_much_to_build_may_stall_for_longer() -> None:
    """No host reports how much of the fetched state is built."""
    chain = tuple(InstanceSnapshot(CheckpointId(1, epoch), b"%d" % epoch, 50_000_000, 1, ()) for epoch in (2, 3))
    others = SavedState(InstanceId("K"), (InstanceSnapshot(CheckpointId(1, 3), b"k", 900_000_000, 1, ()),))
    value = msgspec.structs.replace(VALUE, saved=(SavedState(InstanceId("X", 1), chain), others))
    one, context = generation_change()
    one.want(value, grown())
    told_of(one, 100)
    context.now = Instant(context.config.prepare_timeout_ns + 99 * SECOND)
    one.on_tick(value, Ballot(1), (HERE.node, THERE.node), "")
    assert one.plan.changes, "a second a megabyte"
    context.now = Instant(context.config.prepare_timeout_ns + 100 * SECOND)
    one.on_tick(value, Ballot(1), (HERE.node, THERE.node), "")
    (note,) = one.with_pending_changes(value).changes
    assert note.why == "pi1, pi2 were not ready in 160 s"
