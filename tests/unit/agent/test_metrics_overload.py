"""Metrics of overload and of user errors: counted by reason, bounded in labels, never going back at the end of a run."""

from typing import Any

import msgspec

from agiledart_agent.metrics.agent_metrics import AgentMetrics
from agiledart_agent.metrics.metric_declarations import NodeFigures
from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts, StepCounts


def report(statistics: InstanceStatistics) -> dict[str, Any]:
    """As an executor sends it."""
    return {"statistics": msgspec.to_builtins(statistics)}


def rendered(metrics: AgentMetrics) -> list[str]:
    """Samples of the application."""
    text = metrics.render("text/plain")[1].decode()
    return [line for line in text.splitlines() if line.startswith("agiledart_application")]


def test_overload_and_error_counters_exist_and_persist() -> None:
    now = 0.0
    metrics = AgentMetrics(NodeFigures, clock=lambda: now)
    counts = SourceCounts(
        lines=100, records=40, shed={"oldest": 30, "made up": 5}, waiting=15, spooled=10, spooled_ever=20
    )
    source = InstanceStatistics(0, 0, steps={"trips": StepCounts(100, 40)}, source=counts, queued_rows=15)
    step = InstanceStatistics(1, 0, steps={"parse": StepCounts(40, 35, 0, skipped=3, dead_letters=2)})
    metrics.applications.reported("taxi", 1, 0, 0, report(source))
    metrics.applications.reported("taxi", 1, 1, 0, report(step))
    wanted = [
        'agiledart_application_shed_records_total{app="taxi",operator="trips",reason="oldest"} 30.0',
        'agiledart_application_shed_records_total{app="taxi",operator="trips",reason="other"} 5.0',
        'agiledart_application_dropped_records_total{app="taxi",operator="trips",reason="shed"} 35.0',
        'agiledart_application_spooled_records_total{app="taxi",operator="trips"} 20.0',
        'agiledart_application_user_errors_total{app="taxi",operator="parse",reason="skip"} 3.0',
        'agiledart_application_user_errors_total{app="taxi",operator="parse",reason="dead_letter"} 2.0',
        'agiledart_application_dropped_records_total{app="taxi",operator="parse",reason="skipped"} 3.0',
        'agiledart_application_dropped_records_total{app="taxi",operator="parse",reason="dead_letter"} 2.0',
    ]
    lines = rendered(metrics)
    assert [line for line in wanted if line not in lines] == []
    assert 'agiledart_application_spool_length{app="taxi",operator="trips"} 10.0' in lines
    metrics.applications.ended("taxi", 1)
    now = 100.0
    lines = rendered(metrics)
    assert [line for line in wanted if line not in lines] == []
    assert not any("spool_length" in line and "taxi" in line for line in lines)


def test_the_ledger_of_an_application_adds_up_or_reports_that_it_does_not() -> None:
    metrics = AgentMetrics(NodeFigures)
    counts = SourceCounts(
        lines=100, records=60, late=4, malformed={"odd": 6}, shed={"oldest": 20}, waiting=7, spooled=3
    )
    source = InstanceStatistics(0, 0, steps={"trips": StepCounts(100, 60)}, source=counts, sent=[(0, 0, 60)])
    window = InstanceStatistics(
        1,
        0,
        steps={"panes": StepCounts(60, 9, skipped=2, dead_letters=1, taken=57, failed=1), "few": StepCounts(9, 5, 4)},
        received=[(0, 0, 60)],
        sent=[(1, 0, 5)],
    )
    sink = InstanceStatistics(2, 0, steps={"out": StepCounts(5, 5)}, received=[(1, 0, 5)])
    for stage, one in enumerate((source, window, sink)):
        metrics.applications.reported("taxi", 1, stage, 0, report(one))
    lines = rendered(metrics)
    went = {"read": 100, "delivered": 5, "late": 4, "malformed": 6, "shed": 20, "filtered": 4, "taken": 57, "skipped": 2,
            "dead_letter": 1, "failed": 1}  # fmt: skip
    for reason, count in went.items():
        assert f'agiledart_application_ledger_records_total{{app="taxi",reason="{reason}"}} {count}.0' in lines
    for reason, count in {"waiting": 7, "spooled": 3, "queued": 0}.items():
        assert f'agiledart_application_pending_records{{app="taxi",reason="{reason}"}} {count}.0' in lines
    assert 'agiledart_application_user_errors_total{app="taxi",operator="panes",reason="result"} 1.0' in lines
    assert 'agiledart_application_ledger_imbalances{app="taxi"} 0.0' in lines
    source.source = msgspec.structs.replace(counts, late=3)
    metrics = AgentMetrics(NodeFigures)
    metrics.applications.reported("taxi", 1, 0, 0, report(source))
    assert 'agiledart_application_ledger_imbalances{app="taxi"} 1.0' in rendered(metrics)


def test_rows_waiting_at_a_source_are_counted_once() -> None:
    metrics = AgentMetrics(NodeFigures)
    counts = SourceCounts(lines=100, records=60, waiting=40)
    source = InstanceStatistics(0, 0, steps={"trips": StepCounts(100, 60)}, source=counts, queued_rows=40)
    metrics.applications.reported("taxi", 1, 0, 0, {**report(source), "waiting_rows": 60})  # sent, but still here
    lines = rendered(metrics)
    for reason, count in {"waiting": 40, "spooled": 0, "queued": 60}.items():
        assert f'agiledart_application_pending_records{{app="taxi",reason="{reason}"}} {count}.0' in lines
    assert 'agiledart_application_queue_length{app="taxi",operator="trips"} 100.0' in lines
