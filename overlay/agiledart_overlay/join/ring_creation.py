"""Creation of a ring when no node is in one: by the smallest seeking node, with the assent of all that answer it.

The awkward case is a simultaneous start of all agents, or their return after the ring was lost: then no seed is a member, and two
nodes that know each other only through a third must not both create a ring. A node that looks for a ring
    * reports, on every answer to a probe, the smallest seeking node that it knows, itself or by gossip, and the age of that news;
      so the smallest becomes known to all connected nodes, one hop in each round of questions;
    * creates a ring only after three rounds, when neither it nor any node it asked has known of a ring for `merge_after`, and no
      node known to it in that time is smaller;
    * then asks every node that answered it in that time (`RequestRingCreation`). A node that assents promises not to assent to
      another one for a while. A node refuses if it knows of a ring or of a smaller node, or has promised already. One refusal, or
      silence: another round.

So of two nodes that look for a ring at one time, and that a surviving third node answered, only one creates a ring. The promise
is longer than the wait for assents; after it the third node has met the new ring itself.

If no node answers at all, only a node that was in a ring before may create one: it is cut off, and goes on alone.

Source: own; the project's overlay specification §5 step 7 g asks for less.
"""

from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import ProbeAck
from agiledart_overlay.wire.ring_messages import RequestRingCreation, RingCreationReply

_TRIES = 3
"""Times that seeds are asked before a node may create a ring."""

_PROMISE_ROUNDS = 4
"""Rounds of questions for which a promise holds; the node that asks waits for one round."""

_MAX_ANSWERED = 64


class RingCreation:
    """Knowledge of one node about others that look for a ring, and its promise."""

    __slots__ = ("_answered", "_number", "_promised", "_ring_seen", "_smallest", "_view", "_waiting", "has_left")

    def __init__(self, view: View) -> None:
        self._view = view
        self._ring_seen: Instant | None = None
        self._answered: dict[NodeId, tuple[Peer, Instant]] = {}
        self._smallest: tuple[Peer, int] | None = None
        self._promised: tuple[NodeId, int] | None = None
        self._waiting: dict[NodeId, Peer] | None = None
        self._number = 0
        self.has_left = False
        """This node left a ring in which others stayed."""

    def reset(self) -> None:
        """Forget earlier searches for a ring."""
        self._ring_seen, self.has_left = None, False
        self._answered.clear()

    # ---- rings

    def saw_ring(self, age_ms: int) -> None:
        """Note the age of a peer's last membership in a ring; negative: never."""
        if age_ms >= 0:
            seen = Instant(self._view.now - age_ms * MILLISECOND)
            self._ring_seen = seen if self._ring_seen is None else max(self._ring_seen, seen)

    @property
    def ring_age_ms(self) -> int:
        """Return the age of this node's last knowledge of a ring; -1: it never had any."""
        if self._view.agreed.active or self.has_left:
            return 0
        return -1 if self._ring_seen is None else (self._view.now - self._ring_seen) // MILLISECOND

    @property
    def _is_ring_near(self) -> bool:
        age_ms = self.ring_age_ms
        return 0 <= age_ms * MILLISECOND < self._view.config.merge_after_ns

    # ---- other seeking nodes

    def note_candidate(self, peer: Peer, age_ms: int = 0) -> None:
        """Note a node that looks for a ring, and the age of that news."""
        view = self._view
        at = view.now - age_ms * MILLISECOND
        if peer.node == view.me.node or not self._is_recent(at):
            return
        smallest = self._known_smallest()
        if smallest is None or peer.node < smallest[0].node:
            self._smallest = (peer, at)
        elif peer.node == smallest[0].node:
            self._smallest = (peer, max(at, smallest[1]))

    def on_answer(self, sender: Peer, message: ProbeAck) -> None:
        """Take the answer of a probed node."""
        view = self._view
        self.saw_ring(0 if message.joined else message.ring_age_ms)
        self._answered.pop(sender.node, None)
        if message.joined:
            return
        if len(self._answered) < _MAX_ANSWERED:
            self._answered[sender.node] = (sender, view.now)
        self.note_candidate(sender)
        if message.smallest is not None:
            self.note_candidate(message.smallest, message.smallest_age_ms)

    def _is_recent(self, at: int) -> bool:
        return self._view.now - at < self._view.config.merge_after_ns

    def _known_smallest(self) -> tuple[Peer, int] | None:
        if self._smallest is not None and not self._is_recent(self._smallest[1]):
            self._smallest = None
        return self._smallest

    @property
    def smallest(self) -> Peer | None:
        """Return the smallest other node that lately looked for a ring, as far as this one knows."""
        known = self._known_smallest()
        return known[0] if known is not None else None

    def _recent_answers(self) -> dict[NodeId, Peer]:
        for node in [node for node, (_, at) in self._answered.items() if not self._is_recent(at)]:
            del self._answered[node]
        return {node: peer for node, (peer, _) in self._answered.items()}

    def answer_to(self, number: int) -> ProbeAck:
        """Return this node's answer to a probe of a node that looks for a ring."""
        view = self._view
        smallest = self._known_smallest()
        if view.agreed.seeking and (smallest is None or view.me.node < smallest[0].node):
            smallest = (view.me, view.now)
        age_ms = self.ring_age_ms
        if view.joined and not view.agreed.is_fit(view.now):
            age_ms = 1  # it slept, and must first find out whether it is still in one
        ack = (number, view.refutations, view.agreed.active, view.distances.vitals, age_ms)
        if smallest is None or view.agreed.active:
            return ProbeAck(*ack)
        return ProbeAck(*ack, smallest[0], (view.now - smallest[1]) // MILLISECOND)

    # ---- creation

    def is_due(self, tries: int, *, was_member: bool) -> bool:
        """Report whether this node should create a ring, if all nodes that answer it assent."""
        if tries < _TRIES or self._is_ring_near or self._promised_to_other(self._view.me.node):
            return False
        answers = self._recent_answers()
        if not answers:
            return was_member
        smallest = self.smallest
        me = self._view.me.node
        return min(answers) > me and (smallest is None or smallest.node > me)

    def ask(self) -> bool:
        """Ask all nodes that answered for their assent; return True when there are none."""
        view = self._view
        self._waiting = self._recent_answers()
        self._number = view.number()
        for peer in self._waiting.values():
            view.send(peer, RequestRingCreation(self._number))
        return not self._waiting

    def give_up(self) -> None:
        """Give up: some nodes refused, or did not assent in time."""
        self._waiting = None

    @property
    def is_asking(self) -> bool:
        """Report whether assents are awaited."""
        return self._waiting is not None

    def on_ring_creation_reply(self, sender: Peer, message: RingCreationReply) -> bool:
        """Take an answer; return True when it was the last one, and all assented."""
        waiting = self._waiting
        self.saw_ring(message.ring_age_ms)
        if waiting is None or message.number != self._number or sender.node not in waiting:
            return False
        if not message.ok:
            self.give_up()
            return False
        del waiting[sender.node]
        return not waiting

    def on_request_ring_creation(self, sender: Peer, message: RequestRingCreation, *, is_free: bool) -> None:
        """Answer a node that wants to create a ring. `is_free`: this node is in no ring and in no admission to one."""
        view = self._view
        self.note_candidate(sender)
        smallest = self.smallest
        ok = (
            is_free
            and not self._is_ring_near
            and not (view.agreed.seeking and view.me.node < sender.node)
            and not (smallest is not None and smallest.node < sender.node)
            and not self._promised_to_other(sender.node)
        )
        if ok:
            self._promised = (sender.node, view.now + _PROMISE_ROUNDS * view.config.join_retry_ns)
        view.send(sender, RingCreationReply(message.number, ok, self.ring_age_ms))

    def _promised_to_other(self, node: NodeId) -> bool:
        return self._promised is not None and self._promised[0] != node and self._view.now < self._promised[1]
