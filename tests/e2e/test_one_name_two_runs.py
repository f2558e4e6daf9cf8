"""One name, submitted on both sides of a cut: two runs. Afterwards one has the name, and the other is stopped and reported.

Real agents on emulated hosts; it needs root and `ip`.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import Info, ListApplications, Status
from tests.e2e.hosts import Hosts, brought_up, mesh_on
from tests.e2e.mesh import AgentProcess, Mesh, cli, names_seen, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

CODE: Final = '''
"""A row in, a row out."""
from datetime import datetime
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    at: datetime
    value: int

def changed(reading: Reading) -> Reading:
    return reading._replace(value=FACTOR * reading.value)

def build(readings: Source[Reading], report: Sink[Reading], delivery: str = "at-most-once") -> Topology:
    topology = Topology("twins", delivery=delivery)
    topology.source("readings", readings, event_time=lambda r: r.at).map(changed).sink("report", report)
    return topology
'''

ROWS: Final = 600
COUNT: Final = 5
NEAR, FAR = ("a1", "a2"), ("a3", "a4", "a5")
FACTORS: Final = {"same": {"a1": 2, "a3": 2}, "other": {"a1": 2, "a3": 3}}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    yield from brought_up(COUNT)


@pytest.fixture
def ring(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
    with mesh_on(hosts, seconds=240.0) as made:
        yield made


def submitted(ring: Mesh, folder: Path, at: str, factor: int, more: str, delivery: str) -> str:
    """The number of the run that this agent gives the name."""
    (folder / f"at_{at}.py").write_text(CODE.replace("FACTOR", str(factor)))
    ran = cli(
        "submit", f"at_{at}.py:build", "--agent", str(ring.agent(at).state_dir), "--set", f"readings=csv:in.csv?{more}@{at}",
        "--set", f"report=csv:{at}.csv@{at}", "--set", f"delivery={delivery}", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return str(wait_for(lambda: status(ring.agent(at))["run"], 60.0, f"{at} knows its run"))


def status(agent: AgentProcess) -> dict[str, Any]:
    """Its words; without state while it is not in the ring, as on a machine that has too much to do."""
    try:
        return dict(agent.ask(Status("twins")))
    except CommandRefusedError:
        return {"state": "", "rivals": [], "nodes": [], "run": ""}


def listed(agent: AgentProcess) -> dict[str, tuple[int, str, bool]] | None:
    try:
        rows = agent.ask(ListApplications())["applications"]
    except CommandRefusedError:
        return None
    return {row["name"]: (row["version"], row["state"], row["is_unverified"]) for row in rows}


def values(path: Path) -> list[int]:
    with path.open() as file:
        return [int(row[-1]) for row in csv.reader(file) if row and row[-1].isdigit()]


def running(ring: Mesh) -> Counter[str]:
    """Agent → its processes of user code."""
    return +Counter({agent.name: len(agent.ask(Info())["executors"]) for agent in ring.agents})


def goes_on_until_stopped(ring: Mesh, folder: Path, winner: str) -> None:
    """The run that has the name takes what comes, and leaves nothing behind."""
    before = len(values(folder / f"{winner}.csv"))
    with (folder / "in.csv").open("a") as file:
        file.writelines(f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n}\n" for n in range(ROWS, ROWS + 60))
    wait_for(lambda: len(values(folder / f"{winner}.csv")) > before, 60.0, "the run that has the name writes on")
    ran = cli("stop", "twins", "--now", "--agent", str(ring.agent("a4").state_dir))
    assert ran.returncode == 0, ran.stderr
    wait_for(lambda: not running(ring), 60.0, "no process is left")


@pytest.mark.parametrize("delivery", ["at-most-once", "exactly-once"])
@pytest.mark.parametrize("code", list(FACTORS))
@pytest.mark.parametrize("end", ["bounded", "endless"])
def test_one_of_two_runs_of_a_name_continues(
    hosts: Hosts, ring: Mesh, tmp_path: Path, end: str, code: str, delivery: str
) -> None:
    """Each writes on its side; when the network is whole, processes are those of the run in `list`, and the other run
    is reported.
    """
    lines = [f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n}\n" for n in range(ROWS)]
    (tmp_path / "in.csv").write_text("at,value\n" + "".join(lines))
    hosts.move(FAR, "right")
    for side in (NEAR, FAR):
        for name in side:
            wait_for(lambda n=name, s=side: names_seen(ring.agent(n)) == set(s), 90.0, f"{name} is in a ring of {side}")
    # Exactly-once needs rows that can be read again: its endless source has more of them than the test has time.
    speed = "follow=1" if (end, delivery) == ("endless", "at-most-once") else "speed=1"
    speed = "speed=8" if end == "bounded" else speed
    runs = {at: submitted(ring, tmp_path, at, FACTORS[code][at], speed, delivery) for at in ("a1", "a3")}
    assert runs["a1"] != runs["a3"]
    for at in runs:
        wait_for(lambda at=at: values(tmp_path / f"{at}.csv"), 60.0, f"the run of {at} writes")
    hosts.move(FAR, "left")
    ring.wait_for_ring(90.0)

    def agreed() -> bool:
        told = [listed(agent) for agent in ring.agents]
        return all(one == told[0] and one for one in told) and not any(by for *_, by in (told[0] or {}).values())

    wait_for(agreed, 60.0, "all say the same")
    told = wait_for(lambda: (found := status(ring.agent("a5")))["run"] and found, 60.0, "a5 answers")
    winner, loser = sorted(runs, key=lambda at: int(runs[at], 16))
    assert told["run"] == runs[winner], "the smaller number has the name"
    (rival,) = wait_for(
        lambda: [one for one in status(ring.agent("a5"))["rivals"] if one["state"] in ("stopped", "finished")],
        60.0,
        f"the other run is over: {json.dumps(told['rivals'])}",
    )
    assert rival["run"] == runs[loser]
    assert rival["submitted_to"] == loser
    if rival["state"] == "stopped":
        assert f"submitted to {winner}" in rival["reason"]

    def is_as_listed() -> bool:
        told = status(ring.agent("a5"))
        if not told["state"]:
            return False
        alive = told["state"] in ("running", "deploying", "recovering")
        return running(ring) == (Counter(dict.fromkeys(told["nodes"], 1)) if alive else Counter())

    wait_for(is_as_listed, 60.0, "processes are those of what is listed")
    said = cli("status", "twins", "--agent", str(ring.agent("a4").state_dir)).stdout
    assert f"submitted to {loser}): {rival['state']}" in said
    left = values(tmp_path / f"{loser}.csv")
    assert left == [FACTORS[code][loser] * n for n in range(len(left))], "the other run's output is a prefix"
    if end == "endless":
        goes_on_until_stopped(ring, tmp_path, winner)
        assert values(tmp_path / f"{loser}.csv") == left, "no process has written on"
    else:
        wait_for(lambda: status(ring.agent("a4"))["state"] == "finished", 180.0, "it is finished")
        assert values(tmp_path / f"{winner}.csv") == [FACTORS[code][winner] * n for n in range(ROWS)]
        wait_for(lambda: not running(ring), 60.0, "no process is left")
