"""A host that is restarted in the second in which its run ends, and a run that is restarted while it is drained."""

from typing import Any

import msgspec
import pytest

from agiledart_dataflow.plan.deployment import DeploymentPart, InstancePlace, PlacedInstance
from agiledart_kernel.codec import encode
from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.machine import Completed, Failed, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.records.application import FINISHED, RUNNING, STOPPED, ApplicationRecord, StageEntry
from agiledart_node.records.records import Records
from agiledart_node.recovery.register_bootstrap import plan_of
from agiledart_node.wire.commands import Stop
from agiledart_node.wire.effects import CommitLogs, DrainLocalSources, ForgetRun, Replied, StartLocalSources
from agiledart_node.wire.events import RunsFound, StoredFile, UserRequest
from agiledart_node.wire.formation_messages import Acknowledged, Drain, Halt, QueryReports, Reports, RequestStop
from agiledart_node.wire.recovery_messages import RunClosed
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import AttemptFile
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId, Voter
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue, RunState, SavedState
from tests.unit.node.test_node import ME, SCHEDULER, Bench, part
from tests.unit.node.test_stage_changes import RUN, STAGES

OTHER = Peer(NodeId(11 << 120), 1, "other")
SHOWN = SavedState(InstanceId("2", 1, 0), (InstanceSnapshot(CheckpointId(1, 4), b"sink", 10, 1, ()),))
PLACES = (InstancePlace(0, 0, 1), InstancePlace(1, 0, 1), InstancePlace(2, 0, 0))
"""The source and the stage at the scheduler, the sink here."""


class Sinks(Bench):
    """A node whose disk has the sink of a run, and which was just started; all of the ring is this node."""

    def __init__(self, *, by_epoch: bool = True) -> None:
        super().__init__()
        self.part = self.made(by_epoch=by_epoch)
        made = self.part
        record = ApplicationRecord("app", 1, made.number, 7, RUNNING, SCHEDULER, coordinator=ME, by_epoch=by_epoch)
        record = msgspec.structs.replace(
            record,
            nodes=made.nodes,
            assignment=made.assignment,
            stages=tuple(StageEntry(stage.name, 1, stage.kind) for stage in STAGES.stages),
        )
        self.begin(self.node.parts.records.create(0, record))
        assert self.record.state == RUNNING
        places = {(0, 0): SCHEDULER, (1, 0): SCHEDULER, (2, 0): ME}
        self.value = RegisterValue(
            RUN, 0, 1, plan_of(encode(STAGES), places), CheckpointId(1, 4), (Voter(SCHEDULER, 7),), saved=(SHOWN,)
        )

    @staticmethod
    def made(**fields: Any) -> DeploymentPart:
        return part(plan=encode(STAGES), instances=(PlacedInstance(2, 0),), assignment=PLACES, coordinator=ME, **fields)

    def begin(self, conversation: Any) -> None:
        self.node.parts.context.requests.begin(conversation)
        self.feed(TimerFired("nothing"))  # effects come with a step

    @property
    def record(self) -> ApplicationRecord:
        found: list[ApplicationRecord] = []

        async def read() -> None:
            _, record = await self.node.parts.records.application("app")
            assert record is not None
            found.append(record)

        self.begin(read())
        return found[0]

    def restarted(self) -> None:
        files = (
            StoredFile("app", 1, "part", encode(self.part)),
            StoredFile("app", 1, "life", encode(AttemptFile(RUN, 1))),
        )
        self.feed(RunsFound(files))

    def wait(self, seconds: float) -> None:
        """Timers that were set so far and are due by then."""
        until = self.now + round(seconds * SECOND)
        timers = sorted((one.at, number, one.name) for number, one in enumerate(self.of(SetTimer)) if one.at <= until)
        for at, _, name in timers:
            self.now = max(self.now, at)
            self.effects += self.node.step(TimerFired(name), Instant(self.now))
        self.now = until

    def rest(self, seconds: int) -> None:
        """Let time pass, and let others report their figures; each timer is due once."""
        for _ in range(10 * seconds):
            self.wait(0.1)
            self.effects = [each for each in self.effects if not isinstance(each, SetTimer) or each.at > self.now]
            for asked in [each for each in self.told(SCHEDULER) if isinstance(each, QueryReports)]:
                self.hear(SCHEDULER, Reports(asked.request, {}))

    def ended(self, state: RunState = RunState.FINISHED) -> None:
        self.take()
        value = msgspec.structs.replace(self.value, state=state)
        self.hear(SCHEDULER, wire.Committed(RUN, 1, value))

    def is_audited(self, number: int, state: str = "finished") -> bool:
        """Whether this node says that it has noted the end."""
        self.hear(SCHEDULER, RunClosed(number, "app", 1, state))
        return Acknowledged(number) in self.told(SCHEDULER)


def test_a_sink_restarted_at_the_end_emits_its_last_epoch_and_records_the_end() -> None:
    bench = Sinks()
    bench.restarted()
    assert not bench.is_audited(1), "it does not know yet what the register says"
    bench.ended()
    (commit,) = bench.of(CommitLogs)
    assert (commit.application, commit.epoch, commit.digests) == ("app", 4, (b"sink",))
    assert not bench.is_audited(2)
    bench.feed(Failed(commit.request, "the log is still being written"))
    assert not [each for each in bench.told(SCHEDULER) if isinstance(each, wire.CommittedOk)]
    bench.ended()
    (commit,) = bench.of(CommitLogs)
    bench.feed(Completed(commit.request, None))
    assert [each for each in bench.told(SCHEDULER) if isinstance(each, wire.CommittedOk)]
    assert not bench.is_audited(3), "when it has noted it"
    bench.wait(4)
    (asked,) = [each for each in bench.told(SCHEDULER) if isinstance(each, QueryReports)]
    bench.hear(SCHEDULER, Reports(asked.request, {}))
    assert bench.record.state == FINISHED
    assert [each for each in bench.told(SCHEDULER) if isinstance(each, Halt)]
    assert bench.of(ForgetRun) == [ForgetRun("app", 1, (b"sink",))]
    assert bench.is_audited(4)


def test_an_end_is_recorded_when_the_ring_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other node records it: giving up after a while would leave the run in its record for ever."""
    bench = Sinks()
    bench.restarted()
    bench.ended()
    (commit,) = bench.of(CommitLogs)
    bench.feed(Completed(commit.request, None))
    assert not bench.is_audited(1)

    async def silent(_: object, name: str) -> Any:
        raise CommandRefused(f"the ring does not say what {name} is")

    with monkeypatch.context() as patch:
        patch.setattr(Records, "_written", silent)
        bench.rest(150)
        assert not bench.is_audited(2)
        assert not bench.of(ForgetRun)
    bench.rest(60)
    assert bench.record.state == FINISHED
    assert bench.is_audited(3)


def test_a_sink_restarted_after_its_run_failed_records_the_failure() -> None:
    bench = Sinks()
    bench.restarted()
    assert not bench.is_audited(1, "failed")
    bench.ended(RunState.FAILED)
    assert not bench.of(CommitLogs), "nothing counts that was not committed before"
    assert not bench.is_audited(2, "failed")
    assert bench.record.state == "failed"
    bench.wait(4)
    assert bench.is_audited(3, "failed")
    (forget,) = bench.of(ForgetRun)
    assert forget == ForgetRun("app", 1, (b"sink",), "app was ended"), "files that its sinks had begun get their names"


def test_a_node_that_does_not_know_a_run_blocks_nothing() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, RunClosed(1, "app", 1, "finished"))
    assert bench.told(SCHEDULER) == [Acknowledged(1)]


def test_another_host_records_the_end_for_a_lost_one() -> None:
    bench, noted = Sinks(), list[str]()
    bench.node.parts.hosting.adopt(msgspec.structs.replace(bench.part, coordinator=OTHER))
    bench.node.recovery_service.closed = lambda hosted, state, reason: noted.append(state)
    assert bench.is_audited(1), "that is for another host to note"
    assert not noted
    bench.hear(SCHEDULER, RunClosed(2, "app", 1, "finished", is_substitute=True))
    assert noted == ["finished"]
    assert Acknowledged(2) not in bench.told(SCHEDULER), "when it has noted it"


# ---- drained, and restarted meanwhile


def in_second_life(bench: Sinks) -> None:
    """The coordinator of the ends enters a second attempt with all hosts."""
    bench.restarted()
    later = msgspec.structs.replace(bench.value, attempt=2)
    bench.hear(SCHEDULER, wire.Reset(RUN, Ballot(2, SCHEDULER.node, 1), later))
    hosted = bench.node.parts.hosting.adopt(bench.part)
    hosted.has_register = True
    hosted.begin_again({(2, 0): 0}, 2)
    bench.take()


def stopping(bench: Sinks) -> None:
    change = bench.node.parts.records.change
    bench.begin(change("app", 1, lambda record: msgspec.structs.replace(record, stopping=True)))


@pytest.mark.parametrize("wished", [False, True])
def test_a_drain_request_persists_into_the_next_attempt(wished: bool) -> None:
    bench = Sinks()
    in_second_life(bench)
    if wished:
        stopping(bench)
    hosted = bench.node.parts.hosting.table["app", 1]
    bench.node.parts.hosting.flow(hosted)
    bench.node.recovery_service.attempt_records.record_attempt(hosted, 2)
    bench.feed(TimerFired("nothing"))
    assert bench.of(StartLocalSources)
    assert bench.record.attempt == 2
    drained = [each for each in bench.told(SCHEDULER) if isinstance(each, Drain)]
    assert bool(drained) is wished


def test_a_source_that_missed_the_drain_finds_it_in_the_record_once() -> None:
    bench = Sinks()
    in_second_life(bench)
    hosted = bench.node.parts.hosting.table["app", 1]
    bench.node.parts.hosting.flow(hosted)
    bench.begin(bench.node.parts.watching._goes_on(hosted, bench.record))
    assert not bench.of(DrainLocalSources)
    stopping(bench)
    for _ in range(2):
        bench.begin(bench.node.parts.watching._goes_on(hosted, bench.record))
    assert bench.of(DrainLocalSources) == [DrainLocalSources("app", 1)]
    hosted.begin_again({(2, 0): 0}, 3)
    bench.begin(bench.node.parts.watching._goes_on(hosted, bench.record))
    assert len(bench.of(DrainLocalSources)) == 2, "another life has read on"


def elsewhere(bench: Sinks, coordinator: Peer) -> None:
    change = bench.node.parts.records.change
    bench.begin(change("app", 1, lambda record: msgspec.structs.replace(record, coordinator=coordinator)))
    bench.take()


def test_a_stop_reaches_the_current_coordinator() -> None:
    bench = Sinks(by_epoch=False)
    elsewhere(bench, SCHEDULER)
    bench.feed(UserRequest(5, Stop("app"), "a user", Principal("admin")))
    (question,) = [each for each in bench.told(SCHEDULER) if not isinstance(each, RequestStop)]
    bench.hear(SCHEDULER, Acknowledged(question.request))  # type: ignore[attr-defined]
    (asked,) = [each for each in bench.told(SCHEDULER) if isinstance(each, RequestStop)]
    elsewhere(bench, OTHER)
    bench.hear(SCHEDULER, Acknowledged(asked.request, "not here"))
    bench.wait(100 * MILLISECOND / SECOND)
    assert [each for each in bench.told(OTHER) if isinstance(each, RequestStop)]


def test_a_restarting_run_is_drained_once_it_has_restarted() -> None:
    """Its coordinator was restarted, so no node takes the request: the record has it."""
    bench = Sinks()
    elsewhere(bench, SCHEDULER)
    bench.feed(UserRequest(5, Stop("app"), "a user", Principal("admin")))
    for question in [each for each in bench.told(SCHEDULER) if not isinstance(each, RequestStop)]:
        bench.hear(SCHEDULER, Acknowledged(question.request))  # type: ignore[attr-defined]
    (asked,) = [each for each in bench.told(SCHEDULER) if isinstance(each, RequestStop)]
    bench.hear(SCHEDULER, Acknowledged(asked.request, "not here"))
    assert bench.record.stopping
    assert not bench.of(Replied), "it has not ended"
    assert bench.record.state != STOPPED
