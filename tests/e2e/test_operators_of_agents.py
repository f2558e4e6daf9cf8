"""Rights of the users of an agent's socket: on the founder everything, on a node that joined what its token says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh
from tests.e2e.test_log_owners import CODE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    """Three agents: the founder, one whose operator is a submitter, and one that only hosts."""
    with mesh(1) as made:
        for options in ((), ("--operator", "none")):
            founder = str(made.agents[0].state_dir)
            made.token = cli("token", "create", "--uses", "1", "--agent", founder, *options).stdout.strip()
            made.grow(1)
        yield made


def outcome(agent: AgentProcess, *words: str) -> tuple[int, str]:
    """Return exit code and messages of a command at an agent's socket."""
    done = cli(*words, "--agent", str(agent.state_dir))
    return done.returncode, done.stderr


def test_operators_command_and_hosting_nodes_do_not(ring: Mesh, tmp_path: Path) -> None:
    founder, user, host = ring.agents
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "in.jsonl").write_text('{"value": 1}\n')

    def submit(agent: AgentProcess, name: str, at: str) -> tuple[int, str]:
        source = f"readings=jsonl:{tmp_path / 'in.jsonl'}?follow=1@{at}"
        words = ("--name", name, "--set", source, "--set", f"report=log:{name}@a3")
        return outcome(agent, "submit", f"{tmp_path / 'code.py'}:keep", *words)

    code, text = submit(host, "no", "a1")
    assert (code, "This node only hosts: its operator may not submit" in text) == (1, True), text
    assert submit(user, "mine", "a2")[0] == 0
    assert submit(founder, "its", "a1")[0] == 0

    for words in (("list",), ("status", "mine"), ("nodes",)):
        assert outcome(host, *words)[0] == 0, words
    code, text = outcome(host, "stop", "mine", "--now")
    assert (code, "only hosts" in text) == (1, True), text
    code, text = outcome(user, "stop", "its", "--now")
    assert (code, "its belongs to the key" in text) == (1, True), text
    assert outcome(user, "stop", "mine", "--now")[0] == 0
    assert outcome(founder, "stop", "its", "--now")[0] == 0
    code, text = outcome(host, "drain", "a1")
    assert (code, "may not drain" in text) == (1, True), text
    assert outcome(host, "drain", "a3", "--stay")[0] == 0
