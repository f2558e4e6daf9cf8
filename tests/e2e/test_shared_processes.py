"""Small applications of one owner share a process; its end costs none of them a row, and each user reads one message."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.mesh_client import MeshClient
from agiledart_node.wire.commands import Info
from tests.e2e.mesh import AgentProcess, Mesh, alive, mesh, wait_for
from tests.e2e.test_log_owners import Person

pytestmark = [pytest.mark.e2e]

ROWS = 300
CODE = """
import os
from pathlib import Path
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    at: int
    value: int

def small(readings: Source[Reading], report: Sink[Reading], name: str = "small", trap: str = "") -> Topology:
    def check(reading: Reading) -> bool:
        if trap and reading.value == 150 and not Path(trap).exists():
            Path(trap).touch()
            os.abort()
        return True

    print(f"{name} is built")
    topology = Topology(name)
    topology.source("readings", readings, event_time="at").filter(check, name="check").sink("report", report)
    return topology
"""


@pytest.fixture(scope="module")
def lone() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__EXECUTORS_SHARE", "owner")
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(1) as made:
            yield made


def submit(client: MeshClient, folder: Path, name: str, trap: str = "") -> None:
    settings = {
        "name": name,
        "readings": f"csv:{folder / 'rows.csv'}?speed=1@a1",
        "report": f"log:{name}@a1",
        "trap": trap,
    }
    client.submit(f"{folder / 'code.py'}:small", settings, name=name, delivery="exactly-once")


def processes(agent: AgentProcess) -> dict[str, int]:
    """Return the process of each application."""
    return {str(e["application"]): int(e["pid"]) for e in agent.ask(Info())["executors"]}


def prepared(folder: Path) -> None:
    (folder / "code.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{number * 20},{number}\n" for number in range(ROWS)))


def finished(client: MeshClient, name: str) -> Any:
    """Wait for the end of an application. Return its status."""
    final = client.application(name).wait(60.0)
    assert (final["state"], final["lost"]) == ("finished", 0), final
    return final


def lines(client: MeshClient, name: str) -> list[str]:
    return [line.text for line in client.application(name).logs()]


def test_a_killed_shared_process_costs_no_row_and_other_owners_nothing(lone: Mesh, tmp_path: Path) -> None:
    (agent,) = lone.agents
    prepared(tmp_path)
    ann, bob = (Person(agent, tmp_path, name) for name in ("ann", "bob"))
    names = ("one", "two", "three")
    with MeshClient(agent.address, f"@{ann.path}") as anns, MeshClient(agent.address, f"@{bob.path}") as bobs:
        for name in names:
            submit(anns, tmp_path, name)
        submit(bobs, tmp_path, "strange")
        placed = processes(agent)
        (shared,) = {placed[name] for name in names}
        assert placed["strange"] != shared
        own = [anns.application(name) for name in names]
        wait_for(lambda: all((known.status().get("epoch") or {}).get("committed") for known in own), 20, "an epoch")
        os.kill(shared, signal.SIGKILL)
        for name in names:
            final = finished(anns, name)
            assert ann.rows(agent, name) == ROWS
            assert sum("restarted, attempt 2" in entry["text"] for entry in final["history"]) == 1
            (told,) = [line for line in lines(anns, name) if "killed by SIGKILL" in line]
            assert "shared with 2 other applications of its owner" in told
            assert "which one was at work is unknown" in told
        assert not any("attempt 2" in entry["text"] for entry in finished(bobs, "strange")["history"])
        assert bob.rows(agent, "strange") == ROWS
    assert not alive(shared)


@pytest.mark.soak  # `tests/unit/agent/test_shared_executors.py` has it without an agent
def test_the_application_that_crashed_a_shared_process_gets_its_own(lone: Mesh, tmp_path: Path) -> None:
    (agent,) = lone.agents
    prepared(tmp_path)
    eve = Person(agent, tmp_path, "eve")
    names = ("calm", "quiet", "trapped")
    with MeshClient(agent.address, f"@{eve.path}") as eves:
        for name in names:
            submit(eves, tmp_path, name, trap=str(tmp_path / "sprung") if name == "trapped" else "")
        (shared,) = {processes(agent)[name] for name in names}
        wait_for((tmp_path / "sprung").exists, 20, "the crash")

        def restarted() -> dict[str, int] | None:
            placed = processes(agent)
            return placed if placed.keys() >= set(names) and shared not in placed.values() else None

        placed = wait_for(restarted, 20, "new processes")
        assert placed["calm"] == placed["quiet"] != placed["trapped"]
        for name in names:
            finished(eves, name)
            assert eve.rows(agent, name) == ROWS
        (why,) = [line for line in lines(eves, "calm") if "crashed in" in line]
        assert "trapped was at work" in why
        assert any("crashed in code.py:" in line and "Aborted" in line for line in lines(eves, "trapped"))
