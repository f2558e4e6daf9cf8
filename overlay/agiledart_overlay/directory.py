"""Small named records at a key's root and its nearest leaves.

The root, the live member closest to the key, orders all writes: it compares the expected version, keeps the new one,
copies it
to the `replicas` leaves nearest to the key, and answers when they have confirmed. When the leaf set changes, every holder
offers its copies to whom they belong to now, so a record lives as long as one holder does. A root whose leaf set has changed
asks its leaves for newer copies before it answers, so a restarted, empty node does not say `missing` of what others hold.

Departs: a root is not a lock. In a partition each side has a root, both accept writes, and after it one of two equal versions
is chosen by digest. What must be single carries an incarnation that the receiver of the effect checks.

Source: [Pastry] (replication on the leaf set as in PAST); the project's overlay specification §5, last paragraphs of step 7.
"""

from collections.abc import Sequence

from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.limits import MAX_RECORDS
from agiledart_kernel.node_id import NodeId, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_overlay.messages import (
    MAX_OFFERS,
    Offer,
    RecordCopy,
    RecordFetch,
    RecordKept,
    RecordOffer,
    RecordRead,
    RecordReply,
    RecordStore,
)
from agiledart_overlay.observations import RecordConflictMerged
from agiledart_overlay.record_client import RecordClient
from agiledart_overlay.records import Record
from agiledart_overlay.records import RecordStore as Store
from agiledart_overlay.view import View
from agiledart_overlay.virtual_nodes import on_distinct_hosts

_BATCH_NS = 50 * MILLISECOND
"""Leaf-set changes come in bursts; copies are offered once after them."""

_SPARE_NS = 10 * SECOND
"""A copy that belongs to others is kept so long after the root has confirmed it."""

_PATIENCE_NS = 4 * SECOND
"""A leaf silent for so long is passed over; a dead one is declared dead before."""

Operation = RecordStore | RecordRead


class Work:
    """What a root does at one key: first `asked` leaves for newer copies, then one operation after the other.

    Attributes:
        waiting: operations in order of arrival; the first is under way when `writing`.
        asked: leaves whose answer is awaited, for copies or for the confirmation of `writing`.
        writing: the version being copied.
        confirmed: how many confirmed it.
    """

    __slots__ = ("asked", "confirmed", "given_up_at", "waiting", "writing")

    def __init__(self) -> None:
        self.waiting: list[Operation] = []
        self.asked: dict[NodeId, Peer] = {}
        self.writing: Record | None = None
        self.confirmed = 0
        self.given_up_at = Instant(0)


class Directory:
    """Records of one node as root and replica."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._store = Store(view.config.max_stored_bytes)
        self._work: dict[NodeId, Work] = {}
        self._settled: dict[NodeId, None] = {}
        self._confirmed: dict[NodeId, dict[NodeId, tuple[int, bytes]]] = {}
        self._spare_since: dict[NodeId, Instant] = {}
        self._operations = 0
        self._leaving = False
        self.client = RecordClient(view, self.dispatch)

    @property
    def records(self) -> Sequence[Record]:
        """Copies kept here."""
        return tuple(self._store)

    # ---- requests on their way

    def dispatch(self, message: Operation) -> None:
        """Bring a request one hop nearer to its root, or do it when the root is here."""
        view = self._view
        if not view.joined or self._leaving:
            view.drop("record-outside")
            return
        if message.hops >= 2 * (view.config.id_bits // view.config.digit_bits):
            view.drop("record-ttl")
            return
        if view.is_root(message.key):
            self._accept(message)
            return
        hop = view.next_hop(message.key).peer
        if hop is None:  # nobody delivers this key at the moment: the client asks again
            view.drop("record-root")
        elif isinstance(message, RecordStore):
            onward = RecordStore(
                message.client, message.number, message.hops + 1, message.key, message.expected_version, message.value
            )
            view.send(hop, onward)
        else:
            view.send(hop, RecordRead(message.client, message.number, message.hops + 1, message.key))

    # ---- the root

    def _accept(self, message: Operation) -> None:
        view = self._view
        work = self._work.get(message.key)
        if work is None:
            work = self._work[message.key] = Work()
        if any((other.client, other.number) == (message.client, message.number) for other in work.waiting):
            return
        if self._operations >= view.config.max_requests_pending:
            self._reply(message, 0, b"", "overloaded")
            return
        self._operations += 1
        work.waiting.append(message)
        if not work.asked:
            self._progress(message.key, work)

    def _reply(self, message: Operation, version: int, value: bytes, reason: str) -> None:
        reply = RecordReply(message.number, not reason, version, value, reason)
        if message.client.node == self._view.me.node:
            self.client.on_reply(reply)
        else:
            self._view.send(message.client, reply)

    def _progress(self, key: NodeId, work: Work) -> None:
        """Nothing is awaited at this key: settle it, or take the next operations."""
        view = self._view
        while work.waiting:
            if not view.is_root(key):
                waiting, work.waiting = work.waiting, []
                self._operations -= len(waiting)
                del self._work[key]
                for message in waiting:
                    self.dispatch(message)
                return
            if key not in self._settled:
                if len(self._settled) >= MAX_RECORDS:
                    self._settled.clear()
                self._settled[key] = None
                version, digest = self._store.rank(key)
                self._await(key, work, view.leaf_set.members, RecordFetch(key, version, digest))
            elif self._do(key, work, work.waiting[0]):
                self._finish(work)
            if work.asked:
                return
        self._work.pop(key, None)

    def _finish(self, work: Work) -> None:
        work.waiting.pop(0)
        work.writing = None
        self._operations -= 1

    def _await(self, key: NodeId, work: Work, peers: Sequence[Peer], message: RecordFetch | RecordCopy) -> None:
        view = self._view
        work.asked = {peer.node: peer for peer in peers}
        work.given_up_at = Instant(view.now + _PATIENCE_NS)
        for peer in peers:
            view.send(peer, message)
        if peers:
            view.set_timer_by("roots", view.now + view.config.record_retry_ns)

    def _do(self, key: NodeId, work: Work, message: Operation) -> bool:
        """Do one operation at a settled key; false when its copies must be confirmed first."""
        record = self._store.get(key)
        version, value = (record.version, record.value) if record is not None else (0, b"")
        if isinstance(message, RecordRead):
            found = record is not None
            self._reply(message, version, value, "" if found else "missing")
            return True
        writer = (message.client.node, message.client.incarnation, message.number)
        if work.writing is not None and not work.confirmed and len(self._view.leaf_set):
            if self._view.now >= work.given_up_at:
                self._reply(message, version, b"", "overloaded")
                return True
            work.writing = None
        if work.writing is not None:
            is_ours = record is not None and record.writer == writer
            self._reply(message, version, b"" if is_ours else value, "" if is_ours else "conflict")
            return True
        if record is None or record.writer != writer:
            if version != message.expected_version:
                self._reply(message, version, value, "conflict")
                return True
            record = Record(key, version + 1, message.value, writer)
            if not self._store.keep(record):
                self._reply(message, version, b"", "overloaded")
                return True
            self._confirmed.pop(key, None)
        work.writing, work.confirmed = record, 0
        replicas = self._replicas(key)
        self._await(key, work, replicas, self._copy(record))
        if not work.asked:
            self._reply(message, record.version, b"", "")
        return not work.asked

    def _copy(self, record: Record) -> RecordCopy:
        return RecordCopy(record.key, record.version, record.value, record.writer)

    def on_roots_timer(self) -> None:
        """Ask again, or go on without those that stay silent."""
        view = self._view
        for key, work in list(self._work.items()):
            if not work.asked:
                continue
            if view.now >= work.given_up_at:
                if work.writing is not None:
                    # A leaf that is in the ring but was not reached is offered its copy until it has it.
                    view.set_timer_by("sync", view.now + _BATCH_NS)
                work.asked.clear()
                self._progress(key, work)
                continue
            if work.writing is not None:
                message: RecordFetch | RecordCopy = self._copy(work.writing)
            else:
                version, digest = self._store.rank(key)
                message = RecordFetch(key, version, digest)
            for peer in work.asked.values():
                view.send(peer, message)
        if self._work:
            view.set_timer_by("roots", view.now + view.config.record_retry_ns)

    def _answered(self, key: NodeId, node: NodeId, *, confirmed: bool) -> None:
        work = self._work.get(key)
        if work is not None and work.asked.pop(node, None) is not None:
            work.confirmed += confirmed
            if not work.asked:
                self._progress(key, work)

    # ---- copies

    def on_fetch(self, sender: Peer, message: RecordFetch) -> None:
        """Somebody wants a copy newer than its own."""
        record = self._store.get(message.key)
        if record is not None and record.rank > (message.version, message.digest):
            self._view.send(sender, self._copy(record))
        else:
            self._view.send(sender, RecordKept(message.key, *self._store.rank(message.key)))

    def on_copy(self, sender: Peer, message: RecordCopy) -> None:
        """A copy: keep the newer one, say which it is, or send back one that is newer still."""
        view = self._view
        key = message.key
        if not view.joined:
            view.drop("record-outside")
            return
        record = Record(key, message.version, message.value, message.writer)
        mine = self._store.get(key)
        if mine is not None and mine.rank > record.rank:
            view.send(sender, self._copy(mine))
        elif not self._store.keep(record):
            view.drop("records-full")
            return
        else:
            if mine is not None and mine.version == record.version and mine.digest != record.digest:
                view.observe(RecordConflictMerged(record.version))
            if mine is None or mine.rank != record.rank:
                self._confirmed.pop(key, None)
                view.set_timer_by("sync", view.now + _BATCH_NS)
            self._note(key, sender.node, record.rank)
            view.send(sender, RecordKept(key, record.version, record.digest))
        work = self._work.get(key)
        if work is not None and work.writing is not None and self._store.rank(key) > work.writing.rank:
            work.asked.clear()
            self._progress(key, work)
        else:
            self._answered(key, sender.node, confirmed=False)

    def on_kept(self, sender: Peer, message: RecordKept) -> None:
        """Somebody says what it holds."""
        rank = (message.version, message.digest)
        if message.version:
            self._note(message.key, sender.node, rank)
        elif self._confirmed.get(message.key, {}).pop(sender.node, None) is not None:
            self._view.set_timer_by("sync", self._view.now + _BATCH_NS)
        work = self._work.get(message.key)
        if work is not None and (work.writing is None or rank == work.writing.rank):
            self._answered(message.key, sender.node, confirmed=work.writing is not None)

    def _note(self, key: NodeId, node: NodeId, rank: tuple[int, bytes]) -> None:
        if self._store.get(key) is not None and node in self._view.leaf_set:
            self._confirmed.setdefault(key, {})[node] = rank

    # ---- moving with the leaf set

    def on_leaves_changed(self, gone: list[Peer]) -> None:
        """The leaf set is not what it was: copies may belong elsewhere, and keys must be settled anew."""
        view = self._view
        self._settled.clear()
        for peer in gone:
            for confirmed in self._confirmed.values():
                confirmed.pop(peer.node, None)
        for key, work in list(self._work.items()):
            if not work.asked:
                continue
            for node in [node for node in work.asked if node not in view.leaf_set]:
                del work.asked[node]
            if not work.asked:
                self._progress(key, work)
        if len(self._store):
            view.set_timer_by("sync", view.now + _BATCH_NS)

    def _holders(self, key: NodeId) -> tuple[Peer | None, tuple[Peer, ...]]:
        """To whom this node offers its copy, as (root or None for itself, those to tell)."""
        view = self._view
        if not self._leaving and view.is_closest(key):
            return None, self._replicas(key)
        root = view.leaf_set.nearest_to(key, 1)
        return (root[0], root) if root else (None, ())

    def _replicas(self, key: NodeId) -> tuple[Peer, ...]:
        """Leaves that hold copies of what this node is the root of: nearest to the key, on machines of their own if possible."""
        view = self._view
        ranked = view.leaf_set.nearest_to(key, len(view.leaf_set))
        return on_distinct_hosts(view.me.host, ranked, view.config.replicas)

    def on_sync_timer(self) -> None:
        """Offer each copy to those who should hold it and have not said that they do; forget copies that are no longer ours."""
        view = self._view
        offers: dict[NodeId, tuple[Peer, list[Offer]]] = {}
        is_spare = False
        for record in self.records:
            root, targets = self._holders(record.key)
            confirmed = self._confirmed.get(record.key, {})
            if root is None:
                # Who is no replica any more may drop its copy, so its word counts no longer.
                confirmed = {peer.node: confirmed[peer.node] for peer in targets if peer.node in confirmed}
                self._confirmed[record.key] = confirmed
            for peer in targets:
                if confirmed.get(peer.node) != record.rank:
                    line = offers.setdefault(peer.node, (peer, []))[1]
                    if len(line) < MAX_OFFERS:
                        line.append(Offer(record.key, *record.rank))
            if root is not None and not self._leaving and self._is_spare(record, root):
                is_spare = True
        for peer, line in offers.values():
            view.send(peer, RecordOffer(tuple(line)))
        if offers or is_spare:
            view.set_timer_by("sync", view.now + 2 * view.config.record_retry_ns)

    def _is_spare(self, record: Record, root: Peer) -> bool:
        """Whether a copy belongs to others only; dropped when it was so for a while and the root has it."""
        view = self._view
        key, bits = record.key, view.config.id_bits
        everybody = [view.me, *view.leaf_set.members]
        ranked = sorted(everybody, key=lambda peer: (ring_distance(peer.node, key, bits), peer.node))
        if view.me in (ranked[0], *on_distinct_hosts(ranked[0].host, ranked[1:], view.config.replicas)):
            self._spare_since.pop(key, None)
            return False
        since = self._spare_since.setdefault(key, view.now)
        if view.now - since >= _SPARE_NS and self._confirmed.get(key, {}).get(root.node) == record.rank:
            self._store.drop(key)
            self._confirmed.pop(key, None)
            del self._spare_since[key]
            view.send(root, RecordKept(key, 0, b""))
            return False
        return True

    def on_offer(self, sender: Peer, message: RecordOffer) -> None:
        """Somebody holds copies that should be here: take the newer ones, confirm the rest."""
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
                view.send(sender, RecordKept(offer.key, *rank))
            else:
                view.send(sender, self._copy(mine))

    def forget_confirmations(self) -> None:
        """This node is out of the ring for a while: what others held may be different afterwards."""
        self._confirmed.clear()
        self._settled.clear()
        for name in ("roots", "sync"):
            self._view.cancel_timer(name)

    # ---- leaving

    def hand_over(self) -> None:
        """Offer every copy to the member that becomes its root when this node is gone."""
        self._leaving = True
        self.on_sync_timer()

    @property
    def is_handed_over(self) -> bool:
        """Whether each of them has confirmed."""
        for record in self._store:
            _, targets = self._holders(record.key)
            if any(self._confirmed.get(record.key, {}).get(peer.node) != record.rank for peer in targets):
                return False
        return True

    def stop(self) -> None:
        """Forget everything: another life may write these records before this node is back."""
        for record in self.records:
            self._store.drop(record.key)
        self._work.clear()
        self._confirmed.clear()
        self._spare_since.clear()
        self._settled.clear()
        self._operations = 0
        self._leaving = False
        for name in ("roots", "sync"):
            self._view.cancel_timer(name)
