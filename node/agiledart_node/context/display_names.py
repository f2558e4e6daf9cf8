"""Names of nodes for people."""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer


def display_names(nodes: tuple[Peer, ...]) -> dict[NodeId, str]:
    """Map node ids to names for people: the name alone, or with the first digits of the id where two nodes share it."""
    counts: dict[str, int] = {}
    distinct = {node.node: node for node in nodes}
    for node in distinct.values():
        counts[node.name] = counts.get(node.name, 0) + 1
    return {
        key: node.name if node.name and counts[node.name] == 1 else f"{node.name or 'node'}-{key.short}"
        for key, node in distinct.items()
    }
