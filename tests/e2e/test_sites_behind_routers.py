"""Agents at sites whose routers let no connection in: they join by one token, and rows go from site to site.

Both sites use the same private addresses, as homes do.
"""

import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Nodes
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

READER = """
import json, sys
from pathlib import Path
import msgspec
from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_sink_log.client import SinkLogClient

identity, _ = identity_from_token(Path(sys.argv[2]).read_text())
with SinkLogClient([sys.argv[1]], identity) as client:
    rows, offset = [], 0
    while offset < client.ends("doubles").partitions[0].committed:
        got = client.fetch("doubles", 0, offset)
        for batch in got.batches:
            rows += msgspec.msgpack.decode(batch.body)[offset - batch.offset if batch.offset < offset else 0:]
        offset = got.next_offset
print(json.dumps([len(rows), sum(row[-1] for row in rows)]))
"""


@pytest.fixture(scope="module")
def routers() -> Iterator[Routers]:
    yield from brought_up(1, Site(), Site())


@pytest.fixture(scope="module")
def ring(routers: Routers) -> Iterator[Mesh]:
    folder = Path(tempfile.mkdtemp(prefix="agiledart-sites-"))
    made = Mesh(folder)
    routers.counts_to_private("o1")
    routers.publish_only("o1", 9464)
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


def submit(made: Mesh, folder: Path, count: int, report: str, source: str = "readings=csv:in.csv@s1-1") -> None:
    """Send numbers below `count` from the first site to a sink."""
    (folder / "flow.py").write_text(CODE)
    with (folder / "in.csv").open("w") as file:
        file.write("at,value\n")
        file.writelines(f"2024-01-01 {n // 3600:02d}:{n // 60 % 60:02d}:{n % 60:02d},{n}\n" for n in range(count))
    ran = cli(
        "submit", "flow.py:flow", "--agent", str(made.agent("o1").state_dir),
        "--set", source, "--set", f"report={report}", "-o", "json", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "s1-1" in json.loads(ran.stdout)["nodes"]


def wait_until_finished(made: Mesh, seconds: float = 60.0) -> None:
    """Wait until the application has ended well."""

    def finished() -> bool:
        shown = cli("status", "flow", "--agent", str(made.agent("o1").state_dir), "-o", "json")
        return shown.returncode == 0 and json.loads(shown.stdout)["state"] == "finished"

    wait_for(finished, seconds, "flow is finished")


def test_rows_pass_from_site_to_site_exactly(ring: Mesh, tmp_path: Path) -> None:
    count = 60_000
    submit(ring, tmp_path, count, "csv:out.csv@s2-1")
    wait_until_finished(ring)
    with (tmp_path / "out.csv").open() as file:
        values = [int(row[-1]) for row in csv.reader(file) if row[-1].isdigit()]
    assert values == [2 * n for n in range(count)]


def test_rows_reach_an_executor_through_the_only_port_of_its_host(ring: Mesh, tmp_path: Path) -> None:
    count = 20_000
    submit(ring, tmp_path, count, "csv:open.csv@o1")
    wait_until_finished(ring)
    with (tmp_path / "open.csv").open() as file:
        values = [int(row[-1]) for row in csv.reader(file) if row[-1].isdigit()]
    assert values == [2 * n for n in range(count)]


def test_a_log_at_a_site_is_read_from_outside_and_from_the_other_site(
    routers: Routers, ring: Mesh, tmp_path: Path
) -> None:
    count = 2_000
    submit(ring, tmp_path, count, "log:doubles@s2-1")
    wait_until_finished(ring)
    token = tmp_path / "reader.token"
    made = cli("token", "create", "--role", "reader", "--agent", str(ring.agent("o1").state_dir), "-o", "json")
    assert made.returncode == 0, made.stderr
    token.write_text(json.loads(made.stdout)["token"])
    for host, asked in (("o1", "o1"), ("s1.1", "s1-1"), ("s1.1", "o1")):
        address = ring.agent(asked).address
        read = subprocess.run(
            [*routers.enter(host), sys.executable, "-c", READER, address, str(token)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert read.returncode == 0, read.stderr
        assert json.loads(read.stdout) == [count, 2 * sum(range(count))], f"{host} asks {asked}"


def test_commands_show_how_nodes_are_reached(routers: Routers, ring: Mesh) -> None:
    def settled() -> dict[str, Any] | None:
        rows = {row["name"]: row for row in ring.agent("s1-1").ask(Nodes())["nodes"]}
        return rows if rows["o1"]["open"] and rows["s2-1"]["kind"] else None

    rows = wait_for(settled, 20.0, "the open agent is known to be open, and the sites have a link")
    assert (rows["o1"]["kind"], rows["o1"]["held_by"]) == ("direct", [])
    assert (rows["s2-1"]["kind"], rows["s2-1"]["relay"], rows["s2-1"]["held_by"]) == ("relayed", "o1", ["o1"])
    assert rows["s2-1"]["outside"] == routers.outside(2)
    shown = cli("doctor", "--agent", str(ring.agent("s1-1").state_dir), "-o", "json")
    (dials,) = [row for row in json.loads(shown.stdout)["checks"] if row["name"] == "dials"]
    assert "other nodes cannot dial this one" in dials["text"]
    assert f"they see it as {routers.outside(1)}" in dials["text"]
    assert "they reach it through o1" in dials["text"]


def test_an_open_agent_dials_no_private_address(routers: Routers, ring: Mesh) -> None:
    assert routers.sent_to_private("o1") == 0
