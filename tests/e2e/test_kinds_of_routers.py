"""Sites behind routers of several kinds: each time two agents join through one open agent, and rows pass exactly."""

import csv
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Nodes
from tests.e2e.mesh import Mesh, cli, wait_for
from tests.e2e.routers import Routers, Site, brought_up
from tests.e2e.test_sites_behind_routers import CODE, agent_at, submit, wait_until_finished

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak]

ROWS = 10_000
IDLE_SECONDS = 75.0
"""More than two lives of a connection at a router that forgets after 30 s."""

OTHER_OUTSIDE = "11.0.0.201"


@contextmanager
def ring_at(routers: Routers, *hosts: str) -> Iterator[Mesh]:
    """Agents on these hosts, the first of which founds the network."""
    folder = Path(tempfile.mkdtemp(prefix="adt-"))
    made = Mesh(folder)
    try:
        for host in hosts:
            began = time.monotonic()
            made.add([agent_at(routers, host, folder)])
            print(f"{host} joined, and all agreed, within {time.monotonic() - began:.1f} s")
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


@contextmanager
def routers_of(open_hosts: int, *sites: Site) -> Iterator[Routers]:
    """Routers as a context."""
    yield from brought_up(open_hosts, *sites)


def rows_pass(ring: Mesh, folder: Path, target: str) -> None:
    """Send rows from the first host of the first site to another, and compare all of them."""
    folder.mkdir(exist_ok=True)
    submit(ring, folder, ROWS, f"csv:out.csv@{target}")
    wait_until_finished(ring)
    with (folder / "out.csv").open() as file:
        assert [int(row[-1]) for row in csv.reader(file) if row[-1].isdigit()] == [2 * n for n in range(ROWS)]


@pytest.mark.parametrize(
    "site",
    [Site(keeps_ports=True), Site(rejects=True), Site(layers=2)],
    ids=["it keeps ports", "it rejects strangers", "two layers"],
)
def test_two_sites_behind_routers_of_a_kind(site: Site, tmp_path: Path) -> None:
    with routers_of(1, site, site) as routers, ring_at(routers, "o1", "s1.1", "s2.1") as ring:
        rows_pass(ring, tmp_path, "s2-1")


@pytest.mark.parametrize(
    "site", [Site(keeps_ports=True), Site(keeps_ports=True, layers=2)], ids=["one layer", "two layers"]
)
def test_agents_punch_through_routers_that_keep_ports(site: Site, tmp_path: Path) -> None:
    with routers_of(1, site, site) as routers, ring_at(routers, "o1", "s1.1", "s2.1") as ring:
        began = time.monotonic()
        wait_for(lambda: _kind(ring, "s1-1", "s2-1") == "punched", 30.0, "a punched link")
        print(f"punched {time.monotonic() - began:.1f} s after all had agreed")
        ring.agent("o1").kill()  # the two go on without the relay
        time.sleep(1.0)
        assert _kind(ring, "s1-1", "s2-1") == _kind(ring, "s2-1", "s1-1") == "punched"


def _kind(ring: Mesh, asked: str, other: str) -> str:
    rows = {row["name"]: row for row in ring.agent(asked).ask(Nodes())["nodes"]}
    return str(rows[other].get("kind", "")) if other in rows else ""


def test_two_agents_behind_one_router_reach_each_other_directly(tmp_path: Path) -> None:
    with routers_of(1, Site(2)) as routers, ring_at(routers, "o1", "s1.1", "s1.2") as ring:
        rows_pass(ring, tmp_path, "s1-2")
        wait_for(lambda: _kind(ring, "s1-1", "s1-2") == "direct", 30.0, "a link inside their network")


def test_a_router_that_forgets_idle_connections(tmp_path: Path) -> None:
    site = Site(forgets=30)
    with routers_of(1, site, site) as routers, ring_at(routers, "o1", "s1.1", "s2.1") as ring:
        began = {agent.name: agent.ask(Nodes())["known"] for agent in ring.agents}
        end = time.monotonic() + IDLE_SECONDS
        while time.monotonic() < end:
            time.sleep(5.0)  # idle is what this test is about
            assert {agent.name: agent.ask(Nodes())["known"] for agent in ring.agents} == began
        rows_pass(ring, tmp_path, "s2-1")


def test_an_outside_address_that_changes(tmp_path: Path) -> None:
    with routers_of(1, Site(), Site()) as routers, ring_at(routers, "o1", "s1.1", "s2.1") as ring:
        rows_pass(ring, tmp_path / "before", "s2-1")
        routers.change_outside(2, OTHER_OUTSIDE)
        changed = time.monotonic()

        def seen() -> str:
            rows = {row["name"]: row for row in ring.agent("o1").ask(Nodes())["nodes"]}
            return str(rows["s2-1"]["outside"]) if "s2-1" in rows and rows["s2-1"]["answers"] else ""

        wait_for(lambda: seen() == OTHER_OUTSIDE, 120.0, "the others see the new address")
        print(f"the new outside address was known after {time.monotonic() - changed:.1f} s")
        shown = cli("forget", "flow", "--agent", str(ring.agent("o1").state_dir))
        assert shown.returncode == 0, shown.stderr
        ring.wait_for_ring(60.0)
        rows_pass(ring, tmp_path / "after", "s2-1")


def test_a_site_restarts_while_the_first_node_is_gone(tmp_path: Path) -> None:
    with routers_of(2, Site(), Site()) as routers, ring_at(routers, "o1", "o2", "s1.1", "s2.1") as ring:
        rows_seen = wait_for(lambda: _holders(ring, "s1-1"), 30.0, "both have reservations")
        print(f"reservations: {json.dumps(rows_seen)}")
        ring.agent("o1").kill()
        site = ring.agent("s1-1")
        site.kill()
        began = time.monotonic()
        site.start()
        site.ready(60.0)
        ring.wait_for_ring(90.0)
        print(f"back in the ring after {time.monotonic() - began:.1f} s")
        ring.agents.remove(ring.agent("o1"))
        ring.agents.sort(key=lambda agent: agent.name != "o2")
        (tmp_path / "flow.py").write_text(CODE)
        ring.agents[0].name = "o1"  # `submit` asks the open agent by that name
        rows_pass(ring, tmp_path, "s2-1")


def _holders(ring: Mesh, asked: str) -> dict[str, list[str]]:
    rows = {row["name"]: row["held_by"] for row in ring.agent(asked).ask(Nodes())["nodes"]}
    sites = {name: list(rows[name]) for name in ("s1-1", "s2-1") if name in rows}
    return sites if len(sites) == 2 and all(sites.values()) else {}
