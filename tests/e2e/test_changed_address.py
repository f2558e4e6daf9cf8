"""A machine gets another address while an application runs on it, as from DHCP: rows go on, the file is exact.

Each host is a network namespace. It needs root and `ip`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_node.wire.commands import Nodes
from tests.e2e.hosts import Hosts, address, brought_up, mesh_on
from tests.e2e.mesh import AgentProcess, Mesh, wait_for
from tests.e2e.plug import Job, undisturbed

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

READINGS, COUNT = 20_000, 4
OTHER = 77
"""Number of the new address."""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    yield from brought_up(COUNT)


@pytest.fixture
def ring(hosts: Hosts) -> Iterator[Mesh]:
    with mesh_on(hosts, "--listen", "0.0.0.0:9464") as made:
        yield made


def addresses_seen(agent: AgentProcess) -> dict[str, str]:
    """Addresses of nodes by name, as an agent knows them; its own among them."""
    return {str(node["name"]): str(node["address"]) for node in agent.ask(Nodes())["nodes"]}


def test_a_source_keeps_its_application_at_another_address(hosts: Hosts, ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    job = Job(ring, tmp_path, "moved", at="a2")
    wait_for(lambda: (job.status().get("epoch") or {}).get("committed"), 60, "a committed epoch")
    hosts.give_address("a2", OTHER)
    new = f"{address(OTHER)}:9464"
    wait_for(lambda: all(addresses_seen(a).get("a2") == new for a in ring.agents), 60, "all know the new address of a2")
    assert job.status()["state"] == "running"
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert not any("restarted" in entry["text"] for entry in told["history"])
    assert job.out.read_text() == expected


def test_rows_follow_their_receiver_to_its_other_address(hosts: Hosts, ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, 2 * READINGS)
    job = Job(ring, tmp_path, "followed", at="a2")

    def follows() -> bool:
        """Whether the routes to a3 have moved, and work without a relay."""
        stages = job.status().get("stages", ())
        routes = [r for stage in stages for one in stage["instances"] for r in one.get("routes", ()) if r["to"] == "a3"]
        return bool(routes) and all(r["changes"] and (r["state"], r["relay"]) == ("works", "") for r in routes)

    wait_for(lambda: (job.status().get("epoch") or {}).get("committed"), 60, "a committed epoch")
    hosts.give_address("a3", OTHER)
    wait_for(follows, 60, "rows reach a3 directly")
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert job.out.read_text() == expected
