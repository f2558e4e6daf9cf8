"""Placement of a snapshot's fragments on replica nodes. Pure functions.

Replica nodes are on distinct physical hosts, none of them the owner's: a machine that dies takes at most one fragment with it,
and never the owner and a fragment together. Where there are fewer hosts than n, k is reduced first, then m: fewer, larger
fragments. Where there is no other host at all (a mesh on one machine), other nodes of this one are better than none: they
survive an agent's death, though not the machine's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.survival import Survival, survival_of


@dataclass(frozen=True, slots=True)
class FragmentPlacement:
    """Cut and placement of a snapshot; `replica_nodes[i]` gets fragment i.

    Args:
        wanted: the requested n; fewer replica nodes are worth a warning.
    """

    m: int
    replica_nodes: tuple[NodeId, ...]
    wanted: int

    @property
    def survives(self) -> int:
        """Return how many of the replica nodes may be lost."""
        return len(self.replica_nodes) - self.m


def host_of(peer: Peer) -> str:
    """Return the physical machine of a peer; a node that names none counts as its own machine."""
    return peer.host or peer.node.hex


def distinct_hosts(owner: Peer, candidates: Sequence[Peer]) -> list[Peer]:
    """Return the first candidate on each host, without the owner's; all other nodes where there is no other host."""
    by_host: dict[str, Peer] = {}
    for peer in candidates:
        if host_of(peer) != host_of(owner) and peer.node != owner.node:
            by_host.setdefault(host_of(peer), peer)
    return list(by_host.values()) or [peer for peer in candidates if peer.node != owner.node]


def spread(owner: Peer, candidates: Sequence[Peer], length: int, m: int, k: int) -> FragmentPlacement:
    """Return the replica nodes for a snapshot of this many bytes.

    Args:
        candidates: by preference: the neighbourhood set by cost, then the leaf set.
        m, k: requested; state of at most `SMALL_STATE_BYTES` takes m = 1, so that each of 1 + k fragments is a copy.
    """
    others = distinct_hosts(owner, candidates)
    if survival_of(length, len(others), has_state=True) is Survival.COPIED:
        m = 1
    hosts = others[: m + k]
    return FragmentPlacement(max(1, min(m, len(hosts) - 1)), tuple(peer.node for peer in hosts), m + k)


def replacements(
    owner: Peer, replica_nodes: Sequence[NodeId], gone: Sequence[NodeId], candidates: Sequence[Peer]
) -> dict[int, NodeId]:
    """Return new replica nodes for lost fragments: index → node; an index without a remaining candidate is missing."""
    stay = [node for node in replica_nodes if node and node not in gone]
    known = {peer.node: host_of(peer) for peer in candidates}
    taken = [host for node in stay if (host := known.get(node, node.hex)) != host_of(owner)]
    free = [
        peer
        for peer in distinct_hosts(owner, candidates)
        if peer.node not in stay and peer.node not in gone and host_of(peer) not in taken
    ]
    lacking = [index for index, node in enumerate(replica_nodes) if not node or node in gone]
    return {index: peer.node for index, peer in zip(lacking, free, strict=False)}
