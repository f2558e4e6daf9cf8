"""Applications that survive: an executor, an agent, all agents at once are killed with SIGKILL, and the results are exact."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for
from tests.e2e.plug import Job, check, host_of, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 9_000


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
    return folder, undisturbed(folder, READINGS)


@pytest.mark.parametrize("stage", ["readings", "sums", "report"])
def test_an_executor_is_killed(ring: Mesh, expected: tuple[Path, str], stage: str) -> None:
    job = Job(ring, expected[0], f"executor-{stage}")
    job.until_committed()
    for pid in executors_of(host_of(job, stage)):
        os.kill(pid, signal.SIGKILL)
    check(job, expected[1])


@pytest.mark.parametrize("stage", ["readings", "sums", "report"])
def test_an_agent_is_killed_and_returns(ring: Mesh, expected: tuple[Path, str], stage: str) -> None:
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


def test_files_of_ended_runs_are_removed(ring: Mesh) -> None:
    def kept() -> list[Path]:
        folders = [agent.state_dir / name for agent in ring.agents for name in ("runs", "fragments")]
        return [path for folder in folders for path in folder.glob("*")]

    # A host that was away when a run continued without it learns of the end from the application's record.
    try:
        wait_for(lambda: not kept(), 60, "nothing is kept")
    except AssertionError:
        within = [str(path) for top in kept() for path in (top, *top.rglob("*"))]
        raise AssertionError(f"this is kept: {within}") from None


def test_a_run_that_ends_before_its_first_epoch_ends(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "short", readings=f"csv:{expected[0] / 'rows.csv'}")
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert job.out.read_text() == expected[1]


def test_a_source_that_drops_rows_is_refused(ring: Mesh, expected: tuple[Path, str]) -> None:
    told = cli(
        "submit", "plug.py:build", "--set", "readings=tcp:127.0.0.1:9?reconnect=1&overload=shed_oldest@a1",
        "--set", "report=log:lossy@a3", "--set", "copy=log:lossy-copy@a3", "--set", "name=lossy",
        "--agent", str(ring.agents[0].state_dir), cwd=expected[0],
    )  # fmt: skip
    assert told.returncode == 1
    assert "rows that are shed cannot be read again, so exactly-once cannot be promised" in told.stderr
    assert 'delivery="survive"' in told.stderr
