"""Totals of an application for people and programs, from the reports of its instances.

A report is plain data from the executor. Under the key `statistics` it contains an `InstanceStatistics` in its wire form; other
keys (busy share, queue, memory) are copied to `status` unchanged.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from agiledart_dataflow.counts.interval_measures import MEASURES, IntervalMeasures
from agiledart_dataflow.counts.service_compliance import ServiceCompliance, of_step
from agiledart_dataflow.counts.statistics import InstanceStatistics
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.runtime.ledger import audit, summarise
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_sink_log.protocol import latency_log_name

Reports = Mapping[tuple[int, int], Mapping[str, Any]]

FIRST_MS, LAST_MS = "first_ms", "last_ms"
"""Keys of a report: wall milliseconds of the first record read or written and of the last."""


MAX_IMBALANCES = 20
MAX_IMBALANCE = 200
"""Places, and characters of each: a summary is kept in the application's record."""

MAX_BUCKET = 4_096
"""Latency buckets beyond are invalid: the last one in use stands for centuries."""


def statistics_of(report: Mapping[str, Any]) -> InstanceStatistics | None:
    """Return the counts in a report; None when there are none or they are invalid."""
    try:
        statistics = msgspec.convert(report.get("statistics"), InstanceStatistics)
    except msgspec.ValidationError:
        return None
    sound = all(0 <= bucket < MAX_BUCKET and count >= 0 for bucket, count in statistics.latency)
    return statistics if sound else None


def scalars_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other values of a report that fit into a JSON document: numbers, texts, truth values."""
    return {key: value for key, value in report.items() if value is None or isinstance(value, bool | int | float | str)}


def _known(specification: bytes) -> Specification | None:
    """Return a record's specification; None when it cannot be read."""
    try:
        return SPECIFICATION_CODEC.decode(specification)
    except RemoteProtocolError:
        return None


def summary_of(specification: bytes, reports: Reports) -> dict[str, Any]:
    """Return totals of an application: the fields of `Summary`, first and last times, and the wall seconds between them."""
    if (known := _known(specification)) is None:
        return {}
    names = {step.name: True for step in known.steps}
    counted = []
    for _, report in sorted(reports.items()):
        statistics = statistics_of(report)
        if statistics is not None and all(name in names for name in statistics.steps):
            counted.append(statistics)
    summary = summarise(known, counted)
    summary.service_levels.extend(_step_compliance(known, reports))
    body = msgspec.to_builtins(summary)
    assert isinstance(body, dict)
    body["steps"] = {name: counts.by_public_name() for name, counts in summary.steps.items()}
    body["latency_ms"] = body.pop("latency")
    firsts = _times(reports, FIRST_MS)
    lasts = _times(reports, LAST_MS)
    if firsts and lasts:
        body["first_ms"], body["last_ms"] = min(firsts), max(lasts)
        body["wall_seconds"] = round((max(lasts) - min(firsts)) / 1000, 3)
    body["instances_reporting"] = len(counted)
    body["imbalances"] = [text[:MAX_IMBALANCE] for text in audit(known, counted)[:MAX_IMBALANCES]]
    return body


def _step_compliance(known: Specification, reports: Reports) -> list[ServiceCompliance]:
    """Return estimates for the steps, other than sinks, that have a service level."""
    agreed = {step.name: step.slo_ms for step in known.steps if step.traits.stage != "sink"}
    measured: dict[str, list[IntervalMeasures]] = {name: [] for name, slo_ms in agreed.items() if slo_ms is not None}
    if not measured:
        return []
    for _, report in sorted(reports.items()):
        statistics, measures = statistics_of(report), measures_of(report)
        if statistics is not None and measures is not None and not statistics.finished:
            for name in measured.keys() & statistics.steps.keys():
                measured[name].append(measures)
    return [of_step(name, slo_ms, measured[name]) for name, slo_ms in agreed.items() if slo_ms is not None]


def _times(reports: Reports, key: str) -> list[int]:
    return [value for report in reports.values() if isinstance(value := report.get(key), int) and value > 0]


def logs_of(specification: bytes) -> dict[str, str]:
    """Return sink step → name of the log that it writes."""
    if (known := _known(specification)) is None:
        return {}
    sinks = ((step.name, step.connector) for step in known.sinks)
    return {name: there.path for name, there in sinks if there is not None and there.kind == "log"}


def latency_logs_of(application: str, specification: bytes) -> dict[str, str]:
    """Return sink step → name of the system's log of its latencies; only sinks whose rows contain the time of reading."""
    if (known := _known(specification)) is None:
        return {}
    return {
        step.name: latency_log_name(application, number)
        for number, step in enumerate(known.sinks)
        if "ReadTime" in step.row_type
    }


def measures_of(report: Mapping[str, Any]) -> IntervalMeasures | None:
    """Return the measures in a report; None when there are none, or they are invalid."""
    try:
        measures = msgspec.convert(report.get(MEASURES), IntervalMeasures)
    except msgspec.ValidationError:
        return None
    return measures if measures.is_sound else None
