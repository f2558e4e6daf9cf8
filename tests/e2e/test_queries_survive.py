"""The two DEBS queries while agents are killed by their roles: the files are those of an undisturbed run, but for the delay.

`AGILEDART_KILL_TIMES=N` kills each role so often, each time in a mesh of its own, at another moment.
"""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.checkpoint_commands import Checkpoints
from agiledart_node.wire.commands import Status
from tests.data import TAXI_SAMPLE, data_path
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for
from tests.e2e.plug import FINAL, pull_the_plug

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

QUERIES = {"frequent-routes": "frequent_routes", "profitable-areas": "profitable_areas"}
ROLES = ("source", "sink", "state", "coordinator", "voter", "holder")
COME_BACK = ("source", "sink")
"""Roles whose agent is started again, as a supervisor does; the others stay away."""

SOURCE, SINK = "a1", "a5"
SPEED = 150
"""An hour of trips in 24 seconds."""

TIMES = int(os.environ.get("AGILEDART_KILL_TIMES", "1"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Output of one undisturbed process."""
    folder = tmp_path_factory.mktemp("reference")
    trips = data_path(TAXI_SAMPLE)
    for query, builder in QUERIES.items():
        told = cli(
            "run", f"agiledart_examples.debs2015:{builder}", "--set", f"trips=csv:{trips}",
            "--set", f"report=csv:{folder / query}.csv",
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
    found = {query: without_delay(folder / f"{query}.csv") for query in QUERIES}
    assert all(found.values())
    return found


def without_delay(file: Path) -> list[str]:
    return [line.rpartition(",")[0] for line in file.read_text().splitlines()]


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "2")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


class Query:
    """One of them, running on a mesh."""

    def __init__(self, ring: Mesh, folder: Path, name: str) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.csv"
        told = cli(
            "submit", f"agiledart_examples.debs2015:{QUERIES[name]}", "--delivery", "exactly-once",
            "--set", f"trips=csv:{data_path(TAXI_SAMPLE)}?speed={SPEED}@{SOURCE}", "--set", f"report=csv:{self.out}@{SINK}",
            "--agent", str(ring.agents[0].state_dir),
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def status(self) -> dict[str, Any]:
        """As any agent that answers sees it; nothing while none does."""
        for agent in self.ring.living():
            try:
                return dict(agent.ask(Status(self.name)))
            except (CommandRefusedError, NoAgentError, OSError):
                continue
        return {"state": ""}

    def committed(self) -> int:
        return int((self.status().get("epoch") or {}).get("committed") or 0)


def victim_of(query: Query, role: str, dice: random.Random) -> AgentProcess:
    """An agent that plays a role in a query, and neither source nor sink if others do."""
    ring, told = query.ring, query.status()
    coordinator = told["epoch"]["coordinator"]
    stateful = [
        name for stage, nodes in told["placement"].items() if stage not in ("trips", "report") for name in nodes
    ]
    elements = ring.agents[0].ask(Checkpoints(query.name))["snapshots"]
    folder = f"runs/{query.name}*"
    voters = [agent.name for agent in ring.agents if any(agent.state_dir.glob(f"{folder}/voter*"))]
    found = {
        "source": [SOURCE],
        "sink": [SINK],
        "state": stateful,
        "coordinator": [coordinator],
        "voter": [name for name in voters if name != coordinator] or voters,
        "holder": [name for one in elements for name in one["replica_nodes"]],
    }[role]
    assert found, f"nobody is {role}"
    between = [name for name in found if name not in (SOURCE, SINK)]
    return ring.agent(dice.choice(sorted(between or found)))


@pytest.mark.parametrize("number", range(TIMES))
@pytest.mark.parametrize("role", ROLES)
def test_both_queries_are_exact_whichever_process_is_killed(
    ring: Mesh, tmp_path: Path, expected: dict[str, list[str]], role: str, number: int
) -> None:
    dice = random.Random(f"{role} {number}")
    queries = [Query(ring, tmp_path, name) for name in QUERIES]
    for query in queries:
        wait_for(lambda query=query: query.committed() >= 2, 60, f"{query.name} has committed epochs")
    victim = victim_of(dice.choice(queries), role, dice)
    time.sleep(dice.uniform(0.0, 3.0))  # at which moment it strikes is what the numbers choose
    pull_the_plug(victim)
    if role in COME_BACK or victim.name in (SOURCE, SINK):
        victim.start()
        victim.ready()
    for query in queries:
        over = wait_for(
            lambda query=query: (told := query.status())["state"] in FINAL and told, 240, f"{query.name} ends"
        )
        assert (over["state"], over["reason"]) == ("finished", ""), f"{victim.name} was killed"
        assert without_delay(query.out) == expected[query.name], f"{query.name}: {victim.name} was killed"
