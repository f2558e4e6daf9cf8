"""`submit --upgrade` on real agents: the next version continues with the state, and kills leave one version running."""

import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import Status, Stop
from tests.e2e.mesh import COMMAND, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROWS = 120_000

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology, jsonl


class Row(NamedTuple):
    at: int
    key: int


def first(name: str, rows: Source[Row], out: Sink[Row]) -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("rows", rows, event_time="at")
    rows.key_by(lambda row: row.key, returns=int).running_count("count").sink("out", out)
    return topology


def second(name: str, rows: Source[Row], out: Sink[Row], new: Sink[Row]) -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("rows", rows, event_time="at")
    rows.key_by(lambda row: row.key, returns=int).running_count("count").sink("out", out)
    rows.distinct("fresh").sink("new", new)
    return topology


def changed(name: str, rows: Source[Row], out: Sink[Row]) -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("rows", rows, event_time="at")
    rows.key_by(lambda row: str(row.key), returns=str).running_count("count").sink("out", out)
    return topology
"""


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(2) as made:
            yield made


class Upgraded:
    """An application of two versions, and its files."""

    def __init__(self, ring: Mesh, folder: Path, name: str) -> None:
        self.ring, self.folder, self.name = ring, folder, name
        self.out = folder / "out.jsonl"
        (folder / "app.py").write_text(CODE)
        (folder / "rows.csv").write_text("".join(f"{at},{at % 7}\n" for at in range(ROWS)))

    def words(self, builder: str, *options: str) -> list[str]:
        more = ("--set", f"new=jsonl:{self.folder / 'new.jsonl'}") if builder == "second" else ()
        return [
            "submit", f"app.py:{builder}", "--set", f"name={self.name}", "--set", "rows=csv:rows.csv?speed=1",
            "--set", f"out=jsonl:{self.out}", *more, *options, "--agent", str(self.ring.agent("a1").state_dir),
        ]  # fmt: skip

    def submit(self, builder: str, *options: str) -> subprocess.CompletedProcess[str]:
        return cli(*self.words(builder, *options), cwd=self.folder)

    def status(self) -> Any:
        return self.ring.agent("a1").ask(Status(self.name))

    def begin(self) -> None:
        ran = self.submit("first")
        assert ran.returncode == 0, ran.stderr
        wait_for(lambda: (self.status().get("summary") or {}).get("records_in", 0) > 100, 30, "rows are counted")

    def has_each_count_once(self) -> None:
        """Let it count on, and drain it: each key's counts go up by one, without a loss, a duplicate or a new beginning."""
        begun = self.status()["summary"].get("records_in", 0) if self.status().get("summary") else 0
        wait_for(lambda: (self.status().get("summary") or {}).get("records_in", 0) > begun + 100, 60, "it counts on")
        ended = self.ring.agent("a1").ask(Stop(self.name))
        assert ended["state"] == "stopped", ended
        counts: dict[int, list[int]] = {}
        for line in self.out.read_text().splitlines():
            row = json.loads(line)
            counts.setdefault(row["key"], []).append(row["value"])
        assert len(counts) == 7
        assert all(values == list(range(1, len(values) + 1)) for values in counts.values())
        assert max(map(len, counts.values())) - min(map(len, counts.values())) <= 1


def test_the_next_version_continues_with_the_state(ring: Mesh, tmp_path: Path) -> None:
    job = Upgraded(ring, tmp_path, "counts")
    job.begin()
    again = job.submit("second")
    assert again.returncode == 1
    assert "submit --upgrade" in again.stderr
    refused = job.submit("changed", "--upgrade")
    assert refused.returncode == 2, refused.stderr
    assert "count had keys of type int, and now of str: start it empty with --drop count." in refused.stderr
    assert "counts v1 runs on unchanged." in refused.stderr
    assert (job.status()["version"], job.status()["state"]) == (1, "running")
    ran = job.submit("second", "--upgrade", "-o", "json")
    assert ran.returncode == 0, ran.stderr
    assert (json.loads(ran.stdout)["version"], json.loads(ran.stdout)["state"]) == (2, "running")
    job.has_each_count_once()


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("killed", ["command line", "its process"])
def test_a_killed_process_leaves_one_version(ring: Mesh, tmp_path: Path, killed: str) -> None:
    job = Upgraded(ring, tmp_path, f"killed-{killed.split()[-1]}")
    job.begin()
    with subprocess.Popen(
        [*COMMAND, *job.words("second", "--upgrade")], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as command:
        worker = wait_for(lambda: children_of(command.pid), 60, "the process of the upgrade")[0]
        wait_for(
            lambda: "kept" in job.status().get("reason", "") or job.status()["version"] == 2, 60, "the old one ends"
        )
        os.kill(command.pid if killed == "command line" else worker, signal.SIGKILL)
        command.communicate(timeout=90)
        assert command.returncode == (-9 if killed == "command line" else 0)
    wait_for(lambda: job.status()["version"] == 2 and job.status()["state"] != "deploying", 60, "the new one runs")
    job.has_each_count_once()


SECONDS_OF_AN_UPGRADE = 2.5


def check_a_killed_agent(folder: Path, killed: str, moment: float | None) -> None:
    """Kill an agent during an upgrade and start it again: one version runs, and each row has counted once.

    Args:
        moment: seconds from the end of the old version's checks to the kill; None: once the old version has ended.
    """
    with mesh(3) as ring:
        job = Upgraded(ring, folder, "counts")
        job.begin()
        with subprocess.Popen(
            [*COMMAND, *job.words("second", "--upgrade")],
            cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        ) as command:  # fmt: skip
            assert command.stderr is not None
            assert any("a last checkpoint" in line for line in command.stderr), "the upgrade was refused"
            if moment is None:
                wait_for(
                    lambda: "kept" in job.status().get("reason", "") or job.status()["version"] == 2, 60, "its end"
                )
            else:
                threading.Event().wait(moment)
            ring.agent(killed).kill()
            ring.agent(killed).start()
            ring.agent(killed).ready()
            _, errors = command.communicate(timeout=200)
        versions = wait_for(lambda: running_versions(ring), 90, f"one version runs; {errors}")
        assert len(versions) == 1, versions
        assert versions == {2} or command.returncode != 0, errors
        job.has_each_count_once()


def running_versions(ring: Mesh) -> set[int]:
    """The versions that agents see running; none while one of them sees another state, or does not answer."""
    try:
        seen = [agent.ask(Status("counts")) for agent in ring.agents]
    except (CommandRefusedError, NoAgentError):
        return set()
    return {status["version"] for status in seen} if all(status["state"] == "running" for status in seen) else set()


def test_a_killed_agent_leaves_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    check_a_killed_agent(tmp_path, "a1", None)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_an_agent_killed_at_any_moment_leaves_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    killed = ("a1", "a2")[seed % 2]
    check_a_killed_agent(tmp_path, killed, random.Random(seed).uniform(0.0, SECONDS_OF_AN_UPGRADE))
