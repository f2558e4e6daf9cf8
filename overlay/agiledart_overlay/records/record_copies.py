"""Copies of records on one node: the other nodes known to hold them, their rightful holders now, and their transfer.

When the leaf set changes, every replica node offers its copies to the rightful holders until these confirm; so a record lives as
long as one replica node does. A copy that belongs to other nodes only is dropped a while after the root has it.

Source: [Pastry] (replication on the leaf set as in PAST); the project's overlay specification §5, last paragraphs of step 7.
"""

from collections.abc import Iterator

from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_overlay.records.record_store import Merge, Record, RecordStore
from agiledart_overlay.state.view import View
from agiledart_overlay.tables.virtual_nodes import on_distinct_hosts
from agiledart_overlay.wire.messages import MAX_OFFERS, Offer, RecordCopy, RecordFetch, RecordHeld, RecordOffer
from agiledart_overlay.wire.observations import RecordConflictMerged

_BATCH_NS = 50 * MILLISECOND
"""Leaf-set changes come in bursts; copies are offered once after them."""

_SPARE_NS = 10 * SECOND
"""Time that a copy of other nodes is kept after the root has confirmed it."""


def copy_of(record: Record) -> RecordCopy:
    """Return a record as a message to another replica node."""
    return RecordCopy(record.key, record.version, record.value, record.writer, record.follows)


class RecordCopies:
    """Copies on one node.

    Attributes:
        is_leaving: every copy is offered to the member that becomes its root when this node is gone.
    """

    __slots__ = ("_confirmed", "_spare_since", "_store", "_view", "is_leaving")

    def __init__(self, view: View, merge: Merge) -> None:
        self._view = view
        self._store = RecordStore(view.config.max_stored_bytes, merge)
        self._confirmed: dict[NodeId, dict[NodeId, tuple[int, bytes]]] = {}
        self._spare_since: dict[NodeId, Instant] = {}
        self.is_leaving = False

    def __iter__(self) -> Iterator[Record]:
        return iter(tuple(self._store))

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: NodeId) -> Record | None:
        """Return the copy stored here."""
        return self._store.get(key)

    def rank(self, key: NodeId) -> tuple[int, bytes]:
        """Return version and digest of the copy stored here; (0, empty) when there is none."""
        return self._store.rank(key)

    def write(self, record: Record) -> bool:
        """Store a new version that no other node has yet; return False when there is no space."""
        if not self._store.keep(record):
            return False
        self._confirmed.pop(record.key, None)
        return True

    def replicas(self, key: NodeId) -> tuple[Peer, ...]:
        """Return the leaves that hold copies of this root's key: nearest to the key, on distinct machines if possible."""
        view = self._view
        ranked = view.leaf_set.nearest_to(key, len(view.leaf_set))
        return on_distinct_hosts(view.me.host, ranked, view.config.replicas)

    def offer_soon(self) -> None:
        """Schedule a check that all rightful holders have a copy."""
        self._view.set_timer_by("sync", self._view.now + _BATCH_NS)

    # ---- copies of other nodes

    def on_fetch(self, sender: Peer, message: RecordFetch) -> None:
        """Answer a peer that asks for a different copy: even one of an earlier version may differ, if it was written elsewhere."""
        record = self._store.get(message.key)
        if record is not None and record.rank != (message.version, message.digest):
            self._view.send(sender, copy_of(record))
        else:
            self._view.send(sender, RecordHeld(message.key, *self._store.rank(message.key)))

    def take(self, sender: Peer, message: RecordCopy) -> bool:
        """Store the merge of a received copy and the own one, and send the result back; return False when there is no space."""
        view, key = self._view, message.key
        record = Record(key, message.version, message.value, message.writer, message.follows)
        mine = self._store.get(key)
        if not self._store.keep(record):
            return False
        stored = self._store.get(key)
        assert stored is not None
        if mine is not None and stored.rank not in (mine.rank, record.rank):
            view.observe(RecordConflictMerged(stored.version))
        if mine is None or mine.rank != stored.rank:
            self._confirmed.pop(key, None)
            self.offer_soon()
        if stored.rank == record.rank:
            self._note(key, sender.node, record.rank)
            view.send(sender, RecordHeld(key, record.version, record.digest))
        else:
            view.send(sender, copy_of(stored))
        return True

    def on_held(self, sender: Peer, message: RecordHeld) -> None:
        """Note which version a peer holds."""
        if message.version:
            self._note(message.key, sender.node, (message.version, message.digest))
        elif self._confirmed.get(message.key, {}).pop(sender.node, None) is not None:
            self.offer_soon()

    def on_offer(self, sender: Peer, message: RecordOffer) -> None:
        """Take a peer's offers of copies: fetch newer ones, confirm equal ones, send newer own ones."""
        view = self._view
        if not view.joined:
            view.drop("record-outside")
            return
        for offer in message.offers:
            mine = self._store.get(offer.key)
            rank = (offer.version, offer.digest)
            if mine is None or mine.rank < rank:
                view.send(sender, RecordFetch(offer.key, *self._store.rank(offer.key)))
            elif mine.rank == rank:
                self._note(offer.key, sender.node, rank)
                view.send(sender, RecordHeld(offer.key, *rank))
            else:
                view.send(sender, copy_of(mine))

    def _note(self, key: NodeId, node: NodeId, rank: tuple[int, bytes]) -> None:
        if self._store.get(key) is not None and node in self._view.leaf_set:
            self._confirmed.setdefault(key, {})[node] = rank

    # ---- moving with the leaf set

    def on_leaves_changed(self, gone: list[Peer]) -> None:
        """React to a changed leaf set: copies may belong elsewhere."""
        for peer in gone:
            for confirmed in self._confirmed.values():
                confirmed.pop(peer.node, None)
        if len(self._store):
            self.offer_soon()

    def _replica_nodes(self, key: NodeId) -> tuple[Peer | None, tuple[Peer, ...]]:
        """Return (root or None for this node, peers to offer the copy to)."""
        view = self._view
        if not self.is_leaving and view.is_closest(key):
            return None, self.replicas(key)
        root = view.leaf_set.nearest_to(key, 1)
        return (root[0], root) if root else (None, ())

    def on_sync_timer(self) -> None:
        """Offer each copy to rightful holders that have not confirmed it; drop copies that no longer belong here."""
        view = self._view
        offers: dict[NodeId, tuple[Peer, list[Offer]]] = {}
        is_spare = False
        for record in self:
            root, targets = self._replica_nodes(record.key)
            confirmed = self._confirmed.get(record.key, {})
            if root is None:
                # A node that is no replica any more may drop its copy, so its confirmation no longer counts.
                confirmed = {peer.node: confirmed[peer.node] for peer in targets if peer.node in confirmed}
                self._confirmed[record.key] = confirmed
            for peer in targets:
                if confirmed.get(peer.node) != record.rank:
                    line = offers.setdefault(peer.node, (peer, []))[1]
                    if len(line) < MAX_OFFERS:
                        line.append(Offer(record.key, *record.rank))
            if root is not None and not self.is_leaving and self._is_spare(record, root):
                is_spare = True
        for peer, line in offers.values():
            view.send(peer, RecordOffer(tuple(line)))
        if offers or is_spare:
            view.set_timer_by("sync", view.now + 2 * view.config.record_retry_ns)

    def _is_spare(self, record: Record, root: Peer) -> bool:
        """Report whether a copy belongs to other nodes only; drop it when that was so for a while and the root has it."""
        view = self._view
        key, bits = record.key, view.config.id_bits
        all_members = [view.me, *view.leaf_set.members]
        ranked = sorted(all_members, key=lambda peer: (ring_distance(peer.node, key, bits), peer.node))
        if view.me in (ranked[0], *on_distinct_hosts(ranked[0].host, ranked[1:], view.config.replicas)):
            self._spare_since.pop(key, None)
            return False
        since = self._spare_since.setdefault(key, view.now)
        if view.now - since >= _SPARE_NS and self._confirmed.get(key, {}).get(root.node) == record.rank:
            self._store.drop(key)
            self._confirmed.pop(key, None)
            del self._spare_since[key]
            view.send(root, RecordHeld(key, 0, b""))
            return False
        return True

    def forget_confirmations(self) -> None:
        """Forget confirmations: this node is out of the ring for a while, and other copies may change meanwhile."""
        self._confirmed.clear()
        self._view.cancel_timer("sync")

    # ---- leaving

    def hand_over(self) -> None:
        """Offer every copy to the member that becomes its root when this node is gone."""
        self.is_leaving = True
        self.on_sync_timer()

    @property
    def is_handed_over(self) -> bool:
        """Report whether all receivers have confirmed."""
        for record in self._store:
            _, targets = self._replica_nodes(record.key)
            if any(self._confirmed.get(record.key, {}).get(peer.node) != record.rank for peer in targets):
                return False
        return True

    def stop(self) -> None:
        """Forget everything: another incarnation may write these records before this node is back."""
        for record in self:
            self._store.drop(record.key)
        self._confirmed.clear()
        self._spare_since.clear()
        self.is_leaving = False
        self._view.cancel_timer("sync")

    def violations(self) -> list[str]:
        """Check that all notes about copies are about copies that are here."""
        complaints = self._store.violations()
        for key in (*self._confirmed, *self._spare_since):
            if self._store.get(key) is None:
                complaints.append(f"record: there are notes on a copy of {key.short}, which is not here")
        return complaints
