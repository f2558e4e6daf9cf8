"""Metrics of overload and of user errors: counted by reason, bounded in labels, never going back at the end of a run."""

from typing import Any

import msgspec

from agiledart_agent.metrics import AgentMetrics, NodeFigures
from agiledart_dataflow.statistics import InstanceStatistics, SourceCounts, StepCounts


def report(statistics: InstanceStatistics) -> dict[str, Any]:
    """As an executor sends it."""
    return {"statistics": msgspec.to_builtins(statistics)}


def rendered(metrics: AgentMetrics) -> list[str]:
    """Samples of the application."""
    text = metrics.render("text/plain")[1].decode()
    return [line for line in text.splitlines() if line.startswith("agiledart_application")]


def test_what_overload_and_errors_cost_is_there_and_stays() -> None:
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
