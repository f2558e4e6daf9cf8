"""Whether the members of a ring can still work together, whatever single links are cut or held.

Safety is promised of a network in which any two members reach each other, if need be through others (decision 0010). A nemesis
that stops links one by one may part the members all the same; then each part goes on alone, as in a partition, and must be
allowed to.
"""

from collections.abc import Callable, Sequence

from agiledart_kernel.node_id import NodeId


def is_connected(nodes: Sequence[NodeId], is_open: Callable[[NodeId, NodeId], bool]) -> bool:
    """Whether links that are open in both directions lead from each of these nodes to all others."""
    if not nodes:
        return True
    found, unseen = [nodes[0]], dict.fromkeys(nodes[1:])
    for node in found:
        near = [other for other in unseen if is_open(node, other)]
        for other in near:
            del unseen[other]
        found.extend(near)
    return not unseen
