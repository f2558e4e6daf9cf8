"""Agents at sites whose routers let no connection in: they join by one token, and rows go from site to site.

Both sites use the same private addresses, as homes do.
"""

import csv
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import AgentProcess, Mesh, cli, wait_for
from tests.e2e.routers import Routers, Site, brought_up

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = '''
"""Doubles numbers."""
from datetime import datetime
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    at: datetime
    value: int

def doubled(reading: Reading) -> Reading:
    return reading._replace(value=2 * reading.value)

def flow(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("flow")
    topology.source("readings", readings, event_time=lambda r: r.at).map(doubled).sink("report", report)
    return topology
'''

JOIN_SECONDS = 10.0


@pytest.fixture(scope="module")
def routers() -> Iterator[Routers]:
    yield from brought_up(1, Site(), Site())


@pytest.fixture(scope="module")
def ring(routers: Routers) -> Iterator[Mesh]:
    folder = Path(tempfile.mkdtemp(prefix="agiledart-sites-"))
    made = Mesh(folder)
    try:
        made.add([agent_at(routers, "o1", folder)])
        for name in ("s1.1", "s2.1"):
            began = time.monotonic()
            made.add([agent_at(routers, name, folder)])
            print(f"{name} joined, and all agreed, within {time.monotonic() - began:.1f} s")
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def agent_at(routers: Routers, name: str, folder: Path, *options: str) -> AgentProcess:
    """An agent on one of the hosts, with the host's name."""
    agent = AgentProcess(name.replace(".", "-"), folder, "--listen", f"{routers.address(name)}:9464", *options)
    agent.enter = routers.enter(name)
    return agent


def test_both_sites_join_by_one_token_and_rows_pass_exactly(ring: Mesh, tmp_path: Path) -> None:
    count = 60_000
    (tmp_path / "flow.py").write_text(CODE)
    with (tmp_path / "in.csv").open("w") as file:
        file.write("at,value\n")
        file.writelines(f"2024-01-01 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d},{n}\n" for n in range(count))
    ran = cli(
        "submit", "flow.py:flow", "--agent", str(ring.agent("o1").state_dir),
        "--set", "readings=csv:in.csv@s1-1", "--set", "report=csv:out.csv@s2-1", "-o", "json", cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert {"s1-1", "s2-1"} <= set(json.loads(ran.stdout)["nodes"])

    def finished() -> bool:
        shown = cli("status", "flow", "--agent", str(ring.agent("o1").state_dir), "-o", "json")
        return shown.returncode == 0 and json.loads(shown.stdout)["state"] == "finished"

    wait_for(finished, 60.0, "flow is finished")
    with (tmp_path / "out.csv").open() as file:
        values = [int(row[-1]) for row in csv.reader(file) if row[-1].isdigit()]
    assert values == [2 * n for n in range(count)]
