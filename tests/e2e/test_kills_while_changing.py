"""SIGKILL at random moments of a change: it is aborted, rolled back or completed, and the result is exact."""

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.elastic import Elastic, undisturbed
from tests.e2e.mesh import COMMAND, AgentProcess, Mesh, alive, executors_of, mesh, wait_for
from tests.e2e.plug import pull_the_plug

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

READINGS = 20_000
VICTIMS = ("target", "owner", "coordinator")
SEEDS = range(int(os.environ.get("AGILEDART_KILL_SEEDS", "1")))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("kills")
    return folder, undisturbed(folder, READINGS)


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


def victim_of(job: Elastic, role: str, owner: str, target: str) -> AgentProcess:
    """Whose node is killed."""
    name = {"target": target, "owner": owner}.get(role) or job.status()["epoch"]["coordinator"]
    return job.ring.agent(name)


@pytest.mark.parametrize("role", VICTIMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_with_a_killed_node_ends_with_an_exact_result(
    ring: Mesh, expected: tuple[Path, str], role: str, seed: int
) -> None:
    dice = random.Random(f"{role} {seed}")
    folder, result = expected
    name = f"kill-{role}-{seed}"
    source = f"csv:{folder / 'rows.csv'}?speed=1"
    job = Elastic(ring, folder, name, "--parallelism", "sums=1..4", source=source, pause_ms=0)
    wait_for(lambda: job.committed() >= 2, 60, "a committed epoch")
    if job.status()["placement"]["sums"] != ["a2"]:
        job.cli("move", name, "sums", "a2")
    target = "a3"
    victim = victim_of(job, role, "a2", target)
    processes = [pid for agent in ring.agents for pid in executors_of(agent)]
    words = ("move", name, "sums", target) if dice.random() < 0.5 else ("scale", name, "sums", "3")
    order = subprocess.Popen(
        [*COMMAND, *words, "--agent", str(ring.agents[0].state_dir)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    time.sleep(dice.uniform(0.3, 4.0))  # where in the change it strikes is what the seeds choose
    processes += executors_of(victim)
    pull_the_plug(victim)
    order.communicate(timeout=120)
    if role == "coordinator" or victim.name == "a1":  # it may have the source, or the sink
        victim.start()
        victim.ready()
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    assert job.out.read_text() == result
    wait_for(lambda: not any(map(alive, processes)), 30, "no executor is left")
