"""A submitter that has as much as it may have gets no more, and reads which bound it is and whose."""

import json
import time
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Info, ListApplications
from tests.e2e.mesh import AgentProcess, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = '''
"""Takes readings for as long as they come."""
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    value: float

def passes(readings: Source[Reading], report: Sink[Reading], name: str = "passes") -> Topology:
    topology = Topology(name)
    topology.source("readings", readings).sink("report", report)
    return topology
'''


def test_the_exhausted_quota_and_its_owner_are_reported(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "quota.toml").write_text("[quota]\nexecutors = 1\n")
    (tmp_path / "few.toml").write_text("[quota]\napplications = 1\n")
    with mesh(0) as made:
        made.add([AgentProcess("a1", made.folder, "--config", str(tmp_path / "quota.toml"), "--zone", "here")])
        made.add([AgentProcess("a2", made.folder, "--config", str(tmp_path / "few.toml"), "--zone", "there")])
        first, second = made.agents
        token = tmp_path / "submitter.token"
        token.write_text(cli("token", "create", "--role", "submitter", "--agent", str(first.state_dir)).stdout.strip())

        def submit(name: str, agent: AgentProcess, *who: str) -> tuple[int, str, float]:
            began = time.monotonic()
            told = cli(
                "submit", f"{tmp_path / 'code.py'}:passes", "--name", name, "--set",
                f"readings=http://127.0.0.1:0/{name}?listen=1@a1",
                "--set", f"report=jsonl:{tmp_path / name}.jsonl@a1", *(who or ("--agent", str(agent.state_dir))),
            )  # fmt: skip
            return told.returncode, told.stderr, time.monotonic() - began

        at_first = ("--agent", first.address, "--identity", f"@{token}")
        at_second = ("--agent", second.address, "--identity", f"@{token}")
        code, text, _ = submit("one", first, *at_first)
        assert code == 0, text
        code, text, took = submit("two", first, *at_first)
        print(f"refused after {took:.1f} s")
        assert code == 1
        assert "a1 allows submitter " in text
        assert "at most 1 executors (quota.executors), and with two it would be 2." in text
        code, text, took = submit("three", second, *at_second)
        print(f"refused after {took:.1f} s")
        assert code == 1
        assert "is 1 applications (quota.applications), and one runs. Stop one:  agiledart stop one" in text
        assert "Traceback" not in text
        assert submit("four", first)[0] == 0  # at the socket an admin asks
        states = {row["name"]: row["state"] for row in second.ask(ListApplications())["applications"]}
        assert (states["one"], states["two"], states["four"]) == ("running", "failed", "running")
        assert "three" not in states
        assert second.ask(Info())["refusals"]["quota"] == 1
        assert first.ask(Info())["refusals"]["quota"] >= 1

        assert cli("stop", "one", "--now", *at_first).returncode == 0
        wait_for(lambda: submit("two", first, *at_first)[0] == 0, 20, "room for another")
        rows = json.loads(cli("audit", "--app", "three", "-o", "json", "--agent", str(first.state_dir)).stdout)["rows"]
        assert [(row["action"], row["allowed"], row["reason"]) for row in rows] == [("submit", False, "quota")]

        guest = tmp_path / "guest.token"
        register_token = cli("token", "create", "--role", "submitter", "--quota", "applications=1", "--quota", "executors=1",
                         "--output", str(guest), "--agent", str(first.state_dir))  # fmt: skip
        assert register_token.returncode == 0, register_token.stderr
        assert " quota       applications=1 executors=1" in cli("token", "show", f"@{guest}").stdout
        as_guest = ("--agent", second.address, "--identity", f"@{guest}")
        assert cli("stop", "two", "--now", *at_first).returncode == 0
        wait_for(lambda: submit("five", second, *as_guest)[0] == 0, 20, "room for a guest's")
        code, text, _ = submit(
            "six", first, "--agent", first.address, "--identity", f"@{guest}"
        )  # which limits no owner's numberr
        assert code == 1
        assert "is 1 applications (by its token), and five runs. Stop one:  agiledart stop five" in text
