"""A change at its coordinator: the epoch that carries it begins when no host is waited for, and one epoch is begun at a time."""

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Effect, Send
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, CheckpointId
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.recovery import test_generation_change
from tests.unit.recovery.bench import context
from tests.unit.recovery.test_generation_change import HERE, RUN, THERE, grown


class Coordinated:
    """A run of which an epoch is committed, and a change of it that all are ready for."""

    def __init__(self) -> None:
        self.context = context()
        self.context.now = Instant(100 * SECOND)
        self.commit_protocol = CommitProtocol(self.context, RUN)
        self.value: RegisterValue = msgspec.structs.replace(test_generation_change.VALUE, committed=CheckpointId(1, 3))
        self.commit_protocol.enter(self.value)
        for peer in (HERE, THERE):
            self.commit_protocol.answered(peer, wire.ResetOk(RUN, 1, 3, ()))
        self.commit_protocol.started(self.value)
        assert self.commit_protocol.generation_change.want(self.value, grown()) == ""
        self.value = self.commit_protocol.generation_change.with_pending_changes(self.value)

    def ready(self, epoch: int) -> None:
        for peer, builds in ((HERE, False), (THERE, True)):
            word = wire.GenerationReady(RUN, 1, grown().digest, builds=builds, epoch=epoch if builds else 0)
            self.commit_protocol.generation_change.on_ready(peer, word)

    def answered(self, *peers: object) -> None:
        for peer in (HERE, THERE):
            if peer in peers:
                self.commit_protocol.on_committed_ok(peer, wire.CommittedOk(RUN, 1, self.value.committed))

    def tick(self) -> list[wire.Begin]:
        self.context.effects, self.context.outbox = [], []
        assert self.commit_protocol.on_tick(self.value, Ballot(1)) == ""
        sent: list[Effect] = self.context.effects
        told = [each.message for each in sent if isinstance(each, Send)] + self.context.outbox
        return [each for each in told if isinstance(each, wire.Begin)]

    def commit(self) -> None:
        """The epoch that is open is committed, in no time."""
        epoch = self.value.committed.epoch + 1
        self.value = msgspec.structs.replace(self.value, committed=CheckpointId(1, epoch))
        self.commit_protocol.epochs.committed = epoch
        self.commit_protocol.epochs.is_caught_up = True
        self.commit_protocol.generation_change.committed(self.value, is_change=False)
        self.commit_protocol.took_ns = SECOND


def test_no_epoch_begins_before_committed_state_is_built_and_known() -> None:
    run = Coordinated()
    run.answered(HERE, THERE)
    assert not run.tick()
    run.ready(3)
    assert run.tick()[0].after is None, "an extra epoch comes first"
    run.commit()
    run.ready(3)
    run.answered(HERE, THERE)
    assert not run.commit_protocol.carries_next(run.value)
    assert not run.tick(), "it is being built"
    run.ready(4)
    assert run.commit_protocol.carries_next(run.value)
    assert run.tick()[0].after == grown()


def test_no_epoch_begins_before_all_hosts_report_the_commit() -> None:
    run = Coordinated()
    run.ready(3)
    run.answered(HERE, THERE)
    assert run.tick()
    run.commit()
    run.ready(4)
    run.answered(THERE)
    for _ in range(3):
        assert not run.tick(), "neither the change, nor one epoch after the other"
    run.answered(HERE)
    assert run.tick()[0].after == grown()


def test_an_epoch_begins_when_the_wait_far_exceeds_an_interval() -> None:
    run = Coordinated()
    run.ready(3)
    run.answered(HERE, THERE)
    assert run.tick()
    run.commit()
    run.context.now = Instant(run.context.now + 2 * run.context.config.checkpoint_interval_ns)
    assert not run.tick()
    run.context.now = Instant(run.context.now + run.context.config.checkpoint_interval_ns)
    assert run.tick()[0].after is None


def test_an_epoch_that_took_many_intervals_is_waited_for_as_well() -> None:
    """Committed state is known and built after that."""
    run = Coordinated()
    run.ready(3)
    run.answered(HERE, THERE)
    assert run.tick()
    run.context.now = Instant(run.context.now + 5 * run.context.config.checkpoint_interval_ns)
    run.commit()
    assert not run.tick(), "another one would begin it anew"
    run.ready(4)
    run.answered(HERE, THERE)
    assert run.tick()[0].after == grown()
