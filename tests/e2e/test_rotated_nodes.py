"""A node of a ring takes another key: it is another node there, its logs and uses count on, and what cannot go on is said."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Tokens
from agiledart_sink_log.client import SinkLogClient
from tests.e2e.mesh import Mesh, cli, mesh, names_seen, wait_for
from tests.e2e.plug import Job, undisturbed
from tests.e2e.test_log_owners import Person

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    with mesh(3) as made:
        yield made


@pytest.mark.soak
def test_a_node_of_a_ring_takes_another_key(ring: Mesh, tmp_path: Path) -> None:
    undisturbed(tmp_path, 30_000)
    a1, _, a3 = ring.agents
    job = Job(ring, tmp_path, "waits")
    job.until_committed()
    rows = len(job.logged())
    lets_in = tmp_path / "a3.token"
    lets_in.write_text(cli("token", "create", "--uses", "1", "--agent", str(a1.state_dir)).stdout)
    rotate = ("identity", "rotate", "--token", f"@{lets_in}", "--state-dir", str(a3.state_dir))
    told = cli(*rotate)
    assert (told.returncode, "is in use by another agent" in told.stderr) == (1, True), "while it runs"
    assert a3.end() == 0
    told = cli(*rotate)
    assert told.returncode == 0, told.stderr
    assert "This node took part in waits. " in told.stderr
    assert "agiledart stop waits --now" in told.stderr
    began = len(a3.log.read_text())
    a3.start()
    a3.ready()
    wait_for(lambda: names_seen(a1) == {"a1", "a2", "a3"}, 60, "it is a member again")
    assert "is damaged" not in a3.log.read_text()[began:]

    (row,) = [row for row in a1.ask(Tokens())["tokens"] if row["uses"] == 1 and row["role"] == "agent"]
    assert (row["used"], row["state"]) == (1, "used up")

    reader = Person(a1, tmp_path, "reader", "reader")
    with SinkLogClient([a1.address], reader.identity, agent_timeout_s=30.0) as client:
        wait_for(
            lambda: sum(one.committed for one in client.ends("waits").partitions) >= rows, 60, "its rows are there"
        )

    waits = wait_for(
        lambda: (job.status().get("recovery") or {}).get("waits_for"), 60, "the run says for whom it waits"
    )
    assert [one.startswith("a3-") for one in waits] == [True]  # the old one, not the a3 that is there
    stopped = cli("stop", "waits", "--now", "--agent", str(a1.state_dir))
    assert stopped.returncode == 0, stopped.stderr
    again = Job(ring, tmp_path, "again")
    again.until_committed()
    assert json.loads(cli("status", "again", "-o", "json", "--agent", str(a1.state_dir)).stdout)["state"] == "running"
