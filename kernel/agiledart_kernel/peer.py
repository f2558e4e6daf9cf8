"""`Peer`: what one node knows about how to reach another (Pastry's node handle)."""

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.node_id import NodeId


class Peer(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node's id, incarnation and addresses.

    Args:
        node: position on the ring, derived from the node's public key.
        incarnation: grows at every start of the node; a higher one replaces a lower one.
        name: for people; not unique, never used in decisions.
        address: `host:port` of its agent's TLS port; empty in simulations.
        zone: failure and latency zone.
        host: physical machine; replicas go to different machines. Empty: unknown.
    """

    node: NodeId
    incarnation: Count = 0
    name: str = ""
    address: str = ""
    zone: str = ""
    host: str = ""

    @property
    def incarnation_key(self) -> tuple[NodeId, int]:
        """Identity of this incarnation of the node."""
        return self.node, self.incarnation
