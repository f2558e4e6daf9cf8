"""A change at its coordinator: the epoch that carries it begins when nobody is waited for, and one epoch is begun at a time."""

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Effect, Send
from agiledart_recovery.lives.committing import Committing
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, Snapshot
from agiledart_recovery.wire.value import Value
from tests.unit.recovery import test_changing
from tests.unit.recovery.bench import desk
from tests.unit.recovery.test_changing import HERE, RUN, THERE, grown


class Coordinated:
    """A run of which an epoch is committed, and a change of it that all are ready for."""

    def __init__(self) -> None:
        self.desk = desk()
        self.desk.now = Instant(100 * SECOND)
        self.committing = Committing(self.desk, RUN)
        self.value: Value = msgspec.structs.replace(test_changing.VALUE, committed=Snapshot(1, 3))
        self.committing.enter(self.value)
        for peer in (HERE, THERE):
            self.committing.heard(peer, wire.ResetOk(RUN, 1, 3, ()))
        self.committing.started(self.value)
        assert self.committing.changing.want(self.value, grown()) == ""
        self.value = self.committing.changing.noted(self.value)

    def ready(self, epoch: int) -> None:
        for peer, builds in ((HERE, False), (THERE, True)):
            word = wire.TermReady(RUN, 1, grown().digest, builds=builds, epoch=epoch if builds else 0)
            self.committing.changing.on_ready(peer, word)

    def heard(self, *peers: object) -> None:
        for peer in (HERE, THERE):
            if peer in peers:
                self.committing.on_committed_ok(peer, wire.CommittedOk(RUN, 1, self.value.committed))

    def tick(self) -> list[wire.Begin]:
        self.desk.effects, self.desk.outbox = [], []
        assert self.committing.on_tick(self.value, Ballot(1)) == ""
        sent: list[Effect] = self.desk.effects
        told = [each.message for each in sent if isinstance(each, Send)] + self.desk.outbox
        return [each for each in told if isinstance(each, wire.Begin)]

    def commit(self) -> None:
        """The epoch that is open is committed, in no time."""
        epoch = self.value.committed.epoch + 1
        self.value = msgspec.structs.replace(self.value, committed=Snapshot(1, epoch))
        self.committing.epochs.committed = epoch
        self.committing.epochs.is_caught_up = True
        self.committing.changing.committed(self.value, is_change=False)
        self.committing.took_ns = SECOND


def test_no_epoch_is_begun_before_what_is_committed_is_built_and_known() -> None:
    run = Coordinated()
    run.heard(HERE, THERE)
    assert not run.tick()
    run.ready(3)
    assert run.tick()[0].after is None, "an extra epoch comes first"
    run.commit()
    run.ready(3)
    run.heard(HERE, THERE)
    assert not run.committing.carries_next(run.value)
    assert not run.tick(), "it is being built"
    run.ready(4)
    assert run.committing.carries_next(run.value)
    assert run.tick()[0].after == grown()


def test_nor_before_all_have_said_that_they_know() -> None:
    run = Coordinated()
    run.ready(3)
    run.heard(HERE, THERE)
    assert run.tick()
    run.commit()
    run.ready(4)
    run.heard(THERE)
    for _ in range(3):
        assert not run.tick(), "neither the change, nor one epoch after the other"
    run.heard(HERE)
    assert run.tick()[0].after == grown()


def test_but_an_epoch_is_begun_when_that_takes_much_longer_than_an_interval() -> None:
    run = Coordinated()
    run.ready(3)
    run.heard(HERE, THERE)
    assert run.tick()
    run.commit()
    run.desk.now = Instant(run.desk.now + 2 * run.desk.config.checkpoint_interval_ns)
    assert not run.tick()
    run.desk.now = Instant(run.desk.now + run.desk.config.checkpoint_interval_ns)
    assert run.tick()[0].after is None


def test_an_epoch_that_took_many_intervals_is_waited_for_as_well() -> None:
    """What is committed is known and built after that."""
    run = Coordinated()
    run.ready(3)
    run.heard(HERE, THERE)
    assert run.tick()
    run.desk.now = Instant(run.desk.now + 5 * run.desk.config.checkpoint_interval_ns)
    run.commit()
    assert not run.tick(), "another one would begin it anew"
    run.ready(4)
    run.heard(HERE, THERE)
    assert run.tick()[0].after == grown()
