"""Arithmetic of arcs, exhaustively on a small ring."""

from itertools import permutations

import pytest

from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_overlay.tables.arc import arc_between, is_between, keys_after, keys_before

BITS = 4
MASK = (1 << BITS) - 1


@pytest.mark.parametrize(
    "nodes", [(3,), (0, 8), (0, 7), (15, 0), (1, 2, 3), (0, 5, 10), (2, 6, 7, 13), tuple(range(16))]
)
def test_neighbours_divide_every_key_by_distance_then_id(nodes: tuple[int, ...]) -> None:
    count = len(nodes)
    for key in range(MASK + 1):
        want = min(nodes, key=lambda node: (ring_distance(node, key, BITS), node))
        owners = [
            node
            for index, node in enumerate(nodes)
            if arc_between(nodes[index - 1], node, nodes[(index + 1) % count], MASK).holds(key, MASK)
        ]
        assert owners == [want], key


def test_both_ends_of_a_key_range_agree() -> None:
    for left, right in permutations(range(MASK + 1), 2):
        clockwise_distance = (right - left) & MASK
        assert keys_after(left, right, MASK) + keys_before(left, right, MASK) == clockwise_distance
        assert keys_after(left, right, MASK) >= 1, "its own id at least"


def test_between_handles_wrap_around() -> None:
    assert is_between(14, 1, 3, MASK)
    assert not is_between(14, 14, 3, MASK)
    assert not is_between(14, 3, 3, MASK)
    assert is_between(5, 4, 5, MASK), "one node alone: everybody else lies between it and itself"
    assert not is_between(5, 5, 5, MASK)
    assert arc_between(NodeId(5), NodeId(5), NodeId(5), MASK).length == MASK + 1
