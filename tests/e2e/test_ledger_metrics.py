"""The ledger of an application among the metrics of its agents: every line that was read is somewhere, for every reason."""

import re
from collections import Counter
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.test_prometheus import page

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = '''
"""Rows that are malformed, late, filtered, skipped, put aside, taken; and a result that cannot be made."""
from datetime import datetime, timedelta
from typing import NamedTuple
from agiledart import Aggregator, Sink, Source, Topology, tumbling

class Reading(NamedTuple):
    at: datetime
    value: float

def inverse(reading: Reading) -> Reading:
    return reading._replace(value=60 / reading.value)

def parity(reading: Reading) -> int:
    if reading.value == 30:
        raise LookupError("no key for 30")
    return int(reading.value) % 2

class Picky(Aggregator[Reading, int, int]):
    def create(self) -> int:
        return 0
    def add(self, state: int, row: Reading) -> int:
        return state + 1
    def result(self, state: int) -> int:
        if state == 1:
            raise ValueError("one is too few")
        return state

def build(readings: Source[Reading], report: Sink, letters: Sink) -> Topology:
    topology = Topology("accounts")
    stream = topology.source("readings", readings, event_time=lambda r: r.at)
    kept = stream.map(inverse, on_error="skip").filter(lambda r: r.value < 60, name="small")
    panes = kept.key_by(parity).window(tumbling(timedelta(minutes=1))).aggregate("panes", Picky(), on_error="dead_letter")
    panes.sink("report", report)
    panes.errors("letters").map(lambda one: one.step, name="step", returns=str).sink("letters-out", letters)
    return topology
'''

VALUES = ["0", "1", "2", "3", "4", "5", "6", "10", "12", "oops", "0", "15"]


def ledger(made: Mesh, application: str, family: str) -> Counter[str]:
    """Reason → records, all agents together."""
    found: Counter[str] = Counter()
    for agent in made.agents:
        status, text = page(agent, "/metrics")
        assert status == 200
        pattern = rf'^agiledart_application_{family}{{app="{application}",reason="(\w+)"}} (\S+)$'
        for reason, value in re.findall(pattern, text, re.MULTILINE):
            found[reason] += int(float(value))
        unbalanced = re.findall(
            rf'^agiledart_application_ledger_imbalances{{app="{application}"}} (\S+)$', text, re.MULTILINE
        )
        assert [float(one) for one in unbalanced if float(one)] == []
    return found


def test_every_line_read_is_accounted_for(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(CODE)
    lines = [f"2024-01-01 00:00:{second + 1:02d},{value}\n" for second, value in enumerate(VALUES)]
    (tmp_path / "in.csv").write_text("".join([*lines, "2023-12-31 00:00:00,7\n"]))
    with mesh(3) as made:
        ran = cli(
            "submit", "job.py:build", "--agent", str(made.agent("a1").state_dir), "--set", "readings=csv:in.csv@a1",
            "--set", "report=csv:out.csv@a2", "--set", "letters=csv:letters.csv@a3", cwd=tmp_path,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        final = wait_for(
            lambda: (status := made.agent("a2").ask(Status("accounts")))["state"] in ("finished", "failed") and status,
            40,
            "the job has ended",
        )
        assert final["state"] == "finished", final
        went = wait_for(
            lambda: (found := ledger(made, "accounts", "ledger_records_total"))["delivered"] == 3 and found,
            20,
            "all agents have the last figures",
        )
        assert went == Counter(
            {"read": 13, "malformed": 1, "late": 1, "skipped": 2, "filtered": 1, "dead_letter": 1, "taken": 7, "failed": 0,
             "shed": 0, "delivered": 3}
        )  # fmt: skip
        gone = sum(
            went[reason] for reason in ("malformed", "late", "shed", "skipped", "filtered", "dead_letter", "taken")
        )
        assert went["read"] == gone
        assert sum(ledger(made, "accounts", "pending_records").values()) == 0
        assert final["summary"]["imbalances"] == []
        assert final["summary"]["steps"]["panes"]["taken"] == went["taken"]
        shown = cli("status", "accounts", "--agent", str(made.agent("a3").state_dir)).stdout
        assert "panes: its code raised an exception: 1 dead letters" in shown, shown
        told = cli("logs", "accounts", "--agent", str(made.agent("a3").state_dir)).stdout
        assert "in panes: LookupError: no key for 30 for record Reading(" in told, told
