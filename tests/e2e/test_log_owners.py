"""A log is its owner's: other users that may read or write it, on real agents."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_agent.identity.user_identity import last_link
from agiledart_node.wire.commands import CreateToken, Info
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_sink_log.layout import log_directory, read_description
from agiledart_transport.agent_connection import ClientIdentity
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = """
from typing import NamedTuple
from agiledart import ReadTime, Sink, Source, Topology

class Reading(NamedTuple):
    value: int
    read_at: ReadTime

def keep(readings: Source[Reading], report: Sink[Reading], name: str = "mine") -> Topology:
    topology = Topology(name)
    topology.source("readings", readings).sink("report", report)
    return topology
"""


class Person:
    """A bearer of a token."""

    def __init__(self, agent: AgentProcess, folder: Path, name: str, role: str = "submitter", scope: str = "") -> None:
        token = str(agent.ask(CreateToken(role=role, scope=scope))["token"])
        self.path = folder / f"{name}.token"
        self.path.write_text(token)
        self.identity: ClientIdentity = identity_from_token(token)[0]
        self.key = last_link(self.identity).key.hex()

    def submit(self, agent: AgentProcess, name: str, sink: str, *more: str) -> tuple[int, str]:
        folder = self.path.parent
        told = cli(
            "submit", f"{folder / 'code.py'}:keep", "--name", name, "--wait", "--agent", agent.address,
            "--identity", f"@{self.path}", "--set", f"readings=jsonl:{folder / 'in.jsonl'}@a1", "--set", f"report={sink}", *more,
        )  # fmt: skip
        return told.returncode, told.stderr

    def rows(self, agent: AgentProcess, log: str) -> int | str:
        """How many rows it reads, or the sentence with which it is refused."""
        with SinkLogClient([agent.address], self.identity, agent_timeout_s=20.0) as client:
            try:
                return sum(one.committed for one in client.ends(log).partitions)
            except SinkLogError as error:
                return str(error)


@pytest.fixture(scope="module")
def three() -> Iterator[Mesh]:
    with mesh(3) as made:
        yield made


def test_a_log_belongs_to_its_owner(three: Mesh, tmp_path: Path) -> None:
    a1, a2, a3 = three.agents
    (tmp_path / "code.py").write_text(CODE)
    (tmp_path / "in.jsonl").write_text("".join(f'{{"value": {n}}}\n' for n in range(7)))
    ann, bob, eve = (Person(a1, tmp_path, name) for name in ("ann", "bob", "eve"))
    scoped = Person(a1, tmp_path, "scoped", "submitter", "app:else")
    of_app, of_sink = (Person(a1, tmp_path, s[:3], "reader", s) for s in ("app:mine", "sink:routes"))
    whoever = Person(a1, tmp_path, "reader", "reader")

    code, text = ann.submit(a2, "mine", "log:routes@a2")
    assert code == 0, text
    found = read_description(log_directory(a2.state_dir, "routes"))
    assert found is not None
    assert found.owner == ann.key

    before = sum(int(one.ask(Info())["refusals"].get("owner", 0)) for one in three.agents)
    for asked in (a1, a2, a3):  # whether it has the files or finds them
        assert [one.rows(asked, "routes") for one in (ann, of_app, of_sink, whoever)] == [7] * 4
        refusal = f"The log routes belongs to the key {ann.key[:16]}…, not to you: you may not read it."
        assert str(eve.rows(asked, "routes")).startswith(refusal)
        assert "may use app:else only, and else has no log routes" in str(scoped.rows(asked, "routes"))
        assert isinstance(ann.rows(asked, "_latency.mine"), int)
        assert str(eve.rows(asked, "_latency.mine")).startswith("The log _latency.mine belongs to")
    after = sum(int(one.ask(Info())["refusals"].get("owner", 0)) for one in three.agents)
    assert after - before == 6
    rows = json.loads(cli("audit", "-o", "json", "--agent", str(a1.state_dir)).stdout)["rows"]
    noted = [(row["key"], row["details"], row["reason"]) for row in rows if row["action"] == "read log"]
    assert noted.count((eve.key, "log=routes", "owner")) == 3
    assert noted.count((scoped.key, "log=routes", "scope")) == 3

    assert str(bob.rows(a3, "routes")).startswith("The log routes belongs to")
    told = cli("share", "mine", bob.key, "--agent", a3.address, "--identity", f"@{ann.path}")
    assert told.returncode == 0, told.stderr
    wait_for(lambda: bob.rows(a2, "routes") == 7, 20.0, "the shares known to a2 are some seconds old")

    # Users that may not read a log may not have it written, on this node or another, by a run of another name or of the same one.
    for where in ("a2", "a3"):
        code, text = eve.submit(a3, "other", f"log:routes@{where}")
        assert code == 1
        assert f"The log routes belongs to the key {ann.key[:16]}…, not to you: you may not write it." in text
    assert cli("forget", "mine", "--agent", a1.address, "--identity", f"@{ann.path}").returncode == 0
    code, text = eve.submit(a1, "mine", "log:routes@a2")
    assert (code, "you may not write it" in text) == (1, True), text
    wait_for(
        lambda: str(bob.rows(a1, "routes")).startswith("The log routes belongs to"),
        20.0,
        "with the application the share is gone",
    )
    code, text = eve.submit(a1, "mine", "log:hers@a2")
    assert code == 0, text
    assert str(ann.rows(a1, "hers")).startswith("The log hers belongs to")
    assert (ann.rows(a1, "routes"), eve.rows(a1, "hers")) == (7, 7)

    what_an_admin_writes_stays_hers(three, tmp_path, ann, eve)


def what_an_admin_writes_stays_hers(three: Mesh, tmp_path: Path, ann: Person, eve: Person) -> None:
    a1, _, a3 = three.agents
    told = by_an_admin(a3, tmp_path, "admins", "log:routes@a2")
    assert told == (0, ""), told
    assert ann.rows(a1, "routes") == 14  # an admin may; it stays hers

    # On a node that lacks its files the log begins anew, and stays hers: the ring names its owner, by a command that she signed.
    told = by_an_admin(a1, tmp_path, "elsewhere", "log:routes@a3")
    assert told == (0, ""), told
    begun = read_description(log_directory(a3.state_dir, "routes"))
    assert begun is not None
    assert (begun.owner, begun.application) == (ann.key, "elsewhere")
    wait_for(lambda: ann.rows(a1, "routes") == 7, 20.0, "the ring has recorded it")
    assert str(eve.rows(a3, "routes")).startswith("The log routes belongs to")


def by_an_admin(agent: AgentProcess, folder: Path, name: str, sink: str) -> tuple[int, str]:
    """Open an agent's socket as a user; exit code, and what went wrong."""
    told = cli("submit", f"{folder / 'code.py'}:keep", "--name", name, "--wait", "--agent", str(agent.state_dir),
               "--set", f"readings=jsonl:{folder / 'in.jsonl'}@a1", "--set", f"report={sink}")  # fmt: skip
    return told.returncode, told.stderr if told.returncode else ""
