"""Where nodes are: zones in the plane, sites of a measured table."""

import gzip
from pathlib import Path

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MICROSECOND, MILLISECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.world.latency_models import Matrix, Plane, load
from tests.data import data_path

A, B, C = NodeId(1), NodeId(2), NodeId(3)


def test_nodes_of_a_zone_are_near_each_other() -> None:
    plane = Plane(0, 100 * MILLISECOND)
    draw = RandomStream(1, "places").uniform
    for number in range(40):
        plane.place(NodeId(number), f"zone{number % 4}", draw)
    inside = [plane.distance_ns(NodeId(a), NodeId(b)) for a in range(0, 40, 4) for b in range(0, 40, 4)]
    across = [plane.distance_ns(NodeId(a), NodeId(b)) for a in range(0, 40, 4) for b in range(1, 40, 4)]
    assert max(inside) <= 10 * MILLISECOND
    assert sum(across) / len(across) > 2 * sum(inside) / len(inside)
    before = plane.distance_ns(A, B)
    plane.place(A, "elsewhere", draw)
    assert plane.distance_ns(A, B) == before, "a restarted node is where it was"


def test_a_table_of_round_trips_is_read(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("0,10,30\n20,0,40\n30,40,0\n")
    sites = load(file)
    draws = iter((0.0, 0.4, 0.9))
    for node in (A, B, C):
        sites.place(node, "", lambda: next(draws))
    assert sites.distance_ns(A, B) == 5 * MILLISECOND
    assert sites.distance_ns(B, A) == 10 * MILLISECOND, "directions may differ"
    assert sites.distance_ns(A, A) == 200 * MICROSECOND
    again = sites.fresh()
    again.place(B, "lyon", lambda: 0.0)
    again.place(A, "lyon", lambda: 0.9)
    assert again.distance_ns(A, B) == 200 * MICROSECOND, "a zone is a site"


def test_missing_pairs_are_filled(tmp_path: Path) -> None:
    file = tmp_path / "pings.csv.gz"
    with gzip.open(file, "wt") as out:
        out.write("source,destination,min,avg,max\n0,1,1,8,9\n1,0,1,10,9\n0,2,1,6,7\n2,2,0,0.1,0\n")
    sites = load(file)
    assert sites.sites == 3
    assert isinstance(sites, Matrix)
    sites.place(A, "a", lambda: 0.0)
    sites.place(B, "b", lambda: 0.0)
    sites.place(C, "c", lambda: 0.0)
    assert sites.distance_ns(A, B) == 4 * MILLISECOND
    assert sites.distance_ns(C, A) == 3 * MILLISECOND, "missing: the other direction's"
    assert sites.distance_ns(B, C) == 4 * MILLISECOND, "missing both ways: the median"


@pytest.mark.parametrize("text", ["", "1\n", "1,2\n3\n", "a,b\nc,d\n", "0,0\n0,0\n"])
def test_invalid_tables_are_refused_with_the_file_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"bad\.csv"):
        load(file)
    with pytest.raises(ConfigurationError, match="nowhere"):
        load(tmp_path / "nowhere.csv")


def test_the_measured_internet_is_available() -> None:
    sites = load(data_path("network_rtt/wondernetwork_2020-07-19_pings.csv.gz"))
    assert sites.sites == 250
    draw = RandomStream(1, "sites").uniform
    for number in range(200):
        sites.place(NodeId(number), "", draw)
    times = sorted(sites.distance_ns(NodeId(a), NodeId(b)) for a in range(200) for b in range(200) if a != b)
    assert 30 * MILLISECOND < times[len(times) // 2] < 120 * MILLISECOND


def test_planet_lab_is_available() -> None:
    pytest.importorskip("pyarrow")
    sites = load(data_path("network_rtt/planetlab490_rtt_ms.parquet"))
    assert sites.sites == 490
