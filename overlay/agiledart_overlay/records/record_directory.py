"""Small named records at a key's root and its nearest leaves.

The root, the live member closest to the key, orders all writes: it compares the expected version, stores the new one, copies it
to the `replicas` leaves nearest to the key, and answers when they have confirmed. A root whose leaf set has changed asks its
leaves for newer copies before it answers, so a restarted, empty node does not answer `missing` about a record that others hold.
`record_copies` moves copies when the leaf set changes.

Departs: a root is not a lock. In a partition each side has a root, both accept writes, and afterwards the copies are merged by
content (`record_store`). An effect that must be unique carries an incarnation, which its receiver checks.

Source: [Pastry] (replication on the leaf set as in PAST); the project's overlay specification §5, last paragraphs of step 7.
"""

from collections.abc import Sequence

from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.limits import MAX_RECORDS
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.records.record_client import RecordClient
from agiledart_overlay.records.record_copies import RecordCopies, copy_of
from agiledart_overlay.records.record_store import Merge, Record
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import (
    RecordCopy,
    RecordFetch,
    RecordHeld,
    RecordRead,
    RecordReply,
    RecordWrite,
)

_LEAF_TIMEOUT_NS = 4 * SECOND
"""Silence after which a leaf is passed over; a dead one is declared dead before."""

Operation = RecordWrite | RecordRead


class KeyOperations:
    """Work of a root at one key: first it asks leaves for newer copies, then it carries out one operation after the other.

    Attributes:
        waiting: operations in order of arrival; the first is in progress when `writing`.
        asked: leaves whose answer is awaited, for copies or for the confirmation of `writing`.
        writing: the version being copied.
        confirmed: number of confirmations.
    """

    __slots__ = ("asked", "confirmed", "given_up_at", "waiting", "writing")

    def __init__(self) -> None:
        self.waiting: list[Operation] = []
        self.asked: dict[NodeId, Peer] = {}
        self.writing: Record | None = None
        self.confirmed = 0
        self.given_up_at = Instant(0)


class RecordDirectory:
    """Records of one node as root.

    Attributes:
        copies: records stored here, as root and as replica.
        client: its own requests.
    """

    __slots__ = ("_operations", "_synchronised_keys", "_view", "_work", "client", "copies")

    def __init__(self, view: View, merge: Merge) -> None:
        self._view = view
        self.copies = RecordCopies(view, merge)
        self._work: dict[NodeId, KeyOperations] = {}
        self._synchronised_keys: dict[NodeId, None] = {}
        self._operations = 0
        self.client = RecordClient(view, self.dispatch)

    # ---- requests in transit

    def dispatch(self, message: Operation) -> None:
        """Pass a request one hop nearer to its root, or carry it out when this node is the root."""
        view = self._view
        if not view.joined or self.copies.is_leaving:
            view.drop("record-outside")
            return
        if message.hops >= 2 * (view.config.id_bits // view.config.digit_bits):
            view.drop("record-ttl")
            return
        if view.is_root(message.key):
            self._accept(message)
            return
        hop = view.next_hop(message.key).peer
        if hop is None:  # no node delivers this key at the moment: the client asks again
            view.drop("record-root")
        elif isinstance(message, RecordWrite):
            onward = RecordWrite(
                message.client, message.number, message.hops + 1, message.key, message.expected_version, message.value
            )
            view.send(hop, onward)
        else:
            onward_read = RecordRead(message.client, message.number, message.hops + 1, message.key, message.known)
            view.send(hop, onward_read)

    # ---- the root

    def _accept(self, message: Operation) -> None:
        view = self._view
        work = self._work.get(message.key)
        if work is None:
            work = self._work[message.key] = KeyOperations()
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
        self._send_reply(message, RecordReply(message.number, not reason, version, value, reason))

    def _send_reply(self, message: Operation, reply: RecordReply) -> None:
        if message.client.node == self._view.me.node:
            self.client.on_reply(reply)
        else:
            self._view.send(message.client, reply)

    def _progress(self, key: NodeId, work: KeyOperations) -> None:
        """Take the next operations at a key whose answers are complete; synchronise its copies first."""
        view = self._view
        while work.waiting:
            if not view.is_root(key):
                waiting, work.waiting = work.waiting, []
                self._operations -= len(waiting)
                del self._work[key]
                for message in waiting:
                    self.dispatch(message)
                return
            if key not in self._synchronised_keys:
                if len(self._synchronised_keys) >= MAX_RECORDS:
                    self._synchronised_keys.clear()
                self._synchronised_keys[key] = None
                version, digest = self.copies.rank(key)
                self._await(key, work, view.leaf_set.members, RecordFetch(key, version, digest))
            elif self._do(key, work, work.waiting[0]):
                self._finish(work)
            if work.asked:
                return
        self._work.pop(key, None)

    def _finish(self, work: KeyOperations) -> None:
        work.waiting.pop(0)
        work.writing = None
        self._operations -= 1

    def _await(
        self, key: NodeId, work: KeyOperations, peers: Sequence[Peer], message: RecordFetch | RecordCopy
    ) -> None:
        view = self._view
        work.asked = {peer.node: peer for peer in peers}
        work.given_up_at = Instant(view.now + _LEAF_TIMEOUT_NS)
        for peer in peers:
            view.send(peer, message)
        if peers:
            view.set_timer_by("roots", view.now + view.config.record_retry_ns)

    def _do(self, key: NodeId, work: KeyOperations, message: Operation) -> bool:
        """Carry out one operation at a synchronised key; return False when its copies must be confirmed first."""
        record = self.copies.get(key)
        version, value = (record.version, record.value) if record is not None else (0, b"")
        if isinstance(message, RecordRead):
            if record is not None and message.known == record.digest:
                self._send_reply(message, RecordReply(message.number, True, version, b"", "", is_known=True))
            else:
                self._reply(message, version, value, "" if record is not None else "missing")
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
            follows = record.digest if record is not None else b""
            record = Record(key, version + 1, message.value, writer, follows)
            if record.version > MAX_COUNT or not self.copies.write(record):
                self._reply(message, version, b"", "overloaded")
                return True
        work.writing, work.confirmed = record, 0
        self._await(key, work, self.copies.replicas(key), copy_of(record))
        if not work.asked:
            self._reply(message, record.version, b"", "")
        return not work.asked

    def on_roots_timer(self) -> None:
        """Ask again, or go on without silent leaves."""
        view = self._view
        for key, work in list(self._work.items()):
            if not work.asked:
                continue
            if view.now >= work.given_up_at:
                if work.writing is not None:
                    # A leaf that is in the ring but was not reached is offered its copy until it has it.
                    self.copies.offer_soon()
                work.asked.clear()
                self._progress(key, work)
                continue
            if work.writing is not None:
                message: RecordFetch | RecordCopy = copy_of(work.writing)
            else:
                version, digest = self.copies.rank(key)
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

    # ---- messages of replica nodes

    def on_copy(self, sender: Peer, message: RecordCopy) -> None:
        """Take a copy: a leaf's answer with a newer version, or another replica node's offer."""
        view, key = self._view, message.key
        if not view.joined:
            view.drop("record-outside")
            return
        if message.version < 1:
            view.drop("record-version")  # to peers with a copy, it would say that this node has none
            return
        if not self.copies.take(sender, message):
            view.drop("records-full")
            return
        work = self._work.get(key)
        if work is not None and work.writing is not None and self.copies.rank(key) > work.writing.rank:
            work.asked.clear()
            self._progress(key, work)
        else:
            self._answered(key, sender.node, confirmed=False)

    def on_held(self, sender: Peer, message: RecordHeld) -> None:
        """Note which version a peer holds, and whether it answers a question."""
        self.copies.on_held(sender, message)
        work = self._work.get(message.key)
        if work is not None and (work.writing is None or (message.version, message.digest) == work.writing.rank):
            self._answered(message.key, sender.node, confirmed=work.writing is not None)

    def on_leaves_changed(self, gone: list[Peer]) -> None:
        """React to a changed leaf set: keys must be synchronised anew, and lost leaves no longer answer."""
        view = self._view
        self._synchronised_keys.clear()
        for key, work in list(self._work.items()):
            if not work.asked:
                continue
            for node in [node for node in work.asked if node not in view.leaf_set]:
                del work.asked[node]
            if not work.asked:
                self._progress(key, work)
        self.copies.on_leaves_changed(gone)

    # ---- leaving

    def forget_confirmations(self) -> None:
        """Forget confirmations: this node is out of the ring for a while, and other copies may change meanwhile."""
        self.copies.forget_confirmations()
        self._synchronised_keys.clear()
        self._view.cancel_timer("roots")

    def stop(self) -> None:
        """Forget everything: another incarnation may write these records before this node is back."""
        self.copies.stop()
        self._work.clear()
        self._synchronised_keys.clear()
        self._operations = 0
        self._view.cancel_timer("roots")

    def violations(self) -> list[str]:
        """Check that a root with work waits for some answer with a timer, and that operations are counted right and bounded."""
        view = self._view
        complaints = [*self.copies.violations(), *self.client.violations()]
        if self._work:
            complaints.extend(view.missing_timer("roots"))
        for key, work in self._work.items():
            if not work.asked or not work.waiting:
                complaints.append(
                    f"root: {len(work.waiting)} operations at {key.short} wait for {len(work.asked)} answers"
                )
        count = sum(len(work.waiting) for work in self._work.values())
        if count != self._operations or count > view.config.max_requests_pending:
            complaints.append(f"root: {count} operations, counted as {self._operations}")
        return complaints
