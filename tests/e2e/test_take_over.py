"""Agents that are killed for good: their neighbours take over what they ran, from fragments, and the results are exact."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.checkpoint_commands import Checkpoints
from tests.e2e.mesh import AgentProcess, Mesh, mesh, wait_for
from tests.e2e.plug import Job, check, pull_the_plug, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

READINGS = 15_000
ENDS = ("a1", "a3")
"""Where the source and the sinks are."""


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(0) as made:
            made.grow_on(*range(1, 7))
            yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and input, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("over")
    return folder, undisturbed(folder, READINGS)


def in_between(job: Job) -> list[AgentProcess]:
    """Hosts of the stage with state that have neither source nor sink."""
    hosts = dict.fromkeys(job.status()["placement"]["sums"])
    found = [job.ring.agent(name) for name in hosts if name not in ENDS]
    assert found, f"nothing runs between the ends: {list(hosts)}"
    return found


def test_a_host_of_state_is_killed_permanently(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "host", "--parallelism", "sums=6")
    job.until_committed()
    epoch = job.status()["epoch"]["committed"]
    told = ring.agents[0].ask(Checkpoints("host", take=True))
    assert told["epoch"]["committed"] > epoch
    kept = [one for one in told["snapshots"] if one["stage"] == "sums" and one["epoch"] == told["epoch"]["committed"]]
    assert len(kept) == 6
    assert all(one["fragments_needed"] and one["node"] not in one["replica_nodes"] for one in kept)
    victim = in_between(job)[0]
    pull_the_plug(victim)
    check(job, expected[1])
    assert victim.name not in job.status()["placement"]["sums"]


def coordinator_of(job: Job) -> AgentProcess:
    """The coordinator of the run."""
    epoch: dict[str, Any] = wait_for(lambda: job.status().get("epoch"), 30, "a node coordinates")
    return job.ring.agent(epoch["coordinator"])


def holders_of(job: Job) -> list[AgentProcess]:
    """Agents that keep fragments of others."""
    return [agent for agent in job.ring.living() if any((agent.state_dir / "fragments").glob("[0-9a-f]*"))]


@pytest.mark.soak
def test_a_host_and_a_replica_node_are_killed_permanently(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "holder", "--parallelism", "sums=6")
    job.until_committed()
    victim = in_between(job)[0]
    holder = next(agent for agent in holders_of(job) if agent.name not in (*ENDS, victim.name))
    pull_the_plug(victim)
    pull_the_plug(holder)
    check(job, expected[1])


def test_the_coordinator_is_killed_permanently(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "leader", "--parallelism", "sums=6")
    job.until_committed()
    leader = coordinator_of(job)
    pull_the_plug(leader)
    if leader.name in ENDS:
        # Its files are there and nowhere else: the run names the node that it waits for, and continues when that one is back.
        wait_for(lambda: _waits_for(job) == [leader.name], 60, f"it waits for {leader.name}")
        leader.start()
    check(job, expected[1])


def _waits_for(job: Job) -> list[str]:
    recovery = job.status().get("recovery") or {}
    return list(recovery.get("waits_for", []))


def test_a_large_state_is_cut_into_fragments_and_rebuilt(ring: Mesh, expected: tuple[Path, str]) -> None:
    folder = expected[0] / "heap"
    folder.mkdir()
    result = undisturbed(folder, READINGS, "heap")
    job = Job(ring, folder, "heap", entry="heap")
    # Nothing comes out before the end: all of it is in one instance, and each epoch has more of it.
    wait_for(lambda: (job.status().get("epoch") or {}).get("bytes", 0) > 2_000_000, 60, "a state that is not copied")
    wait_for(lambda: _rests_on_one(job), 60, "an element that says what has changed since a whole one")
    (host,) = job.status()["placement"]["sums"]
    victim = ring.agent(host)
    assert sum(path.stat().st_size for path in victim.state_dir.glob("fragments/*")) == 0
    pull_the_plug(victim)
    if host in ENDS:
        victim.start()
    check(job, result)
    if host not in ENDS:
        assert sum(map(rebuilt_at, ring.living())) >= 2, "the whole one and what has changed"


def _rests_on_one(job: Job) -> bool:
    """Whether the committed epoch needs a full snapshot and an increment; so the next one will be a third."""
    told = job.ring.living()[0].ask(Checkpoints(job.name))
    kept = sorted((one["epoch"], one["bytes"]) for one in told["snapshots"] if one["stage"] == "sums")
    return len(kept) == 2 and kept[1][1] < kept[0][1] / 4


def rebuilt_at(agent: AgentProcess) -> int:
    """Snapshots that an agent has rebuilt from fragments."""
    where = (agent.description or {})["metrics"]
    with urllib.request.urlopen(f"http://{where}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        int(float(line.split()[1])) for line in lines if line.startswith("agiledart_recovery_rebuilt_snapshots_total")
    )


@pytest.mark.soak
def test_a_host_that_returns_after_a_take_over_releases_its_part(ring: Mesh, expected: tuple[Path, str]) -> None:
    job = Job(ring, expected[0], "back", "--parallelism", "sums=6")
    job.until_committed()
    victim = in_between(job)[0]
    pull_the_plug(victim)
    wait_for(lambda: "restarted, attempt" in job.status()["history"][-1]["text"], 60, "it was taken over")
    victim.start()
    part = victim.state_dir / "runs" / "back.1" / "part"
    assert part.exists()
    wait_for(lambda: not part.exists(), 60, "it releases its part")
    check(job, expected[1])
