"""kill -9 among eight agents while a job runs: nothing happens, or an application that saves nothing fails with a clear word."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_examples.taxi_trips import generate
from agiledart_node.wire.commands import ListApplications, Status
from tests.debs2015.checking import write_lines
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for
from tests.oracle.debs2015 import answer, difference

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

TRIPS = 6_000
UNSAVED = ("--delivery", "at-most-once")


@pytest.fixture
def eight() -> Iterator[Mesh]:
    """A ring of eight."""
    with mesh(8) as made:
        yield made


def submit(made: Mesh, folder: Path, speed: float, *options: str) -> tuple[dict[str, Any], list[str]]:
    """The query at a pace, its source on a2 and its sink on a3; return the submission's output and the lines."""
    lines = list(itertools.islice(generate(seed=11), TRIPS))
    source = write_lines(folder / "trips.csv.gz", lines)
    ran = cli(
        "submit", "agiledart_examples.debs2015:frequent_routes", "--agent", str(made.living()[0].state_dir),
        "--set", f"trips=csv:{source}?speed={speed}@a2", "--set", f"report=csv:{folder}/routes.csv@a3", "-o", "json", *options,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), lines


def hosts(answered: dict[str, Any]) -> set[str]:
    """Names of the nodes that run something of it."""
    return {node for nodes in answered["placement"].values() for node in nodes}


def state_at(agent: AgentProcess) -> tuple[str, str]:
    """State and message of the application as `status` and `list` of one agent say, "changing" while they differ."""
    status = agent.ask(Status("frequent-routes"))
    (listed,) = agent.ask(ListApplications())["applications"]
    agreed = status["state"] if status["state"] == listed["state"] else "changing"
    return agreed, f"{status.get('reason', '')}"


def fails_everywhere(made: Mesh, victim: AgentProcess) -> None:
    """Kill it; within 5 s every other agent says that the application failed, and names the node."""
    began = time.monotonic()
    victim.kill()
    for agent in made.living():
        left = max(0.1, 5.0 - (time.monotonic() - began))
        wait_for(lambda agent=agent: state_at(agent)[0] == "failed", left, f"{agent.name} says failed within 5 s")
        assert victim.name in state_at(agent)[1]
    print(f"failed everywhere after {time.monotonic() - began:.2f} s: {state_at(made.living()[0])[1]}")


def test_a_bystander_changes_nothing(eight: Mesh, tmp_path: Path) -> None:
    answered, lines = submit(eight, tmp_path, speed=150)
    bystanders = [a for a in eight.agents if a.name not in hosts(answered) | {"a1"}]
    assert bystanders
    bystanders[0].kill()
    bystanders[-1].kill()
    for agent in eight.living():
        body = agent.ask(Status("frequent-routes"))
        # A bystander may have coordinated the run: rows flow, and status says that it is being replaced.
        assert body["state"] in ("running", "finished"), body
    wait_for(lambda: state_at(eight.agent("a1"))[0] == "finished", 60, "the job ends as if nothing had happened")
    assert difference(tmp_path / "routes.csv", answer(lines).routes) is None
    back = bystanders[0]
    began = time.monotonic()
    back.start()
    back.ready(5.0)
    assert time.monotonic() - began < 5
    assert state_at(back)[0] == "finished", "the restarted agent finds the application's record"


def test_the_death_of_a_scheduler_without_instances_changes_nothing(eight: Mesh, tmp_path: Path) -> None:
    answered, lines = submit(eight, tmp_path, speed=150)
    if "a1" in hosts(answered):
        pytest.skip("a1 hosts a stage in this ring")
    eight.agent("a1").kill()
    wait_for(lambda: state_at(eight.agent("a2"))[0] == "finished", 60, "the job ends")
    assert difference(tmp_path / "routes.csv", answer(lines).routes) is None


@pytest.mark.parametrize("role", ["source", "middle", "sink"])
def test_a_host_that_dies_fails_the_application(eight: Mesh, tmp_path: Path, role: str) -> None:
    answered, _ = submit(eight, tmp_path, 10, *UNSAVED)
    middle = sorted(hosts(answered) - {"a2", "a3"})
    names = {"source": "a2", "sink": "a3", "middle": middle[0] if middle else "a2"}
    fails_everywhere(eight, eight.agent(names[role]))
    again = cli("status", "frequent-routes", "--agent", str(next(a for a in eight.living()).state_dir), timeout=20)
    assert "failed" in again.stdout.lower()
    assert names[role] in again.stdout
    assert "Start it again" in again.stdout + again.stderr


def test_a_dead_host_does_not_stop_the_next_submission(eight: Mesh, tmp_path: Path) -> None:
    answered, _ = submit(eight, tmp_path, 10, *UNSAVED)
    victim = next(iter(sorted(hosts(answered) - {"a2", "a3"})), None)
    if victim is None:
        pytest.skip("everything runs on source and sink")
    fails_everywhere(eight, eight.agent(victim))
    answered, lines = submit(eight, tmp_path, speed=5_000)
    assert victim not in hosts(answered)
    wait_for(lambda: state_at(eight.living()[0])[0] == "finished", 60, "the second run ends")
    assert difference(tmp_path / "routes.csv", answer(lines).routes) is None
