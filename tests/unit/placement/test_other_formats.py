"""Networks of the Topology Zoo and files of YAFS: figures by hand, faults in words, written files that read back the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from agiledart.placement.loading import load_network, load_topologies
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.files.network_file import NetworkDescription, network_document, read_network
from agiledart_placement.files.topology_file import read_topology, topology_document
from agiledart_placement.files.topology_zoo import great_circle_km

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="d1" />
  <key attr.name="Latitude" attr.type="double" for="node" id="d2" />
  <key attr.name="Longitude" attr.type="double" for="node" id="d3" />
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d4" />
  <graph edgedefault="undirected">
    <node id="0"><data key="d1">Vienna</data><data key="d2">48.20</data><data key="d3">16.37</data></node>
    <node id="1"><data key="d1">Graz</data><data key="d2">47.07</data><data key="d3">15.43</data></node>
    <node id="2"><data key="d1">Linz</data><data key="d2">48.30</data><data key="d3">14.28</data></node>
    <node id="3"><data key="d1">None</data></node>
    <node id="4"><data key="d1">Island</data><data key="d2">0</data><data key="d3">0</data></node>
    <edge source="0" target="1"><data key="d4">8000000</data></edge>
    <edge source="0" target="2"><data key="d4">16000000</data></edge>
    <edge source="2" target="0"><data key="d4">8000000</data></edge>
    <edge source="1" target="3"></edge>
    <edge source="2" target="9"></edge>
  </graph>
</graphml>
"""

GML = """graph [
  label "two"   # a comment
  node [ id 0 label "Vienna" Latitude 48.20 Longitude 16.37 graphics [ x 1 y 2 ] ]
  node [ id 1 label "Graz" Latitude 47.07 Longitude 15.43 ]
  edge [ source 0 target 1 LinkSpeedRaw 8000000.0 ]
]
"""


def read(tmp_path: Path, name: str, text: str) -> NetworkDescription:
    path = tmp_path / name
    path.write_text(text)
    return load_network(path)


def test_great_circle() -> None:
    assert great_circle_km((0, 0), (0, 90)) == pytest.approx(6371 * 3.14159265 / 2)
    assert great_circle_km((48.20, 16.37), (47.07, 15.43)) == pytest.approx(144.1, abs=1)


def test_graphml_has_shortest_routes_and_reports_its_changes(tmp_path: Path) -> None:
    network = read(tmp_path, "a.graphml", GRAPHML)
    assert list(network.ids) == ["Vienna", "Graz", "Linz", "None"]  # the island has no route to the others
    vienna, graz, linz = (network.ids[name] for name in ("Vienna", "Graz", "Linz"))
    direct = great_circle_km((48.20, 16.37), (47.07, 15.43)) / 200
    assert network.view.link(vienna, graz).delay_ms == pytest.approx(direct)
    assert network.view.link(vienna, graz).bandwidth == 1e6
    assert network.view.link(vienna, linz).bandwidth == 3e6  # two links of 2 and 1 MB/s
    over_vienna = network.view.link(graz, linz)
    assert over_vienna.delay_ms == pytest.approx(direct + network.view.link(vienna, linz).delay_ms)
    assert over_vienna.bandwidth == 1e6
    assert network.view.link(graz, network.ids["None"]).delay_ms == 0  # the place of its only neighbour
    notes = " | ".join(network.notes)
    for part in (
        "edge 4 leads to a node that is not there",
        "1 nodes without coordinates took",
        "1 links join a pair",
        "1 nodes without a route",
    ):
        assert part in notes


def test_gml_reads_the_same_figures(tmp_path: Path) -> None:
    network = read(tmp_path, "a.gml", GML)
    vienna, graz = (network.ids[name] for name in ("Vienna", "Graz"))
    link = network.view.link(vienna, graz)
    assert link.delay_ms == pytest.approx(great_circle_km((48.20, 16.37), (47.07, 15.43)) / 200)
    assert link.bandwidth == 1e6


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.gml", GML.replace("Latitude", "Lat").replace("Longitude", "Lon"), "no node has a Latitude and a Longitude"),
        ("a.gml", GML.replace("48.20", "948"), "node Vienna: Latitude 948"),
        ("a.gml", GML.replace("8000000.0", "fast"), "edge 0: LinkSpeedRaw = fast"),
        ("a.gml", "node [ id 0 ]", "it has no graph"),
        ("a.gml", "graph [ node [ id 0 ", "is not closed"),
        ("a.graphml", "<graphml><node></graphml>", "a.graphml:1:"),
    ],
)
def test_a_broken_network_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("[", r"\[")):
        read(tmp_path, name, text)


def test_topohub_ships_the_zoo_as_json() -> None:
    topohub = pytest.importorskip("topohub", reason="no topohub here: pip install topohub")
    network = load_network(Path(topohub.__file__).parent / "data" / "topozoo" / "Abilene.json")
    assert len(network.ids) == 11
    coast_to_coast = network.view.link(network.ids["New York"], network.ids["Los Angeles"]).delay_ms
    assert 19 < coast_to_coast < 30  # 3,940 km as the crow flies


YAFS_NETWORK: dict[str, Any] = {
    "entity": [{"id": 0, "IPT": 1000, "RAM": 4}, {"id": 1, "IPT": 4000, "RAM": 16}, {"id": 2, "IPT": 2000, "RAM": 8}],
    "link": [{"s": 0, "d": 1, "BW": 2, "PR": 5}, {"s": 1, "d": 2, "BW": 1, "PR": 7}],
}
YAFS_APPLICATIONS: list[dict[str, Any]] = [
    {
        "id": 0,
        "name": 0,
        "module": [{"id": 1, "name": "first", "RAM": 1}, {"id": 2, "name": "second", "RAM": 2}],
        "message": [
            {"id": 0, "name": "M.USER", "s": "None", "d": "first", "bytes": 10, "instructions": 20},
            {"id": 1, "name": "M.NEXT", "s": "first", "d": "second", "bytes": 300, "instructions": 50},
        ],
        "transmission": [],
    }
]


def test_yafs_files(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_text(json.dumps(YAFS_NETWORK))
    (tmp_path / "appDefinition.json").write_text(json.dumps(YAFS_APPLICATIONS))
    network = load_network(tmp_path / "network.json")
    ends = network.view.link(network.ids["n0"], network.ids["n2"])
    assert (ends.delay_ms, ends.bandwidth) == (12, 1e6)
    assert [state.speed for state in network.hosts.values()] == [1, 4, 2]
    (topology,) = load_topologies(tmp_path / "appDefinition.json", tmp_path / "network.json")
    assert [stage.execution_ms for stage in topology.stages] == [20, 50]
    assert (topology.loads[0].rate, topology.loads[0].bytes) == (1, 300)


def test_convert_writes_files_that_read_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "a.graphml", tmp_path / "a.json"
    source.write_text(GRAPHML)
    assert run_cli(["place", "convert", str(source), str(target)]) == 0
    assert "note: edge 4" in capsys.readouterr().err
    before, after = load_network(source), load_network(target)
    assert list(before.ids) == list(after.ids)
    for a in before.ids.values():
        for b in before.ids.values():
            there, here = before.view.link(a, b), after.view.link(a, b)
            assert (there.delay_ms, there.bandwidth) == (here.delay_ms, here.bandwidth)


def test_documents_read_back_the_same() -> None:
    topology = {
        "format": "agiledart-topology/1",
        "name": "t",
        "operators": [
            {"name": "s", "rate": 3, "on": ["n0"]},
            {
                "name": "a",
                "instances": 2,
                "demand": {"cpu": 2},
                "apart_from": ["zone:s"],
                "together_with": ["b"],
                "needs": ["gpu"],
            },
            {"name": "b", "selectivity": 0.5, "state_bytes": 7, "execution_ms": 2, "zone": "z"},
        ],
        "streams": [{"from": "s", "to": "a", "bytes": 4}, {"from": "a", "to": "b"}],
    }
    first = read_topology(topology, "t")
    assert [load.rate for load in first.loads] == [3, 3]
    assert read_topology(topology_document(first), "t") == first
    network = {
        "format": "agiledart-network/1",
        "headroom": 0.1,
        "nodes": [
            {
                "name": "n0",
                "capacity": {"cpu": 3},
                "used": {"cpu": 1},
                "labels": ["gpu"],
                "position_ms": [0, 1, 2],
                "height_ms": 1,
            },
            {"name": "n1", "zone": "z", "host": "h", "speed": 2, "price_per_hour": 1, "watts_idle": 2, "watts_busy": 3},
        ],
        "links": [{"from": "n0", "to": "n1", "delay_ms": 4, "bandwidth": 5, "availability": 0.9, "both": False}],
        "default_link": {"delay_ms": 9},
    }
    once = read_network(network, "n")
    again = read_network(network_document(once), "n")
    assert once.hosts == again.hosts
    assert once.view.links() == again.view.links()
    assert once.headroom == again.headroom
