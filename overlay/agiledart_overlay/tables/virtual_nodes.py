"""How many nodes of the ring one machine is, and that two of them on one machine are one failure domain.

A strong machine takes several places in the ring and so a larger share of keys and operators. Its nodes die together, so copies of
one thing go to different machines wherever there are enough.

Source: [AgileDART] §IV (logical nodes by cores); the project's overlay specification §7.
"""

from collections.abc import Iterable

from agiledart_kernel.peer import Peer

UNIT_CORES = 1
UNIT_MEMORY_MB = 512
UNIT_BANDWIDTH_MBIT = 10
"""One share: what a single node needs of each resource."""


def virtual_nodes(cores: int, memory_mb: int | None = None, bandwidth_mbit: int | None = None) -> int:
    """Nodes that a machine should run: max(1, ⌊log₂(shares of the scarcest resource)⌋). None: not limited by that one.

    Source: the project's overlay specification §7; cores 1, 2, 4, 8, 16 make 1, 1, 2, 3, 4.
    """
    shares = cores // UNIT_CORES
    if memory_mb is not None:
        shares = min(shares, memory_mb // UNIT_MEMORY_MB)
    if bandwidth_mbit is not None:
        shares = min(shares, bandwidth_mbit // UNIT_BANDWIDTH_MBIT)
    return max(1, shares.bit_length() - 1)


def on_distinct_hosts(own_host: str, ranked: Iterable[Peer], count: int) -> tuple[Peer, ...]:
    """So many peers, in the given order, each on a machine of its own and none on the owner's, wherever there are enough.

    What is missing is filled up with those passed over, in their order. An empty host is not known: it counts as different from
    all others.
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
