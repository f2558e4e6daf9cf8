"""Leases of other gates, from their reports: those that they adopted and that are over."""

import json
from typing import Any

from agiledart_cli.gate.mesh_link import MeshLink
from agiledart_provisioning.gate.lease_entry import LeaseState

LINE = {
    "lease_id": "g0-1", "host_id": "h2", "host_name": "agiledart-n-g0-1", "node": "n2", "state": "ended", "began_s": 0.0,
    "paid_until_s": 1.0, "units": 1, "cost": 0.1, "why": "", "first_unit": 2, "term": 2,
}  # fmt: skip


def report(gate: str, **line: object) -> dict[str, Any]:
    return {"gate": gate, "report": json.dumps({"mode": "act", "leases": [{**LINE, **line}]})}


def test_an_adopted_lease_that_is_over_is_a_record() -> None:
    link = MeshLink(None, None, "g0", "")
    (record,) = link._ended([report("g1")])
    assert (record.lease_id, record.gate, record.first_unit, record.units, record.term) == ("g0-1", "g1", 2, 1, 2)
    assert record.state is LeaseState.ENDED
    others = [report("g0"), report("g1", state="joined"), report("g1", term=1), {"gate": "g1", "report": "no report"}]
    assert link._ended(others) == []
