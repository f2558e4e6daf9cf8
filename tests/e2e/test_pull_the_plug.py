"""Applications that survive: an executor, an agent, all agents at once are killed with SIGKILL, and the results are exact."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_cli.errors import AnsweredNoError, NoAgentError
from agiledart_node.wire.commands import Status
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.reader import LogReader
from tests.e2e.mesh import AgentProcess, Mesh, cli, executors_of, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], name: str = "plug") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    return topology
"""

READINGS = 9_000
FINAL = ("finished", "failed", "stopped")


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("plug")
    (folder / "plug.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(READINGS)))
    told = cli(
        "run", "plug.py:build", "--set", "readings=csv:rows.csv", "--set", "report=null:",
        "--set", "copy=csv:expected.csv", cwd=folder,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return folder, (folder / "expected.csv").read_text()


class Job:
    """One application of the mesh: source on a1, state on whichever agent, sinks on a3."""

    def __init__(self, ring: Mesh, folder: Path, name: str) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.csv"
        told = cli(
            "submit", "plug.py:build", "--set", f"readings=csv:{folder / 'rows.csv'}?speed=1@a1",
            "--set", f"report=log:{name}@a3", "--set", f"copy=csv:{self.out}@a3", "--set", f"name={name}",
            "--agent", str(ring.agents[0].state_dir), cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def status(self) -> dict[str, Any]:
        """As any agent that answers sees it; nothing while none does."""
        for agent in self.ring.living():
            try:
                return dict(agent.ask(Status(self.name)))
            except (AnsweredNoError, NoAgentError, OSError):
                continue
        return {"state": ""}

    def until_committed(self) -> None:
        """Wait until readers of the log see rows: an epoch was committed."""
        wait_for(lambda: self.logged(), 60, "a committed epoch")

    def until_over(self) -> dict[str, Any]:
        """Wait for the end."""
        return dict(wait_for(lambda: (told := self.status())["state"] in FINAL and told, 180, f"{self.name} ends"))

    def logged(self) -> list[Any]:
        """Committed rows of the log."""
        folder = log_directory(self.ring.agent("a3").state_dir, self.name)
        rows: list[Any] = []
        if not (folder / "log.json").exists():
            return rows
        reader = LogReader(folder)
        offset, end = 0, reader.ends(0).committed
        while offset < end:
            batches, offset, _ = reader.fetch(0, offset, 10_000, 1 << 20)
            for batch in batches:
                rows += msgspec.msgpack.decode(batch.body)
        return rows


def as_csv(rows: list[Any]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def check(job: Job, expected: str) -> None:
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert any("brought back" in entry["text"] for entry in told["history"])
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected


def host_of(job: Job, stage: str) -> AgentProcess:
    (name,) = job.status()["placement"][stage]
    return job.ring.agent(name)


@pytest.mark.parametrize("stage", ["readings", "sums", "report"])
def test_an_executor_is_killed(ring: Mesh, expected: tuple[Path, str], stage: str) -> None:
    job = Job(ring, expected[0], f"executor-{stage}")
    job.until_committed()
    for pid in executors_of(host_of(job, stage)):
        os.kill(pid, signal.SIGKILL)
    check(job, expected[1])


@pytest.mark.parametrize("stage", ["readings", "sums", "report"])
def test_an_agent_is_killed_and_comes_back(ring: Mesh, expected: tuple[Path, str], stage: str) -> None:
    job = Job(ring, expected[0], f"agent-{stage}")
    job.until_committed()
    agent = host_of(job, stage)
    agent.kill()
    agent.start()
    check(job, expected[1])


def test_all_agents_lose_power_at_once(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "power")
    job.until_committed()
    seen = job.logged()
    addresses = {agent.name: agent.address for agent in ring.agents}
    executors = [pid for agent in ring.agents for pid in executors_of(agent)]
    for agent in ring.agents:
        agent.process.kill()  # type: ignore[union-attr]
    for pid in executors:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for agent in ring.agents:
        agent.kill()
        agent.start("--listen", addresses[agent.name])
    check(job, expected[1])
    assert job.logged()[: len(seen)] == seen


def test_what_was_kept_of_ended_runs_is_gone(ring: Mesh) -> None:
    kept = [path for agent in ring.agents for path in (agent.state_dir / "runs").glob("*")]
    assert kept == []


def test_a_source_that_cannot_be_read_again_is_refused(ring: Mesh, expected: tuple[Path, str]) -> None:
    told = cli(
        "submit", "plug.py:build", "--set", "readings=tcp:127.0.0.1:9?reconnect=1@a1", "--set", "report=log:lossy@a3",
        "--set", "copy=log:lossy-copy@a3", "--set", "name=lossy", "--agent", str(ring.agents[0].state_dir), cwd=expected[0],
    )  # fmt: skip
    assert told.returncode == 1
    assert "tcp: cannot be read again, so exactly-once cannot be promised" in told.stderr
    assert 'delivery="at-most-once"' in told.stderr
