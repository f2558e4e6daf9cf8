"""State that outlives its run, on real agents: `stop --checkpoint`, `checkpoint export`, `checkpoint restore`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.checkpoints.archive import verify
from agiledart_node.wire.commands import Checkpoints
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import Job, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 60_000


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            for number in range(1, 4):
                made.grow(1, "--host", f"machine-{number}")
            yield made


def agent_of(ring: Mesh, name: str) -> tuple[str, str]:
    return "--agent", str(ring.agent(name).state_dir)


def test_a_run_is_stopped_with_its_state_kept(ring: Mesh, tmp_path: Path) -> None:
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
        assert [one["name"] for one in agent.ask(Checkpoints("first"))["kept"]] == ["pause"]
    told = cli("checkpoint", "export", "pause", "--output", str(tmp_path / "kept"), *agent_of(ring, "a3"))
    assert told.returncode == 0, told.stderr
    manifest, digest = verify(tmp_path / "kept")
    assert (manifest.name, digest.hex()) == ("pause", body["checkpoint"]["digest"])
