"""Number of ring nodes that one machine runs, and choice of nodes on distinct machines.

A strong machine takes several places in the ring and so a larger share of keys and operators. Its nodes are one failure domain,
so copies of one item go to different machines wherever there are enough.

Source: [AgileDART] §IV (logical nodes by cores); the project's overlay specification §7.
"""

from collections.abc import Iterable

from agiledart_kernel.peer import Peer

MOST_NODES = 3
"""Nodes of the ring for which one machine counts at most, so that not too much is lost with it."""

UNIT_CORES = 1
UNIT_MEMORY_MB = 512
UNIT_BANDWIDTH_MBIT = 10
"""One share: the need of a single node for each resource."""


def virtual_nodes(cores: int, memory_mb: int | None = None, bandwidth_mbit: int | None = None) -> int:
    """Return the nodes that a machine should run: max(1, ⌊log₂(shares of the scarcest resource)⌋). None: no limit by that resource.

    Source: the project's overlay specification §7; cores 1, 2, 4, 8, 16 make 1, 1, 2, 3, 4.
    """
    shares = cores // UNIT_CORES
    if memory_mb is not None:
        shares = min(shares, memory_mb // UNIT_MEMORY_MB)
    if bandwidth_mbit is not None:
        shares = min(shares, bandwidth_mbit // UNIT_BANDWIDTH_MBIT)
    return max(1, shares.bit_length() - 1)


def ring_places(cores: int, agents: int = 1) -> int:
    """Return for how many nodes of the ring each of a machine's agents counts: at least 1, at most `MOST_NODES`.

    Args:
        cores: of the machine, as far as its agents count them as their own; 0: not known.
        agents: of the machine; each of them is a node of the ring already.
    """
    return max(1, min(MOST_NODES, virtual_nodes(cores)) // agents)


def on_distinct_hosts(own_host: str, ranked: Iterable[Peer], count: int) -> tuple[Peer, ...]:
    """Return `count` peers in the given order, each on its own machine and none on the owner's, wherever there are enough.

    Peers that were passed over fill the rest, in their order. An empty host is unknown: it counts as different from all others.
    """
    chosen: list[Peer] = []
    passed_over: list[Peer] = []
    hosts = {own_host: None} if own_host else {}
    for peer in ranked:
        if peer.host and peer.host in hosts:
            passed_over.append(peer)
            continue
        chosen.append(peer)
        if len(chosen) == count:
            return tuple(chosen)
        if peer.host:
            hosts[peer.host] = None
    return (*chosen, *passed_over[: count - len(chosen)])
