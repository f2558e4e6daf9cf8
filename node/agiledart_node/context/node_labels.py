"""Labels of nodes, from their last reports. A node's labels change only when its process begins anew."""

from collections.abc import Iterable
from typing import Final

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer

MAX_NODES: Final = 1_024
"""Nodes whose labels are remembered; the oldest report goes first."""


class NodeLabels:
    """Labels by node."""

    def __init__(self) -> None:
        self._known: dict[NodeId, tuple[int, tuple[str, ...]]] = {}

    def report(self, peer: Peer, labels: tuple[str, ...]) -> None:
        """Note the labels that a node reports."""
        self._known.pop(peer.node, None)
        self._known[peer.node] = peer.incarnation, labels
        while len(self._known) > MAX_NODES:
            del self._known[next(iter(self._known))]

    def of(self, peer: Peer) -> tuple[str, ...] | None:
        """Return the labels of a node; None: this process of it has not reported yet."""
        incarnation, labels = self._known.get(peer.node, (0, ()))
        return labels if peer.node in self._known and incarnation >= peer.incarnation else None

    def unknown(self, peers: Iterable[Peer]) -> list[Peer]:
        """Return the nodes that have not reported."""
        return [peer for peer in peers if self.of(peer) is None]
