"""Coming and going: how a node finds the ring, is admitted, and leaves. The members' side is `admission`; then comes `arrival`.

A joiner moves through these phases; the timer "join" moves it back to SEEKING when nothing comes.

    OUTSIDE   not asked to join, or gave up, or left
    SEEKING   seeds were probed; the first that says it is a member gets the JoinRequest; members on its way send rows
    WELCOMED  the guardian of the gap let it in; it asks each future leaf for its leaf set, and those that it learns of so
    MEMBER    it answers for its keys and announces itself to all it knows

A joiner is in nobody's tables and answers for nothing.

The awkward case is that all agents start at once: then no seed is a member. The one with the smallest id among those that
answer founds the ring. Not covered here: leases (a later change), so two nodes may answer for one key for a moment.

Source: [Pastry] §2.4; the project's overlay specification §5.
"""

from enum import IntEnum

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.arrival import Arrival
from agiledart_overlay.effects import Joined, JoinFailed, Left, PeerLeft
from agiledart_overlay.messages import (
    JoinRefused,
    JoinRequest,
    JoinRows,
    LeafRequest,
    LeafState,
    Leave,
    Probe,
    ProbeAck,
    Sighting,
    Welcome,
)
from agiledart_overlay.observations import RingJoined, RingLeft
from agiledart_overlay.view import View

_MAX_SEEDS = 32
_MAX_GATHERED = 1_024
_TRIES = 3
"""Times a question to a future leaf is sent before its receiver counts as silent."""


class Phase(IntEnum):
    """Where a node stands."""

    OUTSIDE = 0
    SEEKING = 1
    WELCOMED = 2
    MEMBER = 3


class Question:
    """Something sent that is to be answered, and sent again if it is not."""

    __slots__ = ("number", "peer", "sent_at", "tries")

    def __init__(self, peer: Peer, number: int, sent_at: Instant) -> None:
        self.peer, self.number, self.sent_at, self.tries = peer, number, sent_at, 1


class Membership:
    """Join and leave, of one node."""

    def __init__(self, view: View, arrival: Arrival) -> None:
        self._view = view
        self._arrival = arrival
        self.phase = Phase.OUTSIDE
        self.seeds: tuple[Peer, ...] = ()
        self._fellows: dict[NodeId, Peer] = {}
        """Others that may help: joiners that looked for a member here, members that an earlier attempt told of."""
        self._answered: dict[NodeId, bool] = {}
        self._asked: NodeId | None = None
        self._attempt = 0
        self._started = Instant(0)
        self._busy = False
        self._gathered: dict[NodeId, Sighting] = {}
        self._questions: dict[NodeId, Question] = {}

    # ---- the joiner

    def join(self, seeds: tuple[Peer, ...]) -> None:
        """Start joining; without seeds found a ring."""
        view = self._view
        if self.phase is not Phase.OUTSIDE:
            view.drop("join-twice")
            return
        self.seeds = tuple(seed for seed in seeds if seed.node != view.me.node)[:_MAX_SEEDS]
        self._started = view.now
        self._attempt = 0
        self._fellows.clear()
        if self.seeds:
            self._seek()
        else:
            self._become_member()

    def _seek(self) -> None:
        view = self._view
        self.phase = Phase.SEEKING
        self._attempt += 1
        self._asked = None
        self._answered.clear()
        self._questions.clear()
        for sighting in self._gathered.values():
            if len(self._fellows) < _MAX_SEEDS:
                self._fellows[sighting.peer.node] = sighting.peer
        self._gathered.clear()
        for peer in {peer.node: peer for peer in (*self.seeds, *self._fellows.values())}.values():
            view.send(peer, Probe(view.number(), view.refutations, joined=False))
        view.set_timer("join", view.now + view.config.join_retry_ns)

    def on_probe_ack(self, sender: Peer, message: ProbeAck) -> None:
        """A seed answered; the first member asked to pass the join on is the nearest one."""
        view = self._view
        if self.phase is not Phase.SEEKING:
            return
        self._answered[sender.node] = message.joined
        if message.joined and self._asked is None:
            self._asked = sender.node
            view.send(sender, JoinRequest(view.me, self._attempt))

    def on_fellow(self, sender: Peer) -> None:
        """Somebody else who is not a member either looks for one here."""
        if self.phase is Phase.SEEKING and len(self._fellows) < _MAX_SEEDS:
            self._fellows[sender.node] = sender

    def on_join_timer(self) -> None:
        """Nothing came, or not everything: go on without, try again, or give up."""
        view = self._view
        if self.phase is Phase.WELCOMED:
            self._ask_again()
        elif self.phase is Phase.SEEKING:
            if view.now - self._started >= view.config.join_timeout_ns:
                self._give_up()
            elif self._may_found():
                self._become_member()
            else:
                self._seek()

    def _may_found(self) -> bool:
        """Seeds answered, none is a member, and this node has the smallest id of those that answered: for some tries now."""
        if self._attempt < _TRIES or self._asked is not None or not self._answered:
            return False
        return not any(self._answered.values()) and all(node > self._view.me.node for node in self._answered)

    def _give_up(self) -> None:
        if self._busy:
            reason = "the ring is busy with other joiners"
        elif self._answered:
            reason = "peers answer, but none could bring this node into the ring"
        else:
            names = ", ".join(seed.address or seed.node.short for seed in self.seeds[:3])
            reason = f"no answer from {names}"
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self.phase = Phase.OUTSIDE
        self._view.cancel_timer("join")
        self._view.effects.append(JoinFailed(reason))

    def on_rows(self, sender: Peer, message: JoinRows) -> None:
        """A member on the way tells what it knows."""
        if self.phase is Phase.SEEKING and message.attempt == self._attempt:
            self._gather((Sighting(sender), *message.sightings))

    def on_refused(self, sender: Peer, message: JoinRefused) -> None:
        """Not now, or never."""
        view = self._view
        if self.phase is not Phase.SEEKING or message.attempt != self._attempt:
            return
        if message.reason == "incarnation":
            self._fail(
                f"{sender.name or sender.node.short} knows this node with incarnation {message.incarnation}, "
                f"this life has {view.me.incarnation}: is it running twice, or was its state directory restored?"
            )
        else:
            self._busy = True
            view.set_timer("join", view.now + int(view.config.join_retry_ns * (1 + view.random.uniform())))

    def on_welcome(self, sender: Peer, message: Welcome) -> None:
        """Admitted: ask every future leaf what it knows before answering for anything."""
        view = self._view
        if self.phase is not Phase.SEEKING or message.attempt != self._attempt:
            return
        self.phase = Phase.WELCOMED
        self._gather(message.sightings)
        view.meet(sender, message.refutations)
        self._ask_leaf(sender)
        for sighting in message.sightings:
            self._consider_leaf(sighting)
        view.set_timer("join", view.now + view.config.probe_timeout_ns)

    def on_leaf_state(self, sender: Peer, message: LeafState) -> None:
        """A future leaf answers with its leaf set."""
        view = self._view
        question = self._questions.get(sender.node)
        if question is not None and question.number == message.number:
            del self._questions[sender.node]
            view.measure(sender.node, question.sent_at)
        if self.phase is Phase.WELCOMED:
            self._gather(message.sightings)
            for sighting in message.sightings:
                self._consider_leaf(sighting)
            if not self._questions:
                self._become_member()

    def _consider_leaf(self, sighting: Sighting) -> None:
        view = self._view
        node = sighting.peer.node
        if view.leaf_set.fits(node) and node not in self._questions and not view.book.is_dead(sighting.peer, 0):
            self._ask_leaf(sighting.peer)

    def _ask_leaf(self, peer: Peer) -> None:
        view = self._view
        if len(self._questions) < 2 * view.config.leaf_count:
            number = view.number()
            self._questions[peer.node] = Question(peer, number, view.now)
            view.send(peer, LeafRequest(number, view.refutations, joined=False))

    def _ask_again(self) -> None:
        view = self._view
        for question in list(self._questions.values()):
            if question.tries >= _TRIES:
                del self._questions[question.peer.node]
            else:
                question.tries += 1
                view.send(question.peer, LeafRequest(question.number, view.refutations, joined=False))
        if self._questions:
            view.set_timer("join", view.now + view.config.probe_timeout_ns)
        elif len(view.leaf_set):
            self._become_member()
        else:
            self._seek()

    def _gather(self, sightings: tuple[Sighting, ...]) -> None:
        for sighting in sightings:
            if len(self._gathered) < _MAX_GATHERED and sighting.peer.node != self._view.me.node:
                self._gathered.setdefault(sighting.peer.node, sighting)

    def _become_member(self) -> None:
        view = self._view
        self.phase = Phase.MEMBER
        view.joined = True
        view.leaves_changed = True
        view.cancel_timer("join")
        self._questions.clear()
        view.effects.append(Joined())
        view.observe(RingJoined(view.now - self._started, self._attempt))
        self._arrival.begin(self._gathered.values())
        self._gathered.clear()

    # ---- leaving

    def abandon(self) -> None:
        """Stop joining."""
        self.phase = Phase.OUTSIDE
        self._view.cancel_timer("join")

    def leave(self) -> None:
        """Say good-bye to all; records have been handed over."""
        view = self._view
        for peer in view.known():
            view.send(peer, Leave())
        self.phase = Phase.OUTSIDE
        view.joined = False
        view.cancel_timer("join")
        self._arrival.stop()
        view.effects.append(Left())
        view.observe(RingLeft())

    def on_leave(self, sender: Peer) -> None:
        """A peer says good-bye; only a higher incarnation of it returns."""
        view = self._view
        known = view.book.get(sender.node)
        if known is not None:
            view.remove(known.peer, known.refutations, has_left=True)
            view.effects.append(PeerLeft(known.peer))

    def on_outside(self, sender: Peer) -> None:
        """A peer in the tables says that it is no member: its good-bye was lost. If that is old news, it will refute."""
        view = self._view
        known = view.book.get(sender.node)
        if known is not None and sender.node not in view.watched:
            view.remove(known.peer, known.refutations, has_left=False)
            view.effects.append(PeerLeft(known.peer))
