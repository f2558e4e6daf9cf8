"""Bans between real agents: links close everywhere, no new ones open, and what is banned stays so over restarts."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import Info, ListBans, Nodes
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, names_seen, wait_for

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with mesh(3) as made:
        yield made


def banned_at(agent: AgentProcess) -> list[str]:
    with contextlib.suppress(CommandRefusedError, NoAgentError, OSError):
        return [row["target"] for row in agent.ask(ListBans())["bans"] if row["in_force"]]
    return []


def key_of(asked: AgentProcess, name: str) -> str:
    return next(str(row["key"]) for row in asked.ask(Nodes())["nodes"] if row["name"] == name)


def test_a_banned_node_is_out_until_the_ban_is_lifted(ring: Mesh) -> None:
    founder, other, thief = ring.agents
    key = wait_for(lambda: key_of(founder, "a3"), 10, "a link with a3")
    told = cli("ban", "a3", "--reason", "stolen", "--agent", str(founder.state_dir))
    assert told.returncode == 0, told.stderr
    assert "a3 is banned." in told.stdout + told.stderr
    assert thief.process is not None
    assert thief.process.wait(20) != 0
    assert "This node was banned from its network by an admin" in thief.log.read_text()
    assert "Traceback" not in thief.log.read_text()
    wait_for(lambda: banned_at(other) == [key], 10, "a2 knows")
    wait_for(lambda: names_seen(founder) == {"a1", "a2"}, 20, "the ring is of two")

    (thief.state_dir / "bans").unlink(missing_ok=True)  # it would rather not know
    thief.start("--join", ring.token)
    assert thief.process.wait(30) != 0
    assert names_seen(other) == {"a1", "a2"}
    assert sum(dict(agent.ask(Info())["refusals"]).get("banned", 0) for agent in (founder, other)) > 0

    address = other.address
    other.kill()
    other.start("--listen", address)
    other.ready()
    assert banned_at(other) == [key]

    shown = json.loads(cli("bans", "-o", "json", "--agent", str(other.state_dir)).stdout)["bans"]
    assert [(row["target"], row["reason"], row["in_force"]) for row in shown] == [(key, "stolen", True)]
    told = cli("unban", key[:16], "--agent", str(founder.state_dir))
    assert told.returncode == 0, told.stderr
    wait_for(lambda: banned_at(other) == [], 20, "a2 knows that it was taken back")
    (thief.state_dir / "bans").unlink(missing_ok=True)
    thief.start("--join", ring.token)
    thief.ready()
    wait_for(lambda: names_seen(founder) == {"a1", "a2", "a3"}, 20, "a3 is back")


def test_a_banned_token_admits_no_node(ring: Mesh) -> None:
    token = ring.folder / "pi.token"
    token.write_text(ring.token)
    told = cli("ban", f"@{token}", "--until", "30d", "--agent", str(ring.agents[0].state_dir))
    assert told.returncode == 0, told.stderr
    for agent in ring.agents[1:]:  # both came by it
        assert agent.process is not None
        assert agent.process.wait(20) != 0
    newcomer = AgentProcess("a4", ring.folder)
    newcomer.start("--join", ring.token)
    assert newcomer.process is not None
    assert newcomer.process.wait(30) != 0
    assert "banned" in newcomer.log.read_text()
    assert ring.token not in newcomer.log.read_text()


def test_ban_refusal_names_the_admins(ring: Mesh) -> None:
    founder, other, _ = ring.agents
    token = ring.folder / "submitter.token"
    token.write_text(cli("token", "create", "--role", "submitter", "--agent", str(founder.state_dir)).stdout.strip())
    told = cli("ban", "a1", "--agent", other.address, "--identity", f"@{token}")
    assert told.returncode == 1
    assert "A submitter may not ban" in told.stderr
    told = cli("ban", "a1", "--agent", str(founder.state_dir))
    assert told.returncode == 1
    assert "you could not revoke such a ban" in told.stderr
    told = cli("ban", "a9", "--agent", str(founder.state_dir))
    assert told.returncode == 2
    assert "a9 is not a node that this agent knows. Known: a1, a2, a3" in told.stderr
    assert "Traceback" not in told.stderr
    for agent in ring.agents:
        assert banned_at(agent) == []


def test_an_admin_on_another_machine_bans_with_a_token(ring: Mesh) -> None:
    founder, other, _ = ring.agents
    made = cli("token", "create", "--role", "admin", "--agent", str(founder.state_dir))
    token = ring.folder / "admin.token"
    token.write_text(made.stdout.strip())
    key = "ab" * 32
    told = cli("ban", key, "--agent", other.address, "--identity", f"@{token}")
    assert told.returncode == 0, told.stderr
    for agent in ring.agents:
        wait_for(lambda asked=agent: banned_at(asked) == [key], 10, f"{agent.name} knows")
