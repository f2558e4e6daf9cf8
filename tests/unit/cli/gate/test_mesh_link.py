"""Leases of other gates, from their reports: those that they adopted and that are over."""

import json
from typing import Any

import pytest

from agiledart_cli.gate.mesh_link import MeshLink
from agiledart_control.errors import CommandRefusedError
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import Command, Tokens
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


class Refusing:
    """Agent that refuses to show tokens to this user."""

    def __enter__(self) -> "Refusing":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def ask(self, command: Command) -> dict[str, object]:
        if isinstance(command, Tokens):
            raise CommandRefusedError("your role is submitter.", 1)
        return {"network": "5e1f"}


def test_a_gate_that_may_make_no_tokens_learns_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeshLink, "client", lambda self: Refusing())
    with pytest.raises(OperationFailed, match="agiledart token create --role provisioner"):
        MeshLink(None, None, "g0", "").network()
