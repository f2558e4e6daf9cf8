"""Chains and fat graphs on equal nodes with random delays: the scalability experiments of Cardellini et al.

Source: spec of placement §2, table 2 of the paper. A fat graph is source → n − 2 parallel operators → sink, which reproduces the
printed numbers of variables.
"""

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import NETWORK_FORMAT, NetworkDescription, read_network
from agiledart_placement.files.topology_file import TOPOLOGY_FORMAT, TopologyDescription, read_topology
from agiledart_placement.instances.tag_and_count import normal

CHAIN, FAT = "chain", "fat"
EXECUTION_MS = 1_000.0


def equal_nodes(count: int, capacity: int, seed: int) -> NetworkDescription:
    """Return nodes whose delays are max(N(22, 5), 1) ms, equal in both directions."""
    draw = RandomStream(seed, "random_delays", count)
    document = {
        "format": NETWORK_FORMAT,
        "nodes": [{"name": f"n{n}", "capacity": {"slots": capacity}} for n in range(count)],
        "links": [
            {"from": f"n{a}", "to": f"n{b}", "delay_ms": max(1.0, normal(draw, 22, 5))}
            for a in range(count)
            for b in range(a)
        ],
    }
    return read_network(document, f"{count} nodes")


def unit_operators(kind: str, count: int, nodes: int, share: float = 1.0, seed: int = 1) -> TopologyDescription:
    """Return a chain or a fat graph of operators that take 1 s and one slot each.

    Args:
        kind: `chain` or `fat`.
        count: number of operators.
        nodes: nodes of the network, n0 …
        share: share of the nodes that each operator may use, drawn at random.
        seed: of the draw.
    """
    draw = RandomStream(seed, "candidates", kind, count)
    names = [f"o{n}" for n in range(count)]
    pairs = [(n, n + 1) for n in range(count - 1)]
    if kind == FAT:
        pairs = [(0, n) for n in range(1, count - 1)] + [(n, count - 1) for n in range(1, count - 1)]
    operators = []
    for name in names:
        chosen = [f"n{n}" for n in range(nodes)]
        draw.shuffle(chosen)
        few = sorted(chosen[: max(1, round(share * nodes))])
        operators.append({"name": name, "execution_ms": EXECUTION_MS, **({"on": few} if share < 1 else {})})
    document = {
        "format": TOPOLOGY_FORMAT,
        "name": f"{kind} {count}",
        "operators": operators,
        "streams": [{"from": names[a], "to": names[b], "rate": 1} for a, b in pairs],
    }
    return read_topology(document, kind)
