"""Totals from reports, also from reports that make no sense."""

from typing import Any

import msgspec
import pytest

from agiledart_dataflow.counts.statistics import DuplicateCounts, InstanceStatistics, SourceCounts, StepCounts
from agiledart_node.records.summary import scalars_of, statistics_of, summary_of
from agiledart_node.wire.summary_response import SummaryResponse
from tests.simulation.mesh import pipeline

SPECIFICATION = msgspec.msgpack.encode(pipeline())


def report(**fields: Any) -> dict[str, Any]:
    first, last = fields.pop("first_ms", 0), fields.pop("last_ms", 0)
    statistics = InstanceStatistics(0, 0, **fields)
    return {"statistics": msgspec.to_builtins(statistics), "first_ms": first, "last_ms": last}


def test_figures_of_all_instances_are_summed() -> None:
    reports = {
        (0, 0): report(
            source=SourceCounts(lines=10, records=7, late=1, malformed={"number": 2}, paced=True), first_ms=1_000
        ),
        (1, 0): report(steps={"route_of": StepCounts(4, 3, 1)}),
        (1, 1): report(steps={"route_of": StepCounts(3, 1, 2)}),
        (4, 0): report(steps={"report": StepCounts(2, 2, 0)}, latency=[(3, 1), (5, 1)], last_ms=3_500),
    }
    body = summary_of(SPECIFICATION, reports)
    msgspec.convert(body, SummaryResponse)
    assert (body["records_in"], body["late"], body["malformed"]) == (10, 1, {"number": 2})
    assert body["outliers"] == 3
    assert body["results"] == {"report": 2}
    assert body["latency_ms"]["report"]["samples"] == 2
    assert body["paced"] is True
    assert body["wall_seconds"] == 2.5
    assert body["steps"]["route_of"] == {
        "rows_in": 7, "rows_out": 4, "dropped": 3, "skipped": 0, "dead_letters": 0, "late": 0,
        "taken": 0, "failed": 0, "rejected": 0,
    }  # fmt: skip
    assert body["instances_reporting"] == 4


def test_rows_that_sinks_emitted_twice_are_reported_by_sink_and_attempt() -> None:
    name = "report"
    first = DuplicateCounts(90, [(2, 60), (3, 30)])
    second = DuplicateCounts(7, [(3, 7)], is_known=False)
    reports = {
        (4, 0): report(steps={name: StepCounts(2, 2)}, duplicates=first),
        (4, 1): report(steps={name: StepCounts(1, 1)}, duplicates=second),
        (1, 0): report(steps={"route_of": StepCounts(4, 3, 1)}),
    }
    body = summary_of(SPECIFICATION, reports)
    msgspec.convert(body, SummaryResponse)
    assert body["duplicated"] == {name: 97}
    assert body["duplicates_by_attempt"] == [(2, name, 60), (3, name, 37)]
    assert body["uncounted"] == [name]


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"statistics": 7},
        {"statistics": [0, 0, {"no such step": [1, 1, 1]}]},
        report(latency=[(1 << 60, 1)]),
        report(latency=[(3, -1)]),
    ],
)
def test_malformed_figures_are_left_out(bad: dict[str, Any]) -> None:
    body = summary_of(SPECIFICATION, {(0, 0): bad, (1, 0): report(steps={"route_of": StepCounts(1, 1, 0)})})
    assert body["instances_reporting"] == 1


def test_an_unreadable_specification_has_no_summary() -> None:
    assert summary_of(b"\xc1", {}) == {}


def test_only_json_values_are_passed_on() -> None:
    extension = msgspec.msgpack.Ext(1, b"x")
    assert scalars_of({"busy": 0.5, "statistics": [1], "odd": extension, "raw": b"x"}) == {"busy": 0.5}
    assert statistics_of({"statistics": extension}) is None
