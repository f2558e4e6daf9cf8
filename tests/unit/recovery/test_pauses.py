"""For how long rows stood still for an epoch: each instance says it, and its coordinator remembers the longest."""

import msgspec

from agiledart_kernel.instants import MILLISECOND
from agiledart_recovery.lives.committing import Committing
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.value import Saved
from tests.unit.recovery.bench import desk
from tests.unit.recovery.test_changing import BEFORE, HERE, RUN, VALUE


def committed(committing: Committing, epoch: int, pauses_ms: dict[str, int]) -> None:
    for each in BEFORE.assignments:
        pause = pauses_ms[each.party.stage] * MILLISECOND
        told = wire.Prepared(RUN, 1, epoch, each.party, Saved(each.party), pause_ns=pause)
        committing.prepared(HERE, told)
    value = committing.next_value(
        msgspec.structs.replace(VALUE, committed=msgspec.structs.replace(VALUE.committed, epoch=epoch - 1))
    )
    assert value is not None
    assert committing.written(value)


def test_the_longest_pause_of_the_last_committed_epoch() -> None:
    mine = desk()
    committing = Committing(mine, RUN)
    committing.enter(VALUE)
    committing.heard(HERE, wire.ResetOk(RUN, 1, 3, ()))
    committing.started(VALUE)
    committed(committing, 4, {"S": 0, "X": 70, "K": 2})
    assert committing.pause_ns == 70 * MILLISECOND
    committed(committing, 5, {"S": 1, "X": 0, "K": 2})
    assert committing.pause_ns == 2 * MILLISECOND


def test_epochs_are_as_far_apart_as_the_config_says_and_nearer_when_somebody_waits() -> None:
    mine = desk()
    committing = Committing(mine, RUN)
    assert committing.interval_ns() == mine.config.checkpoint_interval_ns
    committing.want_epoch()
    assert committing.interval_ns() < mine.config.checkpoint_interval_ns
