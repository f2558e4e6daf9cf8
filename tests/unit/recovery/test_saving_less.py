"""A run that saves less begins no epoch while no rows come, makes no fragments of small snapshots, and ends at once."""

import msgspec
import pytest

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.attempts.coordinator import Coordinator, Phase
from agiledart_recovery.attempts.generation_change import ChangeStep
from agiledart_recovery.attempts.replanning import missing_replica_nodes
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import CommitCheckpoint, SendFragment, VoterFile
from agiledart_recovery.wire.events import InstanceRowsPassed, SnapshotTaken
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue, RunState, SavedState
from tests.unit.recovery.bench import RUN, context, peer, plan, value
from tests.unit.recovery.test_chains import in_life
from tests.unit.recovery.test_machine import carry_out

STAGE = InstanceId("stage")
LESS = msgspec.structs.replace(value(1, CheckpointId(1, 3)), saves_less=True)
CONTENT = InstanceSnapshot(CheckpointId(1, 3), b"hash", 4, 1, (), b"1234")


class Coordinated:
    """A run whose hosts are in the attempt, at second 100."""

    def __init__(self, known: RegisterValue) -> None:
        self.context, self.value = context(), known
        self.context.now = Instant(100 * SECOND)
        self.commit_protocol = CommitProtocol(self.context, RUN)
        self.commit_protocol.enter(known)
        for host in known.plan.hosts.values():
            self.commit_protocol.answered(host, wire.ResetOk(RUN, 1, 3, ()))
        self.commit_protocol.started(known)

    def begins(self, after: int) -> bool:
        """Whether a tick so many seconds later begins an epoch; it is committed then."""
        self.context.now = Instant(self.context.now + after * SECOND)
        begun = self.commit_protocol.epochs.begun
        assert self.commit_protocol.on_tick(self.value, Ballot(1)) == ""
        self.commit_protocol.epochs.committed = self.commit_protocol.epochs.begun
        return self.commit_protocol.epochs.begun > begun


def test_no_epoch_begins_while_no_rows_come() -> None:
    run = Coordinated(LESS)
    assert run.begins(10), "the first epoch of an attempt shows that it works"
    assert not run.begins(10)
    assert not run.begins(3_600)
    assert run.commit_protocol.is_idle(run.value)
    run.commit_protocol.on_rows_passed(wire.RowsPassed(RUN, 2))
    assert not run.begins(10), "rows of another attempt"
    run.commit_protocol.on_rows_passed(wire.RowsPassed(RUN, 1))
    assert not run.commit_protocol.is_idle(run.value)
    assert run.begins(0), "the interval has long passed"
    assert not run.begins(10), "these rows are saved"


def test_a_request_begins_an_epoch_without_rows() -> None:
    run = Coordinated(LESS)
    assert run.begins(10)
    run.commit_protocol.want_epoch()
    assert run.begins(1)
    run.commit_protocol.hold()
    assert run.begins(0)


def test_a_change_in_preparation_begins_no_epoch_without_rows() -> None:
    """Hosts preload the committed state; each further epoch would start that anew."""
    run = Coordinated(LESS)
    assert run.begins(10)
    run.commit_protocol.generation_change.step = ChangeStep.PREPARING
    run.commit_protocol.generation_change.plan = plan()
    run.commit_protocol.generation_change._deadline = Instant(1_000 * SECOND)
    assert not run.begins(10)
    run.commit_protocol.on_rows_passed(wire.RowsPassed(RUN, 1))
    assert run.begins(10)


def test_an_aborted_epoch_is_made_up_for() -> None:
    run = Coordinated(LESS)
    assert run.begins(10)
    run.commit_protocol.on_rows_passed(wire.RowsPassed(RUN, 1))
    run.context.now = Instant(run.context.now + 10 * SECOND)
    run.commit_protocol.on_tick(run.value, Ballot(1))
    run.context.now = Instant(run.context.now + 60 * SECOND)
    run.commit_protocol.on_tick(run.value, Ballot(1))  # too late: it is aborted, and its rows wait
    assert run.begins(1)


def test_other_runs_begin_an_epoch_at_each_interval() -> None:
    run = Coordinated(value(1, CheckpointId(1, 3)))
    assert run.begins(10)
    assert run.begins(10)


def test_a_host_reports_rows_once_for_each_epoch_and_again_when_the_report_may_be_lost() -> None:
    made = in_life(LESS)

    def reports(second: float) -> int:
        effects = made.step(InstanceRowsPassed(RUN), Instant(round(second * SECOND)))
        return sum(isinstance(each, Send) and isinstance(each.message, wire.RowsPassed) for each in effects)

    assert reports(1) == 1
    assert reports(1.5) == 0
    assert reports(4) == 0
    assert reports(6.5) == 1, "half an interval later"
    after = msgspec.structs.replace(LESS, committed=CheckpointId(1, 4))
    (commit,) = [
        each
        for each in made.step(_received(wire.Committed(RUN, 1, after)), Instant(7 * SECOND))
        if isinstance(each, CommitCheckpoint)
    ]
    carry_out(made, [commit])
    assert reports(7.5) == 1


def test_a_host_of_another_run_reports_none() -> None:
    made = in_life(value(1, CheckpointId(1, 3)))
    assert not made.step(InstanceRowsPassed(RUN), Instant(SECOND))


def _received(message: wire.RunMessage) -> Received:
    return Received(peer(1), message)


def test_a_snapshot_that_the_register_holds_has_no_fragments() -> None:
    made = in_life(LESS)
    event = SnapshotTaken(RUN, STAGE, CheckpointId(1, 4), b"hash", 4, content=b"1234")
    effects = made.step(event, Instant(0))
    assert not any(isinstance(each, SendFragment) for each in effects)
    (prepared,) = [
        each.message for each in effects if isinstance(each, Send) and isinstance(each.message, wire.Prepared)
    ]
    assert prepared.saved == SavedState(STAGE, (InstanceSnapshot(CheckpointId(1, 4), b"hash", 4, 1, (), b"1234"),))


def test_an_instance_with_its_snapshot_in_the_register_may_run_anywhere() -> None:
    lost = next(each for each in LESS.plan.assignments if each.instance == STAGE)
    assert missing_replica_nodes(LESS, lost, lambda node: False), "its replica nodes are gone, too"
    held = msgspec.structs.replace(LESS, saved=(SavedState(STAGE, (CONTENT,)),))
    assert not missing_replica_nodes(held, lost, lambda node: False)


def test_content_of_the_previous_epoch_leaves_the_register() -> None:
    outside = SavedState(InstanceId("sink"), (InstanceSnapshot(CheckpointId(1, 3), b"other", 9, 1, (NodeId(6),)),))
    held = msgspec.structs.replace(LESS, saved=(SavedState(STAGE, (CONTENT,)), outside))
    assert held.saved_outside == (outside,)


@pytest.mark.parametrize("saves_less", [True, False])
def test_the_end_is_reported_with_the_answer_of_the_last_host_and_not_with_a_tick(saves_less: bool) -> None:
    """Each run that is saved took up to half a second longer until then."""
    mine = context()
    coordinator = Coordinator(mine, VoterSlot(mine, VoterFile(RUN, 1)))
    ended = msgspec.structs.replace(value(1, CheckpointId(1, 4)), state=RunState.FINISHED, saves_less=saves_less)
    coordinator.proposer.begin(ended)
    coordinator.proposer.value, coordinator.proposer.phase = ended, Hold.LEADING
    coordinator._state.phase = Phase.CLOSING
    coordinator.commit_protocol.enter(ended)
    hosts = list(ended.plan.hosts.values())
    for host in hosts:
        assert not coordinator.is_over
        coordinator.on_committed_ok(host, wire.CommittedOk(RUN, 1, ended.committed))
    assert coordinator.is_over
