"""Real agents on emulated hosts, with the links between two halves cut: ended runs stay ended, running ones continue.

Each host is a network namespace behind one of two bridges; the cut moves some to the other bridge. It needs root and `ip`.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import ListApplications, Status
from tests.e2e.hosts import Hosts, brought_up, mesh_on
from tests.e2e.mesh import AgentProcess, Mesh, cli, names_seen, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = '''
"""One step."""
from datetime import datetime
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    at: datetime
    value: int

def doubled(reading: Reading) -> Reading:
    return reading._replace(value=2 * reading.value)

def _topology(name):
    def build(readings: Source[Reading], report: Sink[Reading]) -> Topology:
        topology = Topology(name)
        topology.source("readings", readings, event_time=lambda r: r.at).map(doubled).sink("report", report)
        return topology
    return build

ended = _topology("ended")
during = _topology("during")
after = _topology("after")
'''

ROWS, COUNT = 40, 5
MINORITY = 2
"""Most voters that the cut may take. Each of the five nodes votes, and a commit needs three."""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    yield from brought_up(COUNT)


@pytest.fixture
def ring(hosts: Hosts) -> Iterator[Mesh]:
    with mesh_on(hosts) as made:
        yield made


def submit(made: Mesh, folder: Path, name: str, speed: int) -> set[str]:
    """Names of its hosts."""
    ran = cli(
        "submit", f"flow.py:{name}", "--agent", str(made.agent("a1").state_dir),
        "--set", f"readings=csv:in.csv?speed={speed}@a1", "--set", f"report=csv:{name}.csv@a1", "-o", "json", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return set(json.loads(ran.stdout)["nodes"])


def states(agent: AgentProcess) -> dict[str, tuple[str, bool]]:
    try:
        rows = agent.ask(ListApplications())["applications"]
    except CommandRefusedError:
        return {}
    return {row["name"]: (row["state"], row["is_unverified"]) for row in rows}


def values(path: Path) -> list[int]:
    with path.open() as file:
        return sorted(int(row[-1]) for row in csv.reader(file) if row[-1].isdigit())


@pytest.mark.soak  # `tests/simulation/test_cuts.py` has all cuts of a virtual network
def test_isolated_bystanders_change_nothing(hosts: Hosts, ring: Mesh, tmp_path: Path) -> None:
    """One application has ended, one ends while those are cut off that host nothing, one goes on until afterwards."""
    (tmp_path / "flow.py").write_text(CODE)
    lines = [f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n}\n" for n in range(ROWS)]
    (tmp_path / "in.csv").write_text("at,value\n" + "".join(lines))
    submit(ring, tmp_path, "ended", 1000)
    near = ring.agent("a1")
    wait_for(lambda: states(near).get("ended") == ("finished", False), 30.0, "ended is finished")
    used = submit(ring, tmp_path, "during", 4) | submit(ring, tmp_path, "after", 1)
    bystanders = [agent.name for agent in ring.agents if agent.name not in used][:MINORITY]
    assert bystanders, "a node hosts nothing"
    far = ring.agent(bystanders[0])
    hosts.move(bystanders, "right")
    wait_for(lambda: names_seen(far) == set(bystanders), 60.0, "the far side is a ring")
    far_saw: dict[str, Any] = wait_for(lambda: states(far), 60.0, "the far side answers")
    wait_for(lambda: states(near).get("during") == ("finished", False), 60.0, "during is finished")
    hosts.move(bystanders, "left")
    ring.wait_for_ring(90.0)

    def agreed() -> bool:
        told = [states(agent) for agent in ring.agents]
        return all(one == told[0] and set(one) == {"ended", "during", "after"} for one in told) and not any(
            is_unverified for _, is_unverified in told[0].values()
        )

    wait_for(agreed, 60.0, f"all say the same; the far side had said {far_saw}")
    told = states(far)
    assert told["ended"] == told["during"] == ("finished", False)
    wait_for(
        lambda: states(far)["after"][0] in ("running", "finished"), 60.0, "another voter coordinates after, if need be"
    )
    wait_for(lambda: states(far).get("after") == ("finished", False), 90.0, "after is finished")
    for name in ("ended", "during", "after"):
        assert values(tmp_path / f"{name}.csv") == [2 * n for n in range(ROWS)]
    history = [entry["state"] for entry in far.ask(Status("after"))["history"]]
    assert history[-1] == "finished"
    if far_saw.get("after", ("", False))[1]:
        assert "failed" in history, "gossip from the far side is reported, too"
