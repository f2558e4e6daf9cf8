"""Clocks of other nodes compared with this node's, and the skewed ones: those that differ from most.

Certificates, grants, signed commands and event times use wall clocks. This node compares the clocks of nodes that answer it with
the median of all clocks, its own included. So a node with a wrong clock notices that, and does not blame the others. Of two clocks
that differ neither can be called right; then this node trusts its own.
"""

from collections.abc import Iterator
from typing import Final

from agiledart_kernel.clocks import NAMED_MS, describe_difference, difference_ms
from agiledart_kernel.grants import SKEW_SECONDS
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

MAX_CLOCKS: Final = 512
"""Nodes whose clocks are remembered; the oldest measurement is dropped first."""

MAX_SKEW_MS: Final = SKEW_SECONDS * 1_000
"""Clock skew above which a node gets no work: other nodes would consider its grants not yet valid."""


class PeerClocks:
    """Measured clocks of a node and its peers; milliseconds.

    Args:
        me: this node.
    """

    def __init__(self, me: Peer) -> None:
        self._me = me
        self._measured: dict[NodeId, tuple[Peer, int]] = {}

    def add_measurement(self, peer: Peer, asked_ms: int, theirs_ms: int, received_ms: int) -> None:
        """Record a peer's clock from its answer; arguments as of `difference_ms`."""
        difference = difference_ms(asked_ms, theirs_ms, received_ms)
        if difference is None or peer.node == self._me.node:
            return
        self._measured.pop(peer.node, None)
        if len(self._measured) >= MAX_CLOCKS:
            del self._measured[next(iter(self._measured))]
        self._measured[peer.node] = (peer, difference)

    def forget(self, node: NodeId) -> None:
        """Drop the measurement of a peer that is gone."""
        self._measured.pop(node, None)

    def forget_all(self) -> None:
        """Drop all measurements, because this node's clock was set."""
        self._measured.clear()

    @property
    def _right(self) -> int:
        """Lead of the median of all clocks over this node's; of the two in the middle the one nearer to it."""
        differences = sorted([0, *(difference for _, difference in self._measured.values())])
        middle = len(differences) // 2
        return differences[middle] if len(differences) % 2 else min(differences[middle - 1 : middle + 1], key=abs)

    def skew_ms(self, node: NodeId) -> int | None:
        """Return the lead of a node's clock over most others; None when it was not measured."""
        if node == self._me.node:
            return -self._right
        known = self._measured.get(node)
        return None if known is None else known[1] - self._right

    def is_skewed(self, node: NodeId) -> bool:
        """Return whether a node's clock is so wrong that the node should get no work."""
        return abs(self.skew_ms(node) or 0) > MAX_SKEW_MS

    def common_ms(self, wall_ms: int) -> int:
        """Return the majority's time when this node's clock is too far off for others to accept; otherwise its own time."""
        right = self._right
        return wall_ms + right if wall_ms and abs(right) > MAX_SKEW_MS else wall_ms

    def describe_difference(self, node: NodeId) -> str:
        """Return a text about this node's wrong clock, for people; empty: the clock is right, or was not measured."""
        off = self.skew_ms(node) or 0
        peer = self._me if node == self._me.node else self._measured[node][0] if off else self._me
        return f"clock of {peer.name or peer.node.short} is {describe_difference(off)}" if abs(off) > NAMED_MS else ""

    def skewed_clocks(self) -> Iterator[str]:
        """Yield `describe_difference` of all skewed clocks, this node's first."""
        for node in (self._me.node, *sorted(self._measured)):
            if text := self.describe_difference(node):
                yield text
