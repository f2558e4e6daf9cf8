"""A source that goes on without its log has lost rows: from its last reported position, once an attempt, in the record."""

from typing import Any

import msgspec

from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts, StepCounts
from agiledart_node.hosting.hosted_application import HostedApplication
from agiledart_node.records.application import RECORD_CODEC, RUNNING, ApplicationRecord, Loss
from agiledart_node.records.lost_rows import MAX_LOSSES, losses_of, with_losses
from tests.unit.node.test_node import SCHEDULER, part


def report(lines: int, lost_behind: int | None = None, name: str = "readings") -> dict[str, Any]:
    source = SourceCounts(lines=lines, lost_behind=lost_behind)
    return {"statistics": msgspec.to_builtins(InstanceStatistics(0, 0, {name: StepCounts(lines, lines)}, source))}


RECORD = ApplicationRecord("x", 1, 7, 7, RUNNING, SCHEDULER, by_epoch=True)


def test_the_lost_row_count_comes_from_reports_of_earlier_attempts() -> None:
    hosted = HostedApplication(part(by_epoch=True))
    hosted.seen = {(0, 0): report(900), (0, 1): report(50), (1, 0): {"statistics": None}}
    hosted.begin_again({}, 2)
    assert not hosted.seen
    moved = {(0, 0): report(720, lost_behind=700), (0, 1): report(60)}
    assert losses_of(hosted.attempt, hosted.lines_before, moved) == [Loss(2, "readings", 200)]
    assert losses_of(2, hosted.lines_before, {(0, 1): report(60)}) == [], "its log was there"


def test_a_loss_without_any_report_is_still_recorded() -> None:
    assert losses_of(3, {}, {(0, 0): report(720, lost_behind=700)}) == [Loss(3, "readings", 0)]


def test_a_record_lists_each_loss_once() -> None:
    once = with_losses(RECORD, [Loss(2, "readings", 200)])
    assert once is not None
    assert with_losses(once, [Loss(2, "readings", 180)]) is None, "another look at the same life"
    assert with_losses(RECORD, []) is None
    twice = with_losses(once, [Loss(2, "readings", 180), Loss(3, "readings", 5)])
    assert twice is not None
    assert twice.losses == (Loss(2, "readings", 200), Loss(3, "readings", 5))
    assert RECORD_CODEC.decode(RECORD_CODEC.encode(twice)) == twice
    many = with_losses(RECORD, [Loss(attempt, "readings", 1) for attempt in range(MAX_LOSSES + 5)])
    assert many is not None
    assert len(many.losses) == MAX_LOSSES
