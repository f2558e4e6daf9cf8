"""For how long rows stood still for an epoch: each instance says it, and its coordinator remembers the longest."""

import msgspec

from agiledart_kernel.instants import MILLISECOND
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.register_value import SavedState
from tests.unit.recovery.bench import context
from tests.unit.recovery.test_generation_change import BEFORE, HERE, RUN, VALUE


def committed(commit_protocol: CommitProtocol, epoch: int, pauses_ms: dict[str, int]) -> None:
    for each in BEFORE.assignments:
        pause = pauses_ms[each.instance.stage] * MILLISECOND
        told = wire.Prepared(RUN, 1, epoch, each.instance, SavedState(each.instance), pause_ns=pause)
        commit_protocol.prepared(HERE, told)
    value = commit_protocol.next_value(
        msgspec.structs.replace(VALUE, committed=msgspec.structs.replace(VALUE.committed, epoch=epoch - 1))
    )
    assert value is not None
    assert commit_protocol.written(value)


def test_the_longest_pause_of_the_last_committed_epoch_is_reported() -> None:
    mine = context()
    commit_protocol = CommitProtocol(mine, RUN)
    commit_protocol.enter(VALUE)
    commit_protocol.answered(HERE, wire.ResetOk(RUN, 1, 3, ()))
    commit_protocol.started(VALUE)
    committed(commit_protocol, 4, {"S": 0, "X": 70, "K": 2})
    assert commit_protocol.pause_ns == 70 * MILLISECOND
    committed(commit_protocol, 5, {"S": 1, "X": 0, "K": 2})
    assert commit_protocol.pause_ns == 2 * MILLISECOND


def test_epochs_follow_the_configured_interval_or_sooner_when_requested() -> None:
    mine = context()
    commit_protocol = CommitProtocol(mine, RUN)
    assert commit_protocol.interval_ns() == mine.config.checkpoint_interval_ns
    commit_protocol.want_epoch()
    assert commit_protocol.interval_ns() < mine.config.checkpoint_interval_ns
