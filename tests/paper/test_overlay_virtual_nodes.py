"""[AgileDART] §IV and the overlay specification §7 and O4: how many nodes a machine is, and failure domains."""

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.tables.virtual_nodes import on_distinct_hosts, virtual_nodes


@pytest.mark.parametrize(("cores", "nodes"), [(1, 1), (2, 1), (4, 2), (8, 3), (16, 4)])
def test_o4_virtual_nodes_by_cores(cores: int, nodes: int) -> None:
    assert virtual_nodes(cores) == nodes


@pytest.mark.parametrize(
    ("cores", "memory_mb", "bandwidth_mbit", "nodes"),
    [
        (8, 4_096, 80, 3),
        (8, 1_024, 1_000, 1),
        (8, 2_048, 1_000, 2),
        (64, 65_536, 40, 2),
        (3, 4_096, 1_000, 1),
        (0, 100, 1, 1),
    ],
)
def test_section_7_the_scarcest_resource_decides(cores: int, memory_mb: int, bandwidth_mbit: int, nodes: int) -> None:
    assert virtual_nodes(cores, memory_mb, bandwidth_mbit) == nodes


def on(*hosts: str) -> list[Peer]:
    return [Peer(NodeId(index), 1, host=host) for index, host in enumerate(hosts, start=1)]


@pytest.mark.parametrize(
    ("own", "hosts", "chosen"),
    [
        ("a", ["a", "b", "b", "c", "d"], [2, 4, 5]),
        ("a", ["a", "a", "b"], [3, 1, 2]),
        ("a", ["b", "b", "c"], [1, 3, 2]),
        ("", ["", "", "", "b"], [1, 2, 3]),
        ("a", ["b"], [1]),
        ("a", [], []),
    ],
)
def test_section_7_copies_go_to_distinct_machines(own: str, hosts: list[str], chosen: list[int]) -> None:
    assert [peer.node for peer in on_distinct_hosts(own, on(*hosts), 3)] == chosen
