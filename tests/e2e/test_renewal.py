"""A9: a membership is renewed in its last tenth while the node runs; a banned key gets no other."""

import time
from collections.abc import Iterator

import pytest

from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.operator_identity import stored_operator
from agiledart_kernel.grants import decode_link
from agiledart_node.wire.commands import CreateToken, Info
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, names_seen, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LIFE = 30


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with mesh(1) as made:
        yield made


def ends(agent: AgentProcess) -> int:
    """When its membership ends, as it lies on the disk."""
    return decode_link(Identity.read(agent.state_dir).chain[-1]).not_after


def operator_ends(agent: AgentProcess) -> int:
    """When the membership of its operator ends."""
    operator = stored_operator(Identity.read(agent.state_dir))
    assert operator is not None
    return decode_link(operator.chain[-1]).not_after


def life(agent: AgentProcess) -> int:
    """For how long it is signed."""
    link = decode_link(Identity.read(agent.state_dir).chain[-1])
    return link.not_after - link.not_before


@pytest.mark.soak
def test_a_membership_is_renewed_while_the_node_runs(ring: Mesh) -> None:
    (founder,) = ring.agents
    token = str(founder.ask(CreateToken(uses=2, expires=600, member_for=LIFE, operator="submitter"))["token"])
    members = [AgentProcess(name, ring.folder) for name in ("a2", "a3")]
    for agent in members:
        agent.start("--join", token)
        agent.ready()
        ring.agents.append(agent)
    ring.wait_for_ring()
    first = {agent.name: ends(agent) for agent in members}
    lives = {agent.name: life(agent) for agent in members}
    pids = [agent.pid for agent in members]
    for agent in members:
        wait_for(lambda a=agent: ends(a) > first[a.name] + LIFE // 2, 2 * LIFE, f"{agent.name} is renewed")
        assert operator_ends(agent) > first[agent.name] + LIFE // 2, "its operator is renewed before it"
        assert life(agent) == lives[agent.name], "neither longer nor shorter than it was"
    wait_for(lambda: time.time() > max(first.values()) + 2, 2 * LIFE, "the first memberships have ended")
    ring.wait_for_ring()
    assert [agent.pid for agent in members] == pids
    assert names_seen(founder) == {"a1", "a2", "a3"}
    told = cli("ban", "a3", "--agent", str(founder.state_dir))
    assert told.returncode == 0, told.stderr
    thief = members[1]
    assert thief.process is not None
    assert thief.process.wait(20) != 0
    was = ends(thief)
    (thief.state_dir / "bans").unlink(missing_ok=True)
    thief.start()
    wait_for(lambda: founder.ask(Info())["refusals"].get("banned", 0) > 0, 60, "the founder has turned it away")
    assert ends(thief) == was
    wait_for(lambda: names_seen(founder) == {"a1", "a2"}, 30, "the ring is of two, and stays so")
