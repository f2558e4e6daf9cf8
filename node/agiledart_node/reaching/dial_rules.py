"""Rules about dials: addresses that may be dialled, relays for a node that only dials out, members that test a node."""

from collections.abc import Collection, Iterable
from ipaddress import ip_address

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import MAX_RESERVED_RELAYS, Reachability

MAX_TESTERS = 2
"""Members that dial a node back to find out whether it is open."""


def is_private(host: str) -> bool:
    """Report whether this address leads to different machines in different networks; a name does not."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False


def may_dial(peer: Peer, mine: Reachability, *, is_proven: bool) -> bool:
    """Report whether the address of a peer may be dialled.

    A private address behind a router is another machine in other networks, whose owners report the dials as a scan.

    Args:
        mine: reachability of this node.
        is_proven: this address has led to this peer from here.
    """
    reach = peer.reach
    if not reach.holders or is_proven or not is_private(host_of(peer.address)):
        return True
    return bool(mine.outside) and mine.outside == reach.outside


def dial_candidates(peer: Peer, mine: Reachability, *, is_proven: bool) -> tuple[str, ...]:
    """Return the addresses of a peer that may be dialled, the usual one first. Arguments as of `may_dial`."""
    is_near = bool(mine.outside) and mine.outside == peer.reach.outside
    usual = (peer.address,) if may_dial(peer, mine, is_proven=is_proven) else ()
    return *usual, *(address for address in peer.reach.addresses if is_near or not is_private(host_of(address)))


def choose_relays(candidates: Iterable[Peer], held: Collection[NodeId], zone: str) -> list[Peer]:
    """Return the members at which a node should ask for a reservation, the best first.

    Args:
        candidates: members that this node reaches by a dial, the nearest first.
        held: relays that it has.
        zone: its own.
    """
    usable = [peer for peer in candidates if not peer.reach.holders and peer.node not in held]
    zones = {peer.zone for peer in candidates if peer.node in held}
    ranked = sorted(usable, key=lambda peer: (not peer.reach.is_open, peer.zone in zones, peer.zone != zone))
    return ranked if len(held) < MAX_RESERVED_RELAYS else []


def choose_testers(candidates: Iterable[Peer], mine: Reachability) -> list[Peer]:
    """Return members that can find out by a dial whether this node is open: open ones in other networks, if there are any.

    Args:
        candidates: members to which this node has links, the nearest first.
    """
    testers = [peer for peer in candidates if not peer.reach.holders and not _is_in(peer, mine.outside)]
    return sorted(testers, key=lambda peer: not peer.reach.is_open)[:MAX_TESTERS]


def _is_in(peer: Peer, outside: str) -> bool:
    return bool(outside) and outside in (peer.reach.outside, host_of(peer.address))


def host_of(address: str) -> str:
    """Return the host of HOST:PORT or [IPv6]:PORT."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")
