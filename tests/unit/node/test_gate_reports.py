"""Orders for the gates beside an agent: one that finds no place is not said to be taken."""

from types import SimpleNamespace
from typing import Any, cast

from agiledart_node.gates.gate_reports import GateReports, _Gate
from agiledart_node.wire.lease_messages import MAX_ORDERS, OrderGate, ReportGate


def test_an_order_beyond_the_limit_is_not_taken() -> None:
    dropped: list[str] = []
    context = cast(Any, SimpleNamespace(drop=dropped.append))
    reports = GateReports(context, cast(Any, None), cast(Any, None))
    gate = reports._gates["gw"] = _Gate(ReportGate("gw", "", b'["h0"]'), cast(Any, 0))
    gate.orders += [("release", f"b{number}", "ann") for number in range(MAX_ORDERS)]
    assert reports._take(OrderGate("release", "h0"), "ann") == []
    assert dropped == ["order for a gate"]
    gate.orders[0] = ("release", "h0", "ann")
    assert reports._take(OrderGate("release", "h0"), "ann") == ["gw"], "it waits there already"
    assert len(gate.orders) == MAX_ORDERS
