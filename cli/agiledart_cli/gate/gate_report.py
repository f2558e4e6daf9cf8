"""Report of a gate: its limits, leases and last decisions, as `agiledart provision status` shows them."""

from collections import deque
from collections.abc import Mapping
from typing import Annotated

import msgspec

from agiledart_cli.gate.lease_use import OTHER
from agiledart_kernel.instants import SECOND
from agiledart_node.wire.lease_messages import MAX_REPORT_BYTES
from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry

MAX_DECISIONS = 20
MAX_LEASES = 64
MAX_WHY = 200
MAX_APPLICATIONS = 32
"""Applications whose cost is reported by name; that of the others is one sum."""


class DecisionLine(msgspec.Struct, frozen=True):
    """A decision and its reason. `at_s`: wall time, seconds since 1970."""

    at_s: float
    action: str
    lease_id: str
    why: str


class LeaseLine(msgspec.Struct, frozen=True):
    """A lease in a report; costs in the currency of the offer, times in seconds since 1970.

    `first_unit`: units that another gate has paid before. `term`: times that it has changed hands.
    """

    lease_id: str
    host_id: str
    host_name: str
    node: str
    state: str
    began_s: float
    paid_until_s: float
    units: int
    cost: float
    why: str
    first_unit: int = 0
    term: int = 1


class GateStatus(msgspec.Struct, frozen=True):
    """Report of a gate.

    Args:
        fault: why the gate cannot do its work now, such as a provider that it does not reach; empty: it can.
        spent, max_spend: booked for today, and the limit; max_hosts: most leases at one time.
        paid_s, cost: of all leases that the ledger has; decisions: number by action since the gate's start.
        states: leases by state. by_application: cost by share of use, of all leases that the ledger has, the largest ones by name.
    """

    mode: str
    provider: str
    offer: str
    price: float
    unit_s: float
    max_hosts: int
    max_spend: float
    spent: float
    is_paused: bool
    fault: str
    demand: str
    paid_s: float
    cost: float
    states: dict[str, int]
    decisions: dict[str, int]
    by_application: dict[str, float]
    leases: Annotated[list[LeaseLine], msgspec.Meta(max_length=MAX_LEASES)]
    last: list[DecisionLine]


def figures_of(
    ledger: GateLedger,
    settings: GateSettings,
    provider: str,
    counts: Mapping[str, int],
    last: deque[DecisionLine],
    now: int,
    *,
    is_paused: bool,
    fault: str,
    demand: str,
    by_application: Mapping[str, float],
) -> GateStatus:
    """Return the report of a gate; leases that are over for a day are left out of the list."""
    entries = list(ledger.entries.values())
    shown = [entry for entry in entries if not entry.state.is_over or now - entry.ended_ns < 86_400 * SECOND]
    states: dict[str, int] = {}
    for entry in entries:
        states[entry.state.value] = states.get(entry.state.value, 0) + 1
    return GateStatus(
        settings.mode,
        provider,
        settings.offer,
        settings.price / 1e6,
        settings.btu_ns / SECOND,
        settings.max_hosts,
        settings.max_spend / 1e6,
        ledger.spent(now) / 1e6,
        is_paused,
        fault,
        demand,
        sum(entry.units * entry.btu_ns for entry in entries) / SECOND,
        sum(entry.cost for entry in entries) / 1e6,
        states,
        dict(counts),
        _largest(by_application),
        [_line(entry) for entry in reversed(shown)][:MAX_LEASES],
        [msgspec.structs.replace(line, why=line.why[:MAX_WHY]) for line in last],
    )


def encoded(report: GateStatus) -> bytes:
    """Return a report as JSON that an agent takes; the oldest leases are left out of one that is too long."""
    while len(body := msgspec.json.encode(report)) > MAX_REPORT_BYTES and report.leases:
        report = msgspec.structs.replace(report, leases=report.leases[: len(report.leases) // 2])
    return body


def _largest(costs: Mapping[str, float]) -> dict[str, float]:
    """Return the largest costs by name, and the sum of all others."""
    named = dict(sorted(costs.items(), key=lambda item: (item[0] == OTHER, -item[1], item[0])))
    others = list(named)[MAX_APPLICATIONS:]
    shown = {name: cost for name, cost in named.items() if name not in others}
    return shown | ({OTHER: sum(named[name] for name in others)} if others else {})


def _line(entry: LeaseEntry) -> LeaseLine:
    return LeaseLine(
        entry.lease_id, entry.host_id, entry.host_name, entry.node, entry.state.value, entry.began_ns / SECOND,
        entry.paid_until_ns / SECOND, entry.units, entry.cost / 1e6, entry.why[:MAX_WHY],
        entry.first_unit, entry.term,
    )  # fmt: skip
