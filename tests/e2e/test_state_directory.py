"""After any damage to a file of the state directory, an agent keeps its identity or reports file, cause and command."""

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmarks.faults.files import DAMAGES, damage
from benchmarks.faults.job import write_input

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, names_seen, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

NAMES = {"a1", "a3"}
COMMAND = re.compile(r"\b(rm /|agiledart agent --|mv /)")


@pytest.fixture
def ring() -> Iterator[Mesh]:
    """a2 and a3 have a log, secrets and an audit, and have stopped; a1 goes on."""
    with mesh(3) as made:
        write_input(made.folder)
        near = str(made.agent("a1").state_dir)
        for name in ("a2", "a3"):
            left, right = (f"{side}=csv:{side}.csv?speed=20@a1" for side in ("left", "right"))
            ran = cli(
                "submit", "job.py:build", "--agent", near, "--set", left, "--set", right, "--set", f"report=log:{name}@{name}",
                "--set", f"folds=csv:{name}.csv@a1", "--set", f"name={name}", cwd=made.folder,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stderr
            set_one = ("secret", "set", "password", "--to", name, "--for", name, "--agent", near)
            ran = cli(*set_one, input="hidden\n", cwd=made.folder)
            assert ran.returncode == 0, ran.stderr
            wait_for(partial(has_finished, made.agent("a1"), name), 60.0, f"{name} is finished")
        for name in ("a2", "a3"):
            assert made.agent(name).end() == 0
        yield made


def has_finished(asked: AgentProcess, name: str) -> bool:
    return bool(asked.ask(Status(name))["state"] == "finished")


def started(agent: AgentProcess) -> tuple[str, str]:
    """(its node id, empty when it did not come up; its output)."""
    before = len(agent.log.read_text())
    agent.start()
    assert agent.process is not None
    process = agent.process
    wait_for(lambda: agent.description or process.poll() is not None, 60.0, "it is up, or has ended")
    found = agent.description
    return str(found["node_id"]) if found else "", agent.log.read_text()[before:]


@pytest.mark.timeout(3600)
def test_every_file_is_damaged_in_every_way(ring: Mesh) -> None:
    agent, other = ring.agent("a3"), ring.agent("a2").state_dir
    whole = ring.folder / "whole"
    shutil.copytree(agent.state_dir, whole)
    node, said = started(agent)
    assert node, said
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert {"node.key", "network.json", "peers.json", "incarnation"} <= {str(path) for path in files}
    assert any(path.parts[0] == "sink-logs" for path in files)
    assert any(path.parts[0] == "secrets" for path in files)
    for file in files:
        for way in DAMAGES:
            assert agent.end() == 0
            counted = (agent.state_dir / "incarnation").read_bytes()
            shutil.rmtree(agent.state_dir)
            shutil.copytree(whole, agent.state_dir)
            (agent.state_dir / "incarnation").write_bytes(counted)
            damage(agent.state_dir / file, way, 1_000_003, Path(str(other / file).replace("a3", "a2")))
            told = f"{file} is {way}"
            came_up_as, said = started(agent)
            if came_up_as:
                assert came_up_as == node, f"{told}: {said}"
                wait_for(lambda: names_seen(agent) == NAMES, 60.0, f"{told}, in its ring: {said}")
                continue
            assert str(agent.state_dir / file) in said, f"{told}: {said}"
            assert COMMAND.search(said), f"{told}: {said}"
            assert "Traceback" not in said, f"{told}: {said}"
            shutil.copy(whole / file, agent.state_dir / file)
            (agent.state_dir / "incarnation").write_bytes(counted)
            came_up_as, said = started(agent)
            assert came_up_as == node, f"with what was put back: {said}"
