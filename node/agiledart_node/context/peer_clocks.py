"""The clocks of other nodes beside this one's, and whose is wrong: the one that differs from most.

Certificates, grants, orders and event times go by wall clocks. The nodes that this one hears of are compared with the median of all
clocks, its own included: so a node whose own clock is wrong sees that it is, and does not blame the others. Of two clocks that
differ nobody can say which one is right; then the own counts.
"""

from collections.abc import Iterator
from typing import Final

from agiledart_kernel.clocks import NAMED_MS, describe_difference, difference_ms
from agiledart_kernel.grants import SKEW_SECONDS
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

MAX_CLOCKS: Final = 512
"""Nodes whose clocks are remembered; the one measured longest ago goes first."""

MAX_SKEW_MS: Final = SKEW_SECONDS * 1_000
"""With a clock further off than this a node gets no work: others would take its grants for ones that begin only later."""


class PeerClocks:
    """What is known of the clocks of a node and its peers; milliseconds.

    Args:
        me: this node.
    """

    def __init__(self, me: Peer) -> None:
        self._me = me
        self._measured: dict[NodeId, tuple[Peer, int]] = {}

    def measured(self, peer: Peer, asked_ms: int, theirs_ms: int, received_ms: int) -> None:
        """An answer said what a peer's clock showed; arguments as of `difference_ms`."""
        difference = difference_ms(asked_ms, theirs_ms, received_ms)
        if difference is None or peer.node == self._me.node:
            return
        self._measured.pop(peer.node, None)
        if len(self._measured) >= MAX_CLOCKS:
            del self._measured[next(iter(self._measured))]
        self._measured[peer.node] = (peer, difference)

    def forget(self, node: NodeId) -> None:
        """A peer is gone."""
        self._measured.pop(node, None)

    def forget_all(self) -> None:
        """The own clock was set: nothing that was measured by it counts."""
        self._measured.clear()

    @property
    def _right(self) -> int:
        """By how much the median of all clocks is ahead of this node's; of the two in the middle the one nearer to it."""
        found = sorted([0, *(difference for _, difference in self._measured.values())])
        middle = len(found) // 2
        return found[middle] if len(found) % 2 else min(found[middle - 1 : middle + 1], key=abs)

    def skew_ms(self, node: NodeId) -> int | None:
        """By how much the clock of a node, or this one's, is ahead of most; None when it was not measured."""
        if node == self._me.node:
            return -self._right
        known = self._measured.get(node)
        return None if known is None else known[1] - self._right

    def is_skewed(self, node: NodeId) -> bool:
        """Is its clock so wrong that it should get no work?"""
        return abs(self.skew_ms(node) or 0) > MAX_SKEW_MS

    def common_ms(self, wall_ms: int) -> int:
        """What this node's clock should show when it shows this: corrected only when it is too far off for others to believe."""
        right = self._right
        return wall_ms + right if wall_ms and abs(right) > MAX_SKEW_MS else wall_ms

    def describe_difference(self, node: NodeId) -> str:
        """That the clock of this node is wrong, for people; empty: it is right, or was not measured."""
        off = self.skew_ms(node) or 0
        peer = self._me if node == self._me.node else self._measured[node][0] if off else self._me
        return f"clock of {peer.name or peer.node.short} is {describe_difference(off)}" if abs(off) > NAMED_MS else ""

    def wrong(self) -> Iterator[str]:
        """`told` of all that are wrong, this node first."""
        for node in (self._me.node, *sorted(self._measured)):
            if text := self.describe_difference(node):
                yield text
