"""Tokens are used as often as they say: real agents, also one that was off, and a thief with software of his own."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.identity.tokens import parse_token
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import decode_link, sign_link
from agiledart_node.wire.commands import CreateToken, Info
from agiledart_transport.certificates import make_credentials, public_bytes
from agiledart_transport.connecting import connect
from agiledart_transport.link import RefusedByPeer
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.tls_contexts import client_context
from tests.e2e.attacks import Key
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, names_seen, wait_for

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with mesh(2) as made:
        yield made


def refused(ring: Mesh, name: str, token: str) -> str:
    """Message to a refused newcomer."""
    newcomer = AgentProcess(name, ring.folder)
    newcomer.start("--join", token)
    assert newcomer.process is not None
    assert newcomer.process.wait(60) == 1
    text = newcomer.log.read_text()
    assert token not in text
    assert "Traceback" not in text
    return text


def test_a_token_of_one_use_admits_one_node_and_names_it(ring: Mesh) -> None:
    founder, other = ring.agents
    token = str(founder.ask(CreateToken(uses=1, expires=3_600))["token"])
    first = AgentProcess("a3", ring.folder)
    first.start("--join", token)
    node = first.ready()["node_id"]
    ring.agents.append(first)
    assert re.search(rf"used up: by node {node[:8]}, key [0-9a-f]{{16}}, at 20\d\d-.* UTC", refused(ring, "a4", token))

    at_other = token_at(ring, token, other.address)
    assert "used up: by node" in refused(ring, "a5", at_other), "whoever is asked"
    first.kill()
    first.start("--join", token)
    first.ready()
    wait_for(lambda: names_seen(founder) == {"a1", "a2", "a3"}, 20, "a3 is back by its key")

    listed = json.loads(cli("token", "list", "-o", "json", "--agent", str(founder.state_dir)).stdout)["tokens"]
    (row,) = [row for row in listed if row["uses"] == 1]
    assert (row["used"], row["excess"], row["state"], row["role"]) == (1, 0, "used up", "agent")
    assert token not in json.dumps(listed)
    assert "used up" in cli("token", "list", "--agent", str(founder.state_dir)).stdout


def token_at(ring: Mesh, token: str, address: str) -> str:
    """The same token, which begins at another agent."""
    import msgspec

    from agiledart_agent.identity import tokens

    wire = tokens._from_text(token)
    return tokens._to_text(msgspec.msgpack.encode(msgspec.structs.replace(wire, addresses=(address,))))


async def tries_token(address: str, text: str, key: Key) -> str:
    """Message to a thief that signs itself in: as if it were still the token's first second."""
    token = parse_token(text)
    secret = Key.from_private_bytes(token.secret)
    above = decode_link(token.chain[-1])
    chain = sign_link(
        token.network, secret.sign, token.chain, key=public_bytes(key), use="act", role="agent",
        not_before=above.not_before, not_after=above.not_after,
    )  # fmt: skip
    try:
        link = await connect(
            address,
            service="overlay",
            context=client_context(make_credentials(key, token.network, int(time.time()))),
            hello=Hello(service="overlay", chain=chain, token=token.signed_record, incarnation=1, name="thief"),
            verifier=LocalPeerVerifier(token.network, time.time),
            on_frame=lambda link, kind, body: None,
            on_closed=lambda link, reason: None,
        )
    except RefusedByPeer as error:
        return str(error)
    link.abort("done")
    return ""


def test_a_thief_with_modified_software_admits_no_node(ring: Mesh) -> None:
    """A token of one use, past its end: five keys as agents, with backdated links."""
    founder, _ = ring.agents
    token = str(founder.ask(CreateToken(uses=1, expires=1, member_for=3_600))["token"])
    wait_for(lambda: cli("token", "show", token).returncode == 1, 30, "the token is over")
    words = [asyncio.run(tries_token(founder.address, token, Key.generate())) for _ in range(5)]
    assert {word.partition(":")[0] for word in words} == {"token expired"}
    good = str(founder.ask(CreateToken(uses=2, expires=3_600))["token"])
    words = [asyncio.run(tries_token(founder.address, good, Key.generate())) for _ in range(5)]
    assert words[:2] == ["", ""]
    assert [word.partition(":")[0] for word in words[2:]] == ["used up"] * 3
    assert founder.ask(Info())["refusals"]["token expired"] == 5


def test_the_use_count_survives_a_stop_of_all_agents(ring: Mesh) -> None:
    founder, other = ring.agents
    token = str(founder.ask(CreateToken(uses=1, expires=3_600))["token"])
    third = AgentProcess("a3", ring.folder)
    third.start("--join", token)
    third.ready()
    addresses = {agent.name: agent.address for agent in (founder, other)}
    for agent in (founder, other, third):
        agent.kill()
    for agent in (founder, other):
        agent.start("--listen", addresses[agent.name])
    for agent in (founder, other):
        agent.ready()
    assert "used up: by node" in refused(ring, "a4", token)
    third.start()
    third.ready()
    ring.agents.append(third)
    wait_for(lambda: names_seen(founder) == {"a1", "a2", "a3"}, 30, "a3 is back")


def test_a_revoked_token_admits_no_node_and_its_members_stay(ring: Mesh, tmp_path: Path) -> None:
    founder, other = ring.agents
    file = tmp_path / "pi.token"
    file.write_text(ring.token)
    told = cli("token", "revoke", f"@{file}", "--agent", str(founder.state_dir))
    assert told.returncode == 0, told.stderr
    assert "admits no further member" in told.stdout + told.stderr
    at_other = token_at(ring, ring.token, other.address)
    assert "revoked" in wait_for(lambda: refused(ring, "a3", at_other), 20, "a2 knows")
    assert names_seen(founder) == {"a1", "a2"}
    listed = json.loads(cli("token", "list", "-o", "json", "--agent", str(founder.state_dir)).stdout)["tokens"]
    assert "revoked" in [row["state"] for row in listed]
    told = cli("token", "revoke", "ab12", "--agent", str(founder.state_dir))
    assert told.returncode == 2
    assert "This network has no token ab12" in told.stderr
