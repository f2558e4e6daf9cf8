"""The walk of the checker of routes does what the router would do."""

from collections.abc import Container
from typing import Any

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_simulation.checkers.routing import walk

KEY = NodeId(9)


class Stub:
    """A node with hops in order of preference, of which some are leaves."""

    def __init__(self, hops: list[int], leaves: list[int]) -> None:
        self.hops, self.leaf_set = hops, [NodeId(leaf) for leaf in leaves]

    def next_hop(self, _key: NodeId, avoid: Container[NodeId] = ()) -> Peer | None:
        return next((Peer(NodeId(hop), 1) for hop in self.hops if hop not in avoid), None)


def walked(nodes: dict[int, Stub]) -> list[int]:
    machines: Any = {NodeId(node): stub for node, stub in nodes.items()}
    return [int(node) for node in walk(machines, NodeId(1), KEY)]


def test_a_dead_table_entry_is_skipped() -> None:
    assert walked({1: Stub([5, 8], []), 8: Stub([], [])}) == [1, 8]


def test_a_dead_leaf_ends_the_walk() -> None:
    assert walked({1: Stub([5, 8], [5]), 8: Stub([], [])}) == [1, 5]


def test_a_routing_loop_ends() -> None:
    assert len(walked({1: Stub([8], []), 8: Stub([1], [])})) > 60
