"""An instance's report about its last five seconds."""

from typing import Any

import pytest

from agiledart_dataflow.counts.interval_measures import MEASURES
from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts
from agiledart_dataflow.plan.connector_abilities import ReaderAbilities
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_executor.instances.running_instance import OutputEnd, RunningInstance
from agiledart_kernel.instants import SECOND


class Counting:
    """In the place of an instance or a source: counts of an even flow."""

    queued_rows = 0
    reader_abilities = ReaderAbilities()  # no report says whether its outer output is blocked

    def __init__(self, *, is_source: bool) -> None:
        self.at = 0.0
        self.is_source = is_source

    def awaited_input(self) -> None:
        """No row waits for an input."""

    def statistics(self) -> InstanceStatistics:
        """100 rows a second come; a source sheds 10 of them, an operator has worked off 60."""
        rows = round(self.at * 100)
        sent = [(2, 0, rows // 2), (2, 1, rows // 2)]
        if self.is_source:
            shed = {"overload": rows // 10}
            return InstanceStatistics(0, 0, source=SourceCounts(lines=rows + 9, records=rows - rows // 10, late=9, shed=shed),
                                      sent=sent)  # fmt: skip
        return InstanceStatistics(1, 0, queued_rows=rows * 4 // 10, received=[(0, 0, rows - 7), (1, 0, 7)], sent=sent)


def last_report(
    monkeypatch: pytest.MonkeyPatch, running: RunningInstance, part: Counting, seconds: int
) -> dict[str, Any]:
    """The last of two reports a second."""
    report: dict[str, Any] = {}
    for half in range(2 * seconds + 1):
        part.at = half / 2
        running.busy_ns = half * SECOND // 10
        monkeypatch.setattr(
            "agiledart_executor.instances.running_instance.time.monotonic_ns", lambda half=half: half * SECOND // 2 + 1
        )
        report = running.report()
    return report


def test_rows_waiting_inside_an_instance_are_not_counted_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = Counting(is_source=False)
    told = last_report(monkeypatch, RunningInstance(1, 0, "work", instance=part), part, 16)[MEASURES]
    span, rows, busy, blocked, offered, waiting, taken, edges, groups = told
    assert (span, rows, busy, blocked) == (5 * SECOND, 300, SECOND, 0)
    assert list(taken) == [300, 300, 300]
    assert list(waiting) == [480, 520, 560, 600, 640]
    assert list(edges[0][1]) == [500, 500, 500]
    assert list(offered) == [0.0] * 5
    assert not groups


def test_the_bytes_of_rows_are_reported_from_the_channels_of_an_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = Counting(is_source=False)
    running = RunningInstance(1, 0, "work", instance=part)
    for target in (0, 1):
        running.outputs[2, target] = OutputEnd(SendingChannel(), lambda batch, row, channel: None)
    running.outputs[2, 1].channel.learn_row_bytes(4, 321)
    report = last_report(monkeypatch, running, part, 6)[MEASURES]
    assert [edge[3] for edge in report[7]] == [80], "no row has gone to the other target"


def test_a_source_reports_all_rows_that_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = Counting(is_source=True)
    told = last_report(monkeypatch, RunningInstance(0, 0, "rows", source=part), part, 6)[MEASURES]
    assert list(told[4]) == [100.0] * 5, "those that were shed, too"
    assert told[1] == 450


def test_a_young_instance_reports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = Counting(is_source=False)
    assert MEASURES not in last_report(monkeypatch, RunningInstance(1, 0, "work", instance=part), part, 4)
