"""Orders for the gates beside an agent: they wait for an answered report, and one without a place is not said to be taken."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.gates import gate_reports
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


def test_an_order_waits_for_a_report_that_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[Any] = []
    context = cast(Any, SimpleNamespace(now=0, reply=lambda request, body: replies.append(body)))
    reports = GateReports(context, cast(Any, None), cast(Any, None))
    rings = iter([CommandRefused("The ring did not answer."), None])

    async def no_agents(*_: Any) -> list[Any]:
        if (error := next(rings)) is not None:
            raise error
        return []

    async def leads(*_: Any) -> bool:
        return True

    monkeypatch.setattr(gate_reports, "ask_all_agents", no_agents)
    monkeypatch.setattr(GateReports, "_holds_zone", leads)
    gate = reports._gates["gw"] = _Gate(ReportGate("gw", "", b"[]"), cast(Any, 0))
    gate.orders.append(("pause", "", "ann"))
    with pytest.raises(CommandRefused):
        asyncio.run(reports.report(1, ReportGate("gw", "", b"[]"), Principal()))
    asyncio.run(reports.report(2, ReportGate("gw", "", b"[]"), Principal()))
    assert [reply.orders for reply in replies] == [[("pause", "", "ann")]]
    assert reports._gates["gw"].orders == []
