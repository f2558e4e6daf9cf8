"""[AgileDART] §IV-A: operators on the nodes of the JOIN path; the oracles of the spec of the dataflow graph,
section 10."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.baselines.along_path import AlongPath, host_index, host_list, junction_of
from agiledart_placement.problem.request import HostState, PlacementRequest, StageDemand

FIGURE_PATHS = (
    ("75A342", "D4A8A1", "D45342", "D45A55", "D45A35", "D45A3C"),
    ("1564A6", "D45342", "D45A55", "D45A35", "D45A3C"),
)


def ids(*names: str) -> tuple[NodeId, ...]:
    return tuple(NodeId.from_hex(name) for name in names)


@pytest.mark.parametrize(
    ("operators", "indices"),
    [(5, [0, 0, 1, 2, 3]), (2, [0, 2]), (8, [0, 0, 1, 1, 2, 2, 3, 3])],
)
def test_t1_host_indices_on_four_hosts(operators: int, indices: list[int]) -> None:
    assert [host_index(j, operators, 4) for j in range(operators)] == indices


def test_t1_the_second_of_five_operators_overflows_to_the_first_hosts_leaf_set() -> None:
    path = ids("1", "2", "3", "4", "5")
    leaf = ids("21", "22")
    stages = [StageDemand(0, "source", 1, path[0]), *(StageDemand(j, f"o{j}") for j in range(1, 6))]
    stages.append(StageDemand(6, "sink", 1, path[-1]))
    hosts = {node: HostState(node) for node in path + leaf}
    hosts[path[1]] = HostState(path[1], candidates=leaf)
    request = PlacementRequest(tuple(stages), tuple((j, j + 1) for j in range(6)), (path,), hosts)
    placement = AlongPath().place(request)
    assert [placement.nodes[j, 0] for j in range(1, 6)] == [path[1], leaf[0], path[2], path[3], path[4]]
    assert placement.relaxed == ()


def test_t2_the_junction_of_the_figure_is_d45342() -> None:
    first, second = (ids(*path) for path in FIGURE_PATHS)
    assert first[junction_of(first, [second])] == ids("D45342")[0]
    assert second[junction_of(second, [first])] == ids("D45342")[0]


def test_t2_the_tree_of_the_figure_has_seven_nodes_and_six_links() -> None:
    paths = [ids(*path) for path in FIGURE_PATHS]
    assert len({node for path in paths for node in path}) == 7
    assert len({link for path in paths for link in pairwise(path)}) == 6


def test_t2_a_join_operator_lies_on_the_junction_or_later() -> None:
    paths = tuple(ids(*path) for path in FIGURE_PATHS)
    stages = (
        StageDemand(0, "left", 1, paths[0][0]),
        StageDemand(1, "right", 1, paths[1][0]),
        StageDemand(2, "parse-left"),
        StageDemand(3, "join"),
        StageDemand(4, "sink", 1, paths[0][-1]),
    )
    hosts = {node: HostState(node) for path in paths for node in path}
    request = PlacementRequest(stages, ((0, 2), (2, 3), (1, 3), (3, 4)), paths, hosts)
    placement = AlongPath().place(request)
    assert placement.nodes[2, 0] == ids("D4A8A1")[0]
    assert placement.nodes[3, 0] in ids("D45342", "D45A55", "D45A35", "D45A3C")


def test_host_list_leaves_out_the_source_unless_it_is_the_only_host() -> None:
    path = ids("1", "2", "3")
    assert host_list(path) == path[1:]
    assert host_list(path[:1]) == path[:1]


def test_t3_balance_rule_keeps_almost_all_nodes_below_three_operators() -> None:
    """Section 5, rule 3, at a tenth of the size (1,000 nodes, 50 applications of 2–18 operators): ≥ .9785 below 3."""
    random = RandomStream(1, "t3")
    nodes = sorted(NodeId(random.bits(128)) for _ in range(1000))
    held = dict.fromkeys(nodes, 0)

    def leaves(position: int) -> tuple[NodeId, ...]:
        return tuple(nodes[(position + step) % len(nodes)] for i in range(1, 13) for step in (i, -i))

    for _ in range(50):
        operators = 2 + random.index(17)
        positions = [random.index(len(nodes)) for _ in range(4)]
        path = tuple(nodes[p] for p in positions)
        near = sorted({p for position in positions for p in [position]})
        hosts = {}
        for position in near:
            node = nodes[position]
            hosts[node] = HostState(node, held[node], candidates=leaves(position))
            for leaf in leaves(position):
                hosts.setdefault(leaf, HostState(leaf, held[leaf]))
        stages = (
            StageDemand(0, "source", 1, path[0]),
            *(StageDemand(j, "o") for j in range(1, operators + 1)),
            StageDemand(operators + 1, "sink", 1, path[-1]),
        )
        edges = tuple((j, j + 1) for j in range(operators + 1))
        placement = AlongPath().place(PlacementRequest(stages, edges, (path,), hosts))
        for (stage, _index), node in placement.nodes.items():
            if 0 < stage <= operators:
                held[node] += 1
    assert sum(count < 3 for count in held.values()) / len(nodes) >= 0.9785
    assert max(held.values()) <= 3


def test_rule_3_prefers_the_leaf_set_and_its_least_loaded_node() -> None:
    path = ids("1", "2", "3")
    leaves, neighbours = ids("21", "22"), ids("31", "32")
    stages = (StageDemand(0, "source", 1, path[0]), StageDemand(1, "o"), StageDemand(2, "sink", 1, path[-1]))

    def place(**held: int) -> tuple[NodeId, tuple[str, ...]]:
        nodes = {name: NodeId.from_hex(name.strip("n")) for name in held}
        hosts = {node: HostState(node) for node in path + leaves + neighbours}
        hosts |= {nodes[name]: HostState(nodes[name], count) for name, count in held.items()}
        hosts[path[1]] = HostState(path[1], held.get("n2", 2), candidates=leaves, neighbours=neighbours)
        placement = AlongPath().place(PlacementRequest(stages, ((0, 1), (1, 2)), (path,), hosts))
        return placement.nodes[1, 0], placement.relaxed

    assert place(n2=1) == (path[1], ())
    assert place(n2=2, n21=1) == (leaves[1], ())
    assert place(n2=2, n21=1, n22=1) == (leaves[0], ())
    assert place(n2=2, n21=2, n22=2) == (neighbours[0], ())
    assert place(n2=2, n21=2, n22=2, n31=3, n32=2) == (path[1], ("same application", "balance"))


def test_machines_with_more_cores_overflow_later_and_take_more_overflow() -> None:
    """Places stand for the logical nodes of [AgileDART] §IV, ⌊log₂ cores⌋ of a machine."""
    path, leaf = ids("1", "2", "3"), ids("21", "22", "23")
    busy: dict[str, Any] = {"candidates": leaf, "operators": 2}
    request = PlacementRequest(
        (StageDemand(0, "source", 1, path[0]), StageDemand(1, "o", 1), StageDemand(2, "sink", 1, path[2])),
        ((0, 1), (1, 2)),
        (path,),
        {
            path[0]: HostState(path[0]),
            path[1]: HostState(path[1], **busy),
            path[2]: HostState(path[2], candidates=leaf, operators=2),
            leaf[0]: HostState(leaf[0], operators=1),
            leaf[1]: HostState(leaf[1], operators=1, places=2),
            leaf[2]: HostState(leaf[2], operators=2, places=3),
        },
    )
    assert AlongPath().place(request).nodes[1, 0] == leaf[1], (
        "1 operator with one more on two places; equal at three: the nearer"
    )
    strong = dict(request.hosts) | {path[1]: HostState(path[1], places=2, **busy)}
    assert AlongPath().place(replace(request, hosts=strong)).nodes[1, 0] == path[1], "its share is four"
