"""State that outlives its run, on real agents: `stop --checkpoint`, `checkpoint export`, `checkpoint restore`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.checkpoints.checkpoint_file import verify
from agiledart_node.wire.checkpoint_commands import Checkpoints
from agiledart_node.wire.commands import Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import FINAL, Job, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 60_000


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(*range(1, 4))
            yield made


def agent_of(ring: Mesh, name: str) -> tuple[str, str]:
    return "--agent", str(ring.agent(name).state_dir)


def test_a_run_is_stopped_and_its_state_retained(ring: Mesh, tmp_path: Path) -> None:
    undisturbed(tmp_path, READINGS)
    job = Job(ring, tmp_path, "first", "--parallelism", "sums=2")
    job.until_committed()
    told = cli(
        "checkpoint", "export", "first", "--output", str(tmp_path / "running"), "-o", "json", *agent_of(ring, "a2")
    )
    assert told.returncode == 0, told.stderr
    manifest, digest = verify(tmp_path / "running")
    assert (manifest.application, digest.hex()) == ("first", json.loads(told.stdout)["digest"])
    told = cli("stop", "first", "--checkpoint", "pause", "-o", "json", *agent_of(ring, "a2"))
    assert told.returncode == 0, told.stderr
    body = json.loads(told.stdout)
    assert body["state"] == "stopped"
    assert len(body["checkpoint"]["nodes"]) == 3
    ended = job.status()
    assert "kept as checkpoint pause" in ended["reason"]
    wait_for(lambda: not list(ring.agent("a1").state_dir.glob("runs/first.*")), 30, "the run's own files go")
    for agent in ring.agents:
        assert [one["name"] for one in agent.ask(Checkpoints("first"))["retained"]] == ["pause"]
    ring.grow(1, "--host", "machine-4")  # it keeps none itself, and forwards its user's command to the nodes that do
    told = cli("checkpoint", "export", "pause", "--output", str(tmp_path / "kept"), *agent_of(ring, "a4"))
    assert told.returncode == 0, told.stderr
    manifest, digest = verify(tmp_path / "kept")
    assert (manifest.name, digest.hex()) == ("pause", body["checkpoint"]["digest"])
    told = cli(
        "checkpoint", "restore", "pause", "plug.py:build", "--parallelism", "sums=2", "--set", "name=again",
        "--set", f"readings=csv:{tmp_path / 'rows.csv'}?speed=1@a1", "--set", "report=log:again@a3",
        "--set", f"copy=csv:{job.out}@a3", *agent_of(ring, "a2"), cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr

    def has_epochs() -> bool:
        status = ring.agent("a3").ask(Status("again"))
        assert status["state"] == "running", status["reason"]
        return bool((status.get("epoch") or {}).get("committed", 0) > 1)

    wait_for(has_epochs, 60, "the new run is saved by epochs of its own")


CHANGED = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], copy: Sink[Pane], odd: Sink[Pane], name: str = "second") -> Topology:
    topology = Topology(name)
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    sound = rows.filter(lambda reading: reading.value >= 0, name="sound")
    window = sound.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("copy", copy)
    others = rows.key_by(lambda reading: reading.value % 2, returns=int).window(tumbling(timedelta(milliseconds=500)))
    others.aggregate("parity", sum_of(lambda reading: reading.value)).sink("odd", odd)
    return topology
"""


def test_a_changed_topology_resumes_where_the_run_was_stopped(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS // 4)
    (tmp_path / "changed.py").write_text(CHANGED)
    job = Job(ring, tmp_path, "first", "--parallelism", "sums=2")
    job.until_committed()
    told = cli("stop", "first", "--checkpoint", "pause", *agent_of(ring, "a2"))
    assert told.returncode == 0, told.stderr
    before = job.out.read_text()
    assert before == expected[: len(before)]
    assert 0 < len(before) < len(expected)
    copy, odd = job.out, tmp_path / "odd.csv"
    words = (
        "checkpoint", "restore", "pause", "changed.py:build", "--parallelism", "sums=3", "-o", "json",
        "--set", f"readings=csv:{tmp_path / 'rows.csv'}@a1", "--set", f"copy=csv:{copy}@a3",
        "--set", f"odd=csv:{odd}@a3", *agent_of(ring, "a2"),
    )  # fmt: skip
    told = cli(*words, "--dry-run", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    body = json.loads(told.stdout)
    assert body["checkpoint"]["taken"] == ["readings", "sums"]
    assert body["checkpoint"]["empty"] == ["parity"]
    told = cli(*words, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    status = wait_for(
        lambda: (found := ring.agent("a3").ask(Status("second")))["state"] in FINAL and found, 120, "second ends"
    )
    assert (status["state"], status["reason"]) == ("finished", "")
    assert copy.read_text() == expected, "the rows of both runs stand in one file"
    assert odd.read_text()
    assert not status["summary"].get("imbalances")
    assert any("it starts from checkpoint pause of first v1" in entry["text"] for entry in status["history"])
