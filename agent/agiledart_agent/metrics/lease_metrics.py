"""Metrics of the gate beside this agent, from its last report: leases, what they cost, how much of the limit is used, decisions."""

from collections.abc import Callable, Iterable

from agiledart_agent.metrics.gate_figures import GateFigures
from agiledart_agent.metrics.metric_declarations import Figure, MetricDeclaration, Samples, Scrape


def _of_gates(
    name: str, kind: str, meaning: str, figure: Callable[[GateFigures], Figure], label: str = "gate"
) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        return [((gate.gate,), figure(gate)) for gate in scrape.node.gates]

    return MetricDeclaration(name, kind, meaning, (label,), samples)


def _by_label(
    name: str, kind: str, meaning: str, label: str, figures: Callable[[GateFigures], dict[str, int]]
) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        rows: Iterable[tuple[tuple[str, ...], Figure]] = [
            ((gate.gate, word), number) for gate in scrape.node.gates for word, number in figures(gate).items()
        ]
        return rows

    return MetricDeclaration(name, kind, meaning, ("gate", label), samples)


# fmt: off
METRICS: tuple[MetricDeclaration, ...] = (
    _by_label("agiledart_leases", "gauge",
        "Leases of the gate beside this agent; state is asked, starting, joined, draining, releasing, ended or failed.",
        "state", lambda gate: gate.states),
    _of_gates("agiledart_lease_seconds_paid_total", "counter",
        "Seconds of machines that the gate beside this agent has booked.", lambda gate: gate.paid_s),
    _of_gates("agiledart_lease_cost_total", "counter",
        "Cost that the gate beside this agent has booked, in the currency of its offer.", lambda gate: gate.cost),
    _of_gates("agiledart_lease_budget_used_ratio", "gauge",
        "Share of max_spend that the gate beside this agent has booked today (UTC); 0 where it has no limit.",
        lambda gate: gate.spent / gate.max_spend if gate.max_spend else 0.0),
    _of_gates("agiledart_gate_faulty", "gauge",
        "1 while the gate beside this agent cannot do its work, such as without its provider, else 0. `agiledart provision status` "
        "says why.", lambda gate: int(bool(gate.fault))),
    _by_label("agiledart_provision_decisions_total", "counter",
        "Decisions of the gate beside this agent since its start, by action, such as lease, joined, extend, drain, release, failed "
        "and orphan.", "action", lambda gate: gate.decisions),
)
# fmt: on
