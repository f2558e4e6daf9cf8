"""`agiledart provision status`: compliance of running applications, and a report that this version cannot read."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from agiledart_cli.gate.gate_report import figures_of
from agiledart_cli.verbs.provisioning.provision_verbs import provision
from agiledart_kernel.instants import SECOND
from agiledart_node.wire.commands import Command, ListApplications, Status
from agiledart_node.wire.control_messages import ControlRefusal
from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_settings import GateSettings
from tests.unit.cli.fake_agent import FakeAgent

SETTINGS = GateSettings("act", 2, 10, "small", 1, 3_600 * SECOND)
REPORT = msgspec.json.encode(
    figures_of(
        GateLedger(SETTINGS), SETTINGS, "local", {}, deque(), 0, is_paused=False, fault="", demand="", by_application={}
    )
).decode()
LEVELS = [
    {"step": "out", "slo_ms": 2_000.0, "rows": 90, "real_time": 0.9, "near_real_time": 1.0, "relaxed": 1.0, "is_estimate": False}
]  # fmt: skip


def reply(command: Command) -> list[Any]:
    if isinstance(command, ListApplications):
        states = {"meters": "running", "old": "finished", "gone": "running", "plain": "running"}
        return [{"applications": [{"name": name, "state": state} for name, state in states.items()]}]
    if isinstance(command, Status):
        if command.name == "gone":
            return [ControlRefusal(0, "There is no application gone.", 1)]
        return [{"summary": {"service_levels": LEVELS if command.name == "meters" else []}}]
    gates = [
        {"gate": "gw", "zone": "", "agent": "a1", "age_s": 1.0, "report": REPORT},
        {"gate": "g2", "zone": "", "agent": "a2", "age_s": 1.0, "report": '{"mode": "act"}'},
    ]
    return [{"gates": gates, "taken": [], "silent_nodes": []}]


@pytest.mark.parametrize("output", ["table", "json"])
def test_compliance_and_a_report_of_another_version(tmp_path: Path, output: str) -> None:
    with FakeAgent(tmp_path, reply):
        answer = CliRunner().invoke(provision, ["status", "--agent", str(tmp_path), "-o", output])
    assert answer.exit_code == 0, answer.output
    if output == "json":
        document = json.loads(answer.stdout)
        assert document["service_levels"] == {"meters": LEVELS}
        assert [row["gate"] for row in document["gates"]] == ["gw"]
        return
    assert (
        "service levels of meters:\n  out 90.0% within 2,000 ms, 100.0% within 4,000 ms, 100.0% within 10 s\n"
        in answer.stdout
    )
    assert "plain" not in answer.stdout
    assert "The report of gate g2 beside a2 is not readable here: it has another version." in answer.output
