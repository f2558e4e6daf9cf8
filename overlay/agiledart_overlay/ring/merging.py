"""Merging of two rings: after a partition, or when two nodes created one at once.

In one ring no member lies between two agreed neighbours, except for a moment. So a member that is met there (`repair` keeps
trying lost peers and seeds) and stays there for `merge_after` is in another ring, and one of the two rings must dissolve:
    1. the much smaller ring (a quarter or less, by estimates of both sides);
    2. else the one with the smaller name. Every ring has a name, inherited from its creator with the admission and passed on
    between agreed neighbours only; of two names in one ring the larger one stays;
    3. both have the same name, being halves of one ring: both sides choose a new name, which differ, and pass them round;
    4. the names are still the same a while later (the two are one chain that winds round twice): the larger id rejoins.

A node of a dissolving ring stops and rejoins through the member that was met; that is safe at any time. Its neighbours find it
outside, replace it, meet the other ring in its place, and rejoin too.

Why it ends: names only grow, and one is largest; no node leaves that ring for a name, and each member of another ring that is
next to one of its members leaves for it. In case 4 each rejoin moves one node next to a smaller one.

Source: own; the project's overlay specification §5 leaves it open.
"""

from agiledart_kernel.counts import MAX_COUNT, saturating_increment
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.leases import Leases
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.ring_messages import RingProbe, RingState

_MUCH = 4


class Merging:
    """Meetings with other rings."""

    __slots__ = ("_leases", "_renamed_at", "_rivals", "_size", "_view")

    def __init__(self, view: View, leases: Leases) -> None:
        self._view = view
        self._leases = leases
        self._rivals: dict[NodeId, int | None] = {}
        """Members met in the key ranges of this node, one on each side, and since when they answer as such."""
        self._renamed_at: int | None = None
        self._size = 1

    def on_round(self) -> None:
        """Find members in the own key ranges, and ask each for its ring; on both sides, as one may not answer."""
        view = self._view
        agreed = view.agreed
        rivals = self._find() if agreed.is_fit(view.now) else []
        self._rivals = {peer.node: self._rivals.get(peer.node) for peer in rivals}
        if not rivals:
            self._renamed_at = None
            if agreed.confirmed:
                self._size = self._estimate()
        for peer in {peer.node: peer for peer in rivals}.values():
            view.send(peer, RingProbe(view.refutations, agreed.name, self._size))

    def _find(self) -> list[Peer]:
        view = self._view
        agreed = view.agreed
        rivals: list[Peer] = []
        if agreed.closing is not None or agreed.successor.is_dead or agreed.predecessor.is_dead:
            return rivals
        admitting, pending_transfer = agreed.admitting, agreed.pending_transfer
        coming = admitting.queued_join.joiner.node if admitting is not None else None
        met = view.leaf_set.successor
        if met is not None and met.node != coming and agreed.is_between(view.me, met.node, agreed.successor.peer):
            rivals.append(met)
        coming = pending_transfer.joiner.node if pending_transfer is not None else None
        met = view.leaf_set.predecessor
        if met is not None and met.node != coming and agreed.is_between(agreed.predecessor.peer, met.node, view.me):
            rivals.append(met)
        return rivals

    def _estimate(self) -> int:
        """Return the estimated number of nodes in this ring, by the density of the leaf set."""
        view = self._view
        leaves = view.leaf_set
        if leaves.is_whole:
            return len(leaves) + 1
        mask = view.agreed.mask
        span = (leaves.clockwise[-1].node - leaves.counterclockwise[-1].node) & mask
        # Ids that lie close together make the ring look larger than any number that a message may carry.
        return min(MAX_COUNT, max(1, len(leaves) * (mask + 1) // max(1, span)))

    def on_ring_probe(self, sender: Peer, message: RingProbe) -> None:
        """Answer a peer that met this node where it did not expect a member."""
        view = self._view
        agreed = view.agreed
        size = self._size if agreed.is_fit(view.now) else 0
        if agreed.confirmed:
            view.meet(sender, message.refutations)
        view.send(sender, RingState(view.refutations, agreed.name, size))

    def on_ring_state(self, sender: Peer, message: RingState) -> None:
        """Take the answer of a member met: it names its ring."""
        view = self._view
        agreed = view.agreed
        if sender.node not in self._rivals or not message.size or not agreed.is_fit(view.now):
            return
        since = self._rivals[sender.node]
        if since is None:
            since = self._rivals[sender.node] = view.now
        age, merge_after_ns = view.now - since, view.config.merge_after_ns
        if age < merge_after_ns:
            return
        if self._size * _MUCH <= message.size:
            self._go(sender)
        elif message.size * _MUCH <= self._size:
            return
        elif agreed.name != message.name:
            if agreed.name < message.name and (
                self._renamed_at is None or view.now - self._renamed_at >= merge_after_ns // 2
            ):
                self._go(sender)
        elif self._renamed_at is None:
            self._renamed_at = view.now
            self._leases.adopt_name((saturating_increment(agreed.name[0]), view.me.node))
        elif view.now - self._renamed_at >= merge_after_ns and sender.node < view.me.node:
            self._go(sender)

    def _go(self, through: Peer) -> None:
        agreed = self._view.agreed
        agreed.rejoin_reason, agreed.through = "it met another ring", through
        self._rivals.clear()
        self._renamed_at = None
