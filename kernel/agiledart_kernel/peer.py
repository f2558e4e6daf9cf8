"""`Peer`: name, addresses and reachability of a node, as another one knows them (Pastry's node handle)."""

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.reachability import UNKNOWN_REACHABILITY, Reachability


class Peer(msgspec.Struct, frozen=True, gc=False, array_like=True, eq=False):
    """A node's id, incarnation and addresses. Two are equal when all but `reach` is, which changes while the node runs.

    Args:
        node: position on the ring, derived from the node's public key.
        incarnation: grows at every start of the node; a higher one replaces a lower one.
        name: for people; not unique, never used in decisions.
        address: `host:port` of its agent's TLS port; empty in simulations.
        zone: failure and latency zone.
        host: physical machine; replicas go to different machines. Empty: unknown.
        reach: how it is reached now.
    """

    node: NodeId
    incarnation: Count = 0
    name: str = ""
    address: str = ""
    zone: str = ""
    host: str = ""
    reach: Reachability = UNKNOWN_REACHABILITY

    def __eq__(self, other: object) -> bool:
        """Compare all fields but `reach`."""
        return self is other or (isinstance(other, Peer) and self._described == other._described)

    def __ne__(self, other: object) -> bool:  # msgspec's own would compare identities
        return not self == other

    def __hash__(self) -> int:
        return hash((self.node, self.incarnation))

    @property
    def _described(self) -> tuple[object, ...]:
        return self.node, self.incarnation, self.name, self.address, self.zone, self.host

    def with_reach(self, reach: Reachability, address: str = "") -> "Peer":
        """Return this node with this reachability and address ("": as before), unless it is older than the present one."""
        if reach.revision <= self.reach.revision:
            return self
        return msgspec.structs.replace(self, reach=reach, address=address or self.address)

    @property
    def incarnation_key(self) -> tuple[NodeId, int]:
        """Identity of this incarnation of the node."""
        return self.node, self.incarnation
