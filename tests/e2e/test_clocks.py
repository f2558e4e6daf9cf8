"""Agents whose clocks are wrong: the difference is measured and named, they get no work, they wait in place of ending."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Nodes, Status
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for
from tests.e2e.wrong_clocks import WrongClock, library

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = '''
"""Five steps, so that there is something to place."""
from datetime import datetime
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    at: datetime
    value: int

def one_more(reading: Reading) -> Reading:
    return reading._replace(value=reading.value + 1)

def flow(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("flow")
    topology.source("readings", readings, event_time=lambda r: r.at).map(one_more, name="more").sink("report", report)
    return topology
'''

ROWS = 30


@pytest.fixture(scope="module")
def clocks() -> Iterator[tuple[Mesh, dict[str, WrongClock]]]:
    """Three agents whose clocks are right, two whose clocks can be set."""
    library()
    with mesh(3) as made:
        new = [AgentProcess(name, made.folder) for name in ("a4", "a5")]
        kept = {agent.name: WrongClock(agent) for agent in new}
        made.add(new)
        yield made, kept


def offsets(agent: AgentProcess) -> dict[str, float | None]:
    """Clock differences printed by `nodes`, in seconds."""
    return {row["name"]: row["clock_s"] for row in agent.ask(Nodes())["nodes"]}


def submit(made: Mesh, folder: Path, *words: str, at: str = "a1") -> Any:
    return cli(
        "submit", "flow.py:flow", "--agent", str(made.agent("a1").state_dir), "--set", "readings=csv:in.csv?speed=5@a1",
        "--set", f"report=csv:out.csv@{at}", "--parallelism", "more=4", "-o", "json", *words, cwd=folder,
    )  # fmt: skip


def test_a_node_with_a_jumping_clock_is_named_and_gets_no_work(
    clocks: tuple[Mesh, dict[str, WrongClock]], tmp_path: Path
) -> None:
    """An hour back and ten minutes ahead, while rows flow: results are exact, later applications go elsewhere."""
    made, kept = clocks
    (tmp_path / "flow.py").write_text(CODE)
    lines = [f"2024-01-01 00:00:{n:02d},{n}\n" for n in range(ROWS)]
    (tmp_path / "in.csv").write_text("at,value\n" + "".join(lines))
    ran = submit(made, tmp_path)
    assert ran.returncode == 0, ran.stderr
    kept["a4"].set("-3600")
    kept["a5"].set("+600")
    near, far = made.agent("a1"), made.agent("a4")

    def named() -> bool:
        return {"clock of a4 is 3,600 s behind", "clock of a5 is 600 s ahead"} <= set(near.ask(Nodes())["clocks"])

    wait_for(named, 60.0, "a1 names both")
    wait_for(lambda: abs((offsets(far)["a4"] or 0) + 3600) < 10, 60.0, "a4 sees that it is its own clock")
    assert abs(offsets(far)["a1"] or 0) < 10, "and does not blame the others"
    said = cli("doctor", "--agent", str(near.state_dir))
    assert "clock of a4 is 3,600 s behind" in said.stdout, said.stdout
    assert "clock of a5 is 600 s ahead" in cli("nodes", "--agent", str(near.state_dir)).stderr

    wait_for(lambda: near.ask(Status("flow"))["state"] == "finished", 60.0, "the first run is finished")
    with (tmp_path / "out.csv").open() as file:
        assert sorted(int(row[-1]) for row in csv.reader(file) if row[-1].isdigit()) == [n + 1 for n in range(ROWS)]

    ran = submit(made, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert not {"a4", "a5"} & set(json.loads(ran.stdout)["nodes"]), "nodes with a wrong clock get no work"
    assert cli("stop", "flow", "--now", "--agent", str(near.state_dir)).returncode == 0
    ran = submit(made, tmp_path, at="a4")
    assert ran.returncode == 1
    assert "report: clock of a4 is 3,600 s behind" in ran.stderr, ran.stderr

    kept["a4"].set("+0")
    kept["a5"].set("+0")
    wait_for(lambda: not near.ask(Nodes())["clocks"], 60.0, "nothing is named any more")


def starts_late(agent: AgentProcess, clock: WrongClock, wrong: str, words: str) -> None:
    """End it, start it with a wrong clock, see that it waits and says so; then its clock is set, and it comes up."""
    assert agent.end() == 0
    clock.set(wrong)
    before = len(agent.log.read_text())
    agent.start()
    wait_for(lambda: "waiting until it is correct" in agent.log.read_text()[before:], 30.0, "it says that it waits")
    assert words in agent.log.read_text()[before:]
    assert agent.process is not None
    assert agent.process.poll() is None
    clock.set("+0")
    agent.ready()


def test_an_agent_whose_clock_is_behind_waits(clocks: tuple[Mesh, dict[str, WrongClock]]) -> None:
    """An hour back, and 1970, at its start; it joins as soon as the clock is set."""
    made, kept = clocks
    starts_late(made.agent("a4"), kept["a4"], "-3600", "its membership begins in")
    starts_late(made.agent("a5"), kept["a5"], "@1970-01-01 00:01:00", "1970-01-01")
    made.wait_for_ring()


def test_a_newcomer_with_a_fast_clock_is_admitted(clocks: tuple[Mesh, dict[str, WrongClock]]) -> None:
    """And sees that it is its own clock; beside one that is behind."""
    made, kept = clocks
    kept["a4"].set("-600")
    newcomer = AgentProcess("a6", made.folder)
    WrongClock(newcomer, "+3600")
    made.add([newcomer])
    wait_for(lambda: abs((offsets(newcomer)["a6"] or 0) - 3600) < 10, 60.0, "it sees that its clock is ahead")
