"""An application that has ended is known after all agents were killed and started again, until it is forgotten."""

import json
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import Forget, ListApplications, Status
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NUMBERS = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Number(NamedTuple):
    n: int


def numbers(source: Source[Number], out: Sink[Number]) -> Topology:
    topology = Topology("numbers")
    topology.source("numbers", source).sink("out", out)
    return topology
"""


def restart(made: Mesh) -> None:
    """A power cut of all machines, and power again."""
    addresses = {agent.name: agent.address for agent in made.agents}
    for agent in made.agents:
        agent.kill()
    for agent in made.agents:
        agent.start("--listen", addresses[agent.name])
    for agent in made.agents:
        agent.ready()
    made.wait_for_ring(60)


def known(agent: AgentProcess) -> Any:
    """The status of the application; None when the agent does not know it."""
    try:
        return agent.ask(Status("numbers"))
    except CommandRefusedError:
        return None


def listed(agent: AgentProcess) -> dict[str, str]:
    """State of each application that the agent lists."""
    return {row["name"]: row["state"] for row in agent.ask(ListApplications())["applications"]}


def has_record(agent: AgentProcess) -> bool:
    """Whether the record is on the agent's disk."""
    return any(b"numbers" in path.read_bytes() for path in agent.state_dir.rglob("*") if "ended" in path.name)


def test_an_ended_application_outlives_a_power_cut_until_it_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(NUMBERS)
    (tmp_path / "in.csv").write_text("".join(f"{n}\n" for n in range(100)))
    with mesh(3) as made:
        first, last = made.agents[0], made.agents[-1]
        words = ["--set", "source=csv:in.csv", "--set", f"out=jsonl:{tmp_path / 'out.jsonl'}", "--wait"]
        ran = cli("submit", "counting.py:numbers", *words, "--agent", str(first.state_dir), cwd=tmp_path)
        assert ran.returncode == 0, ran.stderr
        before = first.ask(Status("numbers"))
        wait_for(lambda: has_record(first), 30, "the record is on the disk")
        restart(made)
        again = wait_for(lambda: known(last), 90, "the application is known again")
        assert (again["state"], again["version"], again["summary"]) == ("finished", 1, before["summary"])
        assert again["summary"]["records_in"] == 100
        wait_for(lambda: listed(last) == {"numbers": "finished"}, 60, "the list of applications is known again")
        shown = cli("status", "numbers", "--agent", str(first.state_dir), "-o", "json")
        assert json.loads(shown.stdout)["state"] == "finished"
        last.ask(Forget("numbers"))
        restart(made)
        assert not any(known(agent) for agent in made.agents)
