"""Rules about punching: when two nodes behind routers try to open a direct connection, and to which addresses.

Both connect at one moment from a port whose outside address the other knows. Routers that keep ports then let the
packets of the other pass as answers. Source: Ford, Srisuresh, Kegel 2005.
"""

from typing import TypeVar

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability
from agiledart_node.reaching.dial_rules import host_of, is_private

T = TypeVar("T")
TRIES = 3
"""Attempts of one punch, in both directions at one moment each."""

AGAIN_NS = 3_600 * SECOND
"""Time after a failed punch before the next with the same peer, while both keep their outside addresses."""

ANSWER_NS = 10 * SECOND
"""Time after a punch for a peer before another is answered."""

MAX_PEERS = 1_024
FIRST_PORT = 1_024


def is_punchable(address: str) -> bool:
    """Report whether an outside address of a peer may be dialled: a public one, and no port of a well-known service."""
    port = address.rpartition(":")[2]
    return port.isdecimal() and FIRST_PORT <= int(port) < 1 << 16 and not is_private(host_of(address))


class PunchRules:
    """Decisions of a node about punching: its time and its peer. Of two nodes, the one with the smaller id asks.

    Args:
        me: this node.
    """

    def __init__(self, me: NodeId) -> None:
        self._me = me
        self._failed: dict[NodeId, tuple[int, str, str]] = {}  # peer → time, own and its outside host
        self._answered: dict[NodeId, int] = {}

    def is_due(self, peer: Peer, mine: Reachability, now_ns: int) -> bool:
        """Report whether to punch for a link to a peer: both only dial out, from different networks."""
        if (
            self._me > peer.node
            or not (mine.holders and mine.outside and peer.reach.holders)
            or mine.outside == peer.reach.outside
        ):
            return False
        failed_ns, own, its = self._failed.get(peer.node, (-AGAIN_NS, "", ""))
        return now_ns - failed_ns >= AGAIN_NS or (own, its) != (mine.outside, peer.reach.outside)

    def failed(self, peer: Peer, mine: Reachability, now_ns: int) -> None:
        """Note a punch that has opened nothing, or one that has begun."""
        _note(self._failed, peer.node, (now_ns, mine.outside, peer.reach.outside))

    def worked(self, node: NodeId) -> None:
        """Note a punch that has opened a connection."""
        self._failed.pop(node, None)

    def may_answer(self, node: NodeId, now_ns: int) -> bool:
        """Report whether a peer's request is answered now: not too often."""
        if now_ns - self._answered.get(node, -ANSWER_NS) < ANSWER_NS:
            return False
        _note(self._answered, node, now_ns)
        return True


def _note(table: dict[NodeId, T], node: NodeId, value: T) -> None:
    table.pop(node, None)
    if len(table) >= MAX_PEERS:
        del table[next(iter(table))]
    table[node] = value
