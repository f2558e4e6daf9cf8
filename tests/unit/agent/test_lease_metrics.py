"""Metrics of a gate: from its last report, whatever else stands in it."""

from agiledart_agent.metrics.gate_figures import gate_figures
from agiledart_agent.metrics.lease_metrics import METRICS
from agiledart_agent.metrics.metric_declarations import Figure, NodeFigures, Scrape
from agiledart_node.wire.lease_messages import GateReport

REPORT = b"""{"mode": "act", "spent": 0.9, "max_spend": 1.0, "paid_s": 240, "cost": 1.5, "fault": "",
"states": {"joined": 1, "ended": 2},
"decisions": {"lease": 3}, "leases": []}"""


def samples(*reports: bytes) -> dict[str, dict[tuple[str, ...], Figure]]:
    gates = gate_figures([GateReport(f"g{number}", "", 5, report) for number, report in enumerate(reports)])
    scrape = Scrape(NodeFigures(gates=gates), *[None] * 8)  # type: ignore[arg-type]
    return {metric.name: dict(metric.read(scrape)) for metric in METRICS}


def test_leases_costs_and_decisions_of_a_gate_are_shown() -> None:
    shown = samples(REPORT)
    assert shown["agiledart_leases"] == {("g0", "joined"): 1, ("g0", "ended"): 2}
    assert shown["agiledart_lease_seconds_paid_total"] == {("g0",): 240}
    assert shown["agiledart_lease_cost_total"] == {("g0",): 1.5}
    assert shown["agiledart_lease_budget_used_ratio"] == {("g0",): 0.9}
    assert shown["agiledart_gate_faulty"] == {("g0",): 0}
    assert shown["agiledart_provision_decisions_total"] == {("g0", "lease"): 3}


def test_invalid_reports_are_left_out() -> None:
    many = b'{"states": {' + b",".join(b'"s%d": 1' % number for number in range(40)) + b"}}"
    assert samples(b"[]", b"", b'{"cost": -1}', many)["agiledart_lease_cost_total"] == {}


def test_a_gate_without_its_provider_is_faulty_and_one_without_a_limit_has_used_nothing() -> None:
    shown = samples(b'{"fault": "the provider cannot be reached", "spent": 2}')
    assert shown["agiledart_gate_faulty"] == {("g0",): 1}
    assert shown["agiledart_lease_budget_used_ratio"] == {("g0",): 0.0}
