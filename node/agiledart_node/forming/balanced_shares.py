"""Shares of instances by cores: a machine with more cores counts for several nodes of the ring, and takes so many times as many.

Source: [AgileDART] §IV, logical nodes by cores; the project's overlay specification §7.
"""

from collections import Counter

from agiledart_kernel.node_id import NodeId
from agiledart_node.forming.surveyor import Loads
from agiledart_overlay.tables.virtual_nodes import ring_places


def places_of(loads: Loads) -> dict[NodeId, int]:
    """Return for how many nodes of the ring each node counts. Agents of one machine share its cores, and its places."""
    agents = Counter(peer.host for peer, _ in loads.values() if peer.host)
    return {node: ring_places(load.cores, agents[peer.host] or 1) for node, (peer, load) in loads.items()}


def balanced_shares(loads: Loads, max_ops_balanced: int) -> dict[NodeId, int]:
    """Return the instances of all applications from which on each node counts as full.

    Args:
        loads: reports of the nodes.
        max_ops_balanced: of a node that counts once.
    """
    return {node: max_ops_balanced * places for node, places in places_of(loads).items()}
