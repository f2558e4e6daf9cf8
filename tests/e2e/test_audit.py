"""Signed commands of several users at several agents: every one is found in the audit, and an altered line on a disk is
reported.
"""

import asyncio
import json
from collections import Counter

import pytest

from agiledart_agent.control.control_api import CONTROL
from agiledart_kernel.frames import FrameKind, frame
from agiledart_node.wire.commands import Command, CreateToken, Forget, Nodes, SetBan, ShareApplication, Stop
from agiledart_node.wire.control_messages import ControlRequest
from agiledart_transport.certificates import public_bytes
from tests.e2e.attacks import Key, Target, _member, _order
from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

Found = tuple[str, str, str, str, bool, str]
"""Node, key, what, about which application, allowed, why not."""

USERS = (("admin", ""), ("submitter", ""), ("submitter", "app:x1"), ("reader", ""), ("reader", "sink:x1"))


def what_comes_of_it(role: str, scope: str, command: Command, *, is_signed: bool) -> tuple[bool, str]:
    """Manual run: allowed, or why not."""
    if role == "reader" or (role == "submitter" and isinstance(command, CreateToken | SetBan)):
        return False, "role"
    if scope and getattr(command, "name", "") != "x1":
        return False, "scope"
    return (True, "") if is_signed else (False, "command")


def orders(count: int) -> list[tuple[Command, bool]]:
    """(command, is it signed?)"""
    kinds: list[Command] = []
    for number in range(count):
        name = f"x{number % 3}"
        kinds.append(
            (
                Stop(name),
                ShareApplication(name, "ab" * 32),
                Forget(name),
                CreateToken("reader"),
                SetBan(f"{number:064x}", 0),
            )[number % 5]
        )
    return [(command, number % 7 != 3) for number, command in enumerate(kinds)]


async def give(agent: str, target: Target, role: str, scope: str, count: int) -> Counter[Found]:
    """One user's orders at one agent, one after the other."""
    key = Key.generate()
    verbs = {Stop: "stop", ShareApplication: "share", Forget: "forget", CreateToken: "create token", SetBan: "ban"}
    given: Counter[Found] = Counter()
    reader, writer = await _member(target, key, role, "control", scope)
    for number, (command, is_signed) in enumerate(orders(count)):
        order = _order(target, command, key, role, scope) if is_signed else b""
        writer.write(frame(FrameKind.CONTROL, CONTROL.encode(ControlRequest(number, command, order))))
        await reader.readexactly(int.from_bytes((await reader.readexactly(5))[:4], "big"))
        allowed, why = what_comes_of_it(role, scope, command, is_signed=is_signed)
        given[agent, public_bytes(key).hex(), verbs[type(command)], getattr(command, "name", ""), allowed, why] += 1
    writer.transport.abort()
    return given


def audit(asked: Mesh, *words: str) -> tuple[int, dict[str, object], str]:
    told = cli("audit", "-o", "json", *words, "--agent", str(asked.agents[-1].state_dir))
    return told.returncode, json.loads(told.stdout), told.stderr


def mixed(made: Mesh, count: int) -> None:
    """So many signed commands of five users at all agents."""
    founder = made.agents[0].state_dir
    each = count // len(USERS) // len(made.agents)

    async def play() -> Counter[Found]:
        work = [
            give(agent.name, Target.of(agent.address, founder), role, scope, each)
            for agent in made.agents
            for role, scope in USERS
        ]
        return sum(await asyncio.gather(*work), Counter())

    given = asyncio.run(play())
    assert given.total() == count
    code, body, _ = audit(made)
    assert code == 0
    rows = [row for row in body["rows"] if row["origin"].startswith("127.0.0.1:")]  # type: ignore[attr-defined]
    fields = ("node", "key", "action", "application", "allowed", "reason")
    found = Counter(tuple(row[field] for field in fields) for row in rows)
    assert found == given
    assert body["silent_nodes"] == []
    assert not any(node["faults"] for node in body["nodes"])  # type: ignore[attr-defined]
    assert all(row["at_ms"] and row["requester"].startswith(("admin ", "submitter ", "reader ")) for row in rows)


def test_every_command_is_audited_and_an_altered_line_is_reported() -> None:
    with mesh(2) as made:
        mixed(made, 100)
        code, body, _ = audit(made, "--app", "x1", "--since", "1h", "--requester", "submitter")
        assert code == 0
        assert {(row["application"], row["requester"].split()[0]) for row in body["rows"]} == {("x1", "submitter")}  # type: ignore[attr-defined]
        assert cli("audit", "--since", "1s", "--app", "none", "--agent", str(made.agents[0].state_dir)).stdout == (
            "No entry matches.\n"
        )
        made.agents[0].kill()  # takes no line along
        path = made.agents[0].state_dir / "audit" / "allowed.log"
        lines = path.read_bytes().splitlines(keepends=True)
        made.agents[0].start()
        made.agents[0].ready()
        made.wait_for_ring()
        wait_for(
            lambda: audit(made)[0] == 0, 30.0, "all answer, and no line is altered"
        )  # a link to the former process may still fail
        path.write_bytes(b"".join(lines[:2] + lines[3:]))
        told = cli("audit", "--verify", "--agent", str(made.agents[1].state_dir))
        assert told.returncode == 1
        assert "of the allowed commands was altered, or lines before it were removed." in told.stdout + told.stderr
        assert "a2: " in told.stdout + told.stderr


@pytest.mark.soak
def test_a_thousand_commands_of_five_users_at_five_agents_are_audited() -> None:
    with mesh(5) as made:
        mixed(made, 1_000)


def test_only_admins_read_the_audit_and_reading_is_not_audited() -> None:
    with mesh(1) as made:
        agent = made.agents[0]
        agent.ask(Nodes())
        told = cli("token", "create", "--role", "submitter", "--agent", str(agent.state_dir))
        token = made.folder / "sub.token"
        token.write_text(told.stdout.strip())
        told = cli("audit", "--agent", agent.address, "--identity", f"@{token}")
        assert told.returncode == 1
        assert "Traceback" not in told.stderr
        rows = audit(made)[1]["rows"]
        said = [(row["action"], row["allowed"], row["reason"]) for row in rows]  # type: ignore[attr-defined]
        assert said == [("create token", True, ""), ("create token", True, ""), ("audit", False, "role")]
        assert token.read_text() not in json.dumps(rows)
