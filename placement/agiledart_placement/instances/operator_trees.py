"""Trees of operators with pinned sources and sink: the experiments of Rizou et al.

Source: spec of placement §4. Every operator has two or three children: a small tree is a sink, two operators, three sources; a
large one a sink, four or five operators, seven or six sources.
"""

from dataclasses import dataclass

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology

SMALL, LARGE = 6, 12


@dataclass(frozen=True, slots=True)
class OperatorTree:
    """Tree of operators; vertex 0 is the sink.

    Attributes:
        parent: by vertex; -1 for the sink.
        is_source: by vertex.
        nodes: name of the node of the sink and of each source; empty for operators.
        selectivity: by vertex.
    """

    parent: tuple[int, ...]
    is_source: tuple[bool, ...]
    nodes: tuple[str, ...]
    selectivity: tuple[float, ...]


def operator_tree(size: int, nodes: int, draw: RandomStream) -> OperatorTree:
    """Return a random tree of `size` vertices, its ends pinned to different ones of the nodes n0 …"""
    parent, children = [-1], [0]
    operators = [0]  # vertices that have children or may get some: the sink has one child, operators two or three
    inner = 2 if size == SMALL else 4 + draw.index(2)
    for _ in range(inner):
        open_operators = [v for v in operators[1:] if children[v] < 2]
        above = 0 if children[0] == 0 else draw.choice(open_operators)
        children[above] += 1
        parent.append(above)
        children.append(0)
        operators.append(len(parent) - 1)
    while len(parent) < size:
        lacking = [v for v in operators[1:] if children[v] < 2] or [v for v in operators[1:] if children[v] < 3]
        above = draw.choice(lacking)
        children[above] += 1
        parent.append(above)
        children.append(0)
    numbers = list(range(nodes))
    draw.shuffle(numbers)
    ends = iter(numbers)
    is_source = tuple(v not in operators for v in range(size))
    places = tuple(f"n{next(ends)}" if v == 0 or is_source[v] else "" for v in range(size))
    return OperatorTree(tuple(parent), is_source, places, tuple(draw.uniform() for _ in range(size)))


def tree_topology(tree: OperatorTree, draw: RandomStream) -> TopologyDescription:
    """Return the tree with source rates U(100, 200) and selectivities U(0, 1), in rows of one byte."""
    size = len(tree.parent)
    document = {
        "format": TOPOLOGY_FORMAT,
        "name": "tree",
        "operators": [
            {
                "name": f"v{v}",
                **({"on": [tree.nodes[v]]} if tree.nodes[v] else {"selectivity": tree.selectivity[v]}),
                **({"rate": draw.between(100, 200)} if tree.is_source[v] else {}),
            }
            for v in range(size)
        ],
        "streams": [{"from": f"v{v}", "to": f"v{tree.parent[v]}"} for v in range(1, size)],
    }
    return read_topology(document, "tree")
