"""A host enters an attempt: no message that arrives meanwhile is lost, and no instance starts that could not be stopped."""

import msgspec
import pytest

from agiledart_dataflow.plan.deployment import DOES_NOT_FIT, InstanceAddress, RestoreFrom, SnapshotChain
from agiledart_kernel.machine import Completed, Failed
from agiledart_node.recovery.hosted_run import MAX_ATTEMPTS_AHEAD, restore_from
from agiledart_node.wire.checkpoint_effects import FetchSnapshot
from agiledart_node.wire.effects import KeepFile, LinkInstances, StartInstances
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.fragment_effects import FindSnapshot
from agiledart_node.wire.recovery_messages import AttemptListening
from agiledart_overlay.wire.events import LeaveRing
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import EnterAttempt
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, SavedState
from tests.unit.node.test_node import ME, SCHEDULER
from tests.unit.node.test_stage_changes import RUN, SINK, InLife

AT, LATER = CheckpointId(1, 1), CheckpointId(1, 2)
HELD = SavedState(InstanceId("1", 1, 0), (InstanceSnapshot(CheckpointId(1, 1), b"hash", 10, 1, (SCHEDULER.node,)),))


def reset(bench: InLife, attempt: int) -> None:
    """The next attempt, from epoch 1 on."""
    bench.take()
    value = msgspec.structs.replace(bench.value, attempt=attempt, committed=CheckpointId(1, 1), saved=(HELD,))
    bench.hear(SCHEDULER, wire.Reset(RUN, Ballot(2, SCHEDULER.node, 1), value))
    for kept in bench.of(KeepFile):
        bench.feed(Completed(kept.request, None))


def listens(bench: InLife, request: int, attempt: int) -> bool:
    """Whether the host of the sink need not say again that it listens."""
    bench.hear(SCHEDULER, AttemptListening(request, "app", 1, attempt, (InstanceAddress(2, 0, "10.0.0.2:9"),)))
    return Acknowledged(request) in bench.told(SCHEDULER)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_run_being_ended_does_not_start_when_its_state_arrives(leaves: bool) -> None:
    bench = InLife()
    reset(bench, 2)
    (find,) = bench.of(FindSnapshot)
    if leaves:
        bench.feed(LeaveRing())
    bench.feed(Completed(find.request, True))
    assert bool(bench.of(StartInstances)) is not leaves
    refused = [each.reason for each in bench.said(wire.ResetRefused)]
    assert refused == (["app is being stopped on me"] if leaves else [])


def test_a_host_repeats_its_addresses_for_an_attempt_that_had_no_capacity_yet() -> None:
    """Otherwise a host that saw many attempts early would wait for an address that is never sent again."""
    bench = InLife()
    last = MAX_ATTEMPTS_AHEAD + 2
    known = [listens(bench, 50 + attempt, attempt) for attempt in range(2, last + 1)]
    assert known == [True] * MAX_ATTEMPTS_AHEAD + [False]
    reset(bench, last)
    (find,) = bench.of(FindSnapshot)
    bench.feed(Completed(find.request, True))
    (start,) = bench.of(StartInstances)
    bench.feed(Completed(start.request, {(1, 0): "10.0.0.1:1"}))
    assert not bench.of(LinkInstances)
    assert listens(bench, 99, last)
    (link,) = bench.of(LinkInstances)
    assert link.addresses == (SINK,)
    assert listens(bench, 100, last - 1), "a past attempt needs no report"


BROUGHT = SavedState(InstanceId("1", 0, 3), (InstanceSnapshot(CheckpointId(0, 0), b"hash", 10, 1, (SCHEDULER.node,)),))


def begins(bench: InLife) -> FetchSnapshot:
    """A run that begins with a checkpoint enters its first attempt."""
    bench.take()
    value = msgspec.structs.replace(
        bench.value, attempt=2, committed=CheckpointId(0, 0), saved=(BROUGHT,), before=(), origin="steps"
    )
    bench.hear(SCHEDULER, wire.Reset(RUN, Ballot(2, SCHEDULER.node, 1), value))
    for kept in bench.of(KeepFile):
        bench.feed(Completed(kept.request, None))
    (find,) = bench.of(FindSnapshot)
    bench.feed(Completed(find.request, False))
    bring: FetchSnapshot
    (bring,) = bench.of(FetchSnapshot)
    return bring


def test_a_run_from_a_checkpoint_fetches_it_from_the_node_that_was_asked() -> None:
    bench = InLife()
    bring = begins(bench)
    assert (bring.replica_node, bring.run, bring.digest) == (SCHEDULER, RUN, b"hash")
    bench.feed(Completed(bring.request, None))
    (start,) = bench.of(StartInstances)
    assert start.since == RestoreFrom(0, (SnapshotChain(1, 3, b"hash"),), "steps")


def test_a_failed_checkpoint_fetch_names_its_source_node() -> None:
    bench = InLife()
    bench.feed(Failed(begins(bench).request, "refused: it does not lie here"))
    (refused,) = bench.said(wire.ResetRefused)
    assert "the checkpoint with which 1.3 begins is on" in refused.reason
    assert "does not lie here" in refused.reason
    assert refused.lacks == (SCHEDULER.node,)


@pytest.mark.parametrize("fits", [True, False])
def test_a_state_that_does_not_fit_fails_the_run_without_retry(fits: bool) -> None:
    bench = InLife()
    told: list[str] = []
    bench.node.recovery_service.closed = lambda hosted, state, reason: told.append(f"{state}: {reason}")
    bench.feed(Completed(begins(bench).request, None))
    (start,) = bench.of(StartInstances)
    why = "no room" if fits else f"sums {DOES_NOT_FIT}: another form"
    bench.feed(Failed(start.request, why))
    assert told == ([] if fits else [f"failed: {why}"])


def test_an_attempt_from_an_earlier_epoch_reports_rows_its_sinks_had_emitted() -> None:
    earlier, later = (
        SavedState(InstanceId("2", 1, 0), (InstanceSnapshot(at, at.epoch.to_bytes(), 10, 1, ()),)) for at in (AT, LATER)
    )
    effect = EnterAttempt(1, RUN, 3, LATER.epoch, Plan(()), (), (earlier,), (), (later,))
    assert restore_from(effect, LATER.epoch) == RestoreFrom(
        2, (SnapshotChain(2, 0, b"\1"),), emitted_rows=(SnapshotChain(2, 0, b"\2"),)
    )


def test_an_attempt_waits_for_state_on_a_single_node_and_names_that_node() -> None:
    """Formerly such an attempt could not be entered, again and again, with messages about fragments that never existed."""
    bench = InLife()
    bench.take()
    only_here = SavedState(InstanceId("1", 1, 0), (InstanceSnapshot(AT, b"\xabhash", 10, 1, ()),))
    value = msgspec.structs.replace(bench.value, attempt=2, committed=AT, saved=(only_here,))
    bench.hear(SCHEDULER, wire.Reset(RUN, Ballot(2, SCHEDULER.node, 1), value))
    for kept in bench.of(KeepFile):
        bench.feed(Completed(kept.request, None))
    (find,) = bench.of(FindSnapshot)
    bench.feed(Completed(find.request, False))
    (refused,) = bench.said(wire.ResetRefused)
    assert refused.lacks == (ME.node,)
    assert "what the stage areas saved at epoch 1 is damaged or gone on" in refused.reason
    assert "elements/ab68617368" in refused.reason
