"""Joining, ring creation, leaving and rejoining. `ring_search` finds the ring; `handshake` lets the node in.

A joiner moves through these phases; the timer "join" moves it on when no message comes.

    OUTSIDE   not asked to join, or gave up, or left
    SEEKING   seeds were probed; the first member that answers gets the JoinRequest; members on its route send rows; the owner of
              its key range queues and invites it
    MEMBER    its range owner has confirmed it: it delivers its keys, and `node_arrival` begins

A joiner is in no node's tables and delivers nothing. A member that must rejoin becomes SEEKING again under the same incarnation
with one more refutation, so links and applications are not disturbed; it never gives up.

The awkward case is a simultaneous start of all agents: then no seed is a member, and one of them creates the ring, see
`ring_creation`. Source: [Pastry] §2.4; the project's overlay specification §5.
"""

from enum import IntEnum

from agiledart_kernel.instants import Instant
from agiledart_kernel.peer import Peer
from agiledart_overlay.join.node_arrival import NodeArrival
from agiledart_overlay.join.ring_creation import RingCreation
from agiledart_overlay.join.ring_search import MAX_SEEDS, RingSearch
from agiledart_overlay.ring.neighbours import Neighbours
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.effects import JoinCompleted, JoinFailed, LeaveCompleted, Rejoining
from agiledart_overlay.wire.messages import Accused, Departing, JoinRefused
from agiledart_overlay.wire.observations import RingJoined, RingLeft, RingRejoining
from agiledart_overlay.wire.ring_messages import AdmissionConfirmed, JoinQueued, RequestRingCreation, RingCreationReply


class Phase(IntEnum):
    """Phase of a node."""

    OUTSIDE = 0
    SEEKING = 1
    MEMBER = 3


class Membership:
    """Join, leave and rejoin of one node."""

    __slots__ = (
        "_arrival",
        "_busy",
        "_neighbours",
        "_noticed",
        "_rejoins",
        "_started",
        "_view",
        "phase",
        "ring_creation",
        "search",
    )  # fmt: skip

    def __init__(self, view: View, arrival: NodeArrival, neighbours: Neighbours) -> None:
        self._view = view
        self._arrival = arrival
        self._neighbours = neighbours
        self.ring_creation = RingCreation(view)
        self.search = RingSearch(view, self.ring_creation)
        self.phase = Phase.OUTSIDE
        self._started = self._noticed = Instant(0)
        self._busy = self._rejoins = False

    @property
    def seeds(self) -> tuple[Peer, ...]:
        """Return peers that may be in the ring, given at the start."""
        return self._view.seeds

    # ---- the joiner

    def join(self, seeds: tuple[Peer, ...]) -> None:
        """Start joining; without seeds create a ring."""
        view = self._view
        if self.phase is not Phase.OUTSIDE:
            view.drop("join-twice")
            return
        view.seeds = tuple(seed for seed in seeds if seed.node != view.me.node)[:MAX_SEEDS]
        self._rejoins = False
        self.search.forget()
        self.ring_creation.reset()
        self._begin()
        if view.seeds:
            self._seek()
        else:
            self._create_ring()

    def _begin(self) -> None:
        self.phase = Phase.SEEKING
        self._started = self._noticed = self._view.now
        self.search.tries = 0
        self._view.agreed.seeking = True

    def _seek(self) -> None:
        self.ring_creation.give_up()
        self.search.seek(is_hurried=self._rejoins)

    def on_join_timer(self) -> None:
        """Try again, create a ring, or give up, when no message came."""
        view = self._view
        if self.phase is not Phase.SEEKING:
            return
        if view.agreed.active or self._neighbours.handshake.is_invited:
            view.set_timer("join", view.now + view.config.join_retry_ns)
        elif not self._rejoins and view.now - self._noticed >= view.config.join_timeout_ns:
            self._give_up()
        elif not self.ring_creation.is_asking and self._request_ring_creation():
            view.set_timer("join", view.now + view.config.join_retry_ns)
            if self.ring_creation.ask():
                self._create_ring()
        else:
            self._seek()

    def _request_ring_creation(self) -> bool:
        return not self.search.has_asked and self.ring_creation.is_due(self.search.tries, was_member=self._rejoins)

    def on_ring_creation_reply(self, sender: Peer, message: RingCreationReply) -> None:
        """Take a peer's answer to the request to create a ring."""
        if self.phase is not Phase.SEEKING:
            return
        is_last = self.ring_creation.on_ring_creation_reply(sender, message)
        if (
            is_last
            and self._request_ring_creation()
            and not self._view.agreed.active
            and not self._neighbours.handshake.is_invited
        ):
            self._create_ring()

    def on_request_ring_creation(self, sender: Peer, message: RequestRingCreation) -> None:
        """Answer a peer that wants to create a ring."""
        is_free = self.phase is not Phase.MEMBER and not self._view.agreed.active
        is_free = is_free and not self._neighbours.handshake.is_invited
        self.ring_creation.on_request_ring_creation(sender, message, is_free=is_free)

    def _give_up(self) -> None:
        if self._busy:
            reason = "the ring is busy with other joiners"
        elif self.search.is_answered:
            reason = "peers answer, but none could bring this node into the ring"
        else:
            names = ", ".join(seed.address or seed.node.short for seed in self.seeds[:3])
            reason = f"no answer from {names}"
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self.abandon()
        self._view.effects.append(JoinFailed(reason))

    def on_queued(self, sender: Peer, message: JoinQueued) -> None:
        """Wait: the range owner has queued the join and will invite this node."""
        view = self._view
        self.ring_creation.saw_ring(0)
        if self.phase is Phase.SEEKING and message.attempt == self.search.attempt:
            self._noticed = view.now
            view.set_timer("join", view.now + view.config.queue_timeout_ns)

    def on_refused(self, sender: Peer, message: JoinRefused) -> None:
        """Take a refusal, for now or for good."""
        view = self._view
        if message.reason in ("incarnation", "left"):
            self._on_incarnation_refused(sender, message)
            return
        if self.phase is not Phase.SEEKING or message.attempt != self.search.attempt or view.agreed.active:
            return
        self._busy = True
        self._noticed = view.now
        view.set_timer("join", view.now + int(view.config.join_retry_ns * 2 * view.random.uniform()))

    def _on_incarnation_refused(self, sender: Peer, message: JoinRefused) -> None:
        """Treat a refusal by a peer that knows a higher-ranked incarnation of this node.

        Peers that forgot it, or never knew it, may have admitted this node: then it leaves, or half of the ring would have it in
        its tables and the other half not. If a range owner began to admit this incarnation and was lost, the peers know this very
        incarnation: it then outranks their knowledge.
        """
        view = self._view
        mine, theirs = view.me.incarnation, message.incarnation
        is_answer = self.phase is Phase.SEEKING and message.attempt == self.search.attempt and not view.agreed.active
        if is_answer and theirs == mine and message.reason == "incarnation" and self._neighbours.handshake.was_invited:
            self.rejoin("its range owner was lost during its admission", None)
            return
        is_over = theirs > mine or (theirs == mine and (message.reason == "left" or (is_answer and not self._rejoins)))
        if is_over and self.phase is not Phase.OUTSIDE:
            self._end_incarnation(sender, theirs)

    def _end_incarnation(self, sender: Peer, theirs: int) -> None:
        reason = (
            f"{sender.name or sender.node.short} knows this node with incarnation {theirs}, "
            f"this process has {self._view.me.incarnation}: the node runs twice, or its state directory was restored from a copy"
        )
        if self.phase is Phase.MEMBER:
            self._view.agreed.expel_reason = reason
        else:
            self._fail(reason)

    def expel(self, reason: str) -> None:
        """Leave because this incarnation should not have been admitted, and report the reason to the node above."""
        self._send_departing(is_clean=False)
        self._fail(reason)

    def on_accused(self, sender: Peer, message: Accused) -> None:
        """Take a message of a peer on the route that believes this node is dead.

        If this incarnation was in the ring, or nearly, it outranks that knowledge. If not, its number was used before.
        """
        view = self._view
        if self.phase is not Phase.SEEKING or view.agreed.active:
            return
        is_known = view.agreed.rejoined or self._neighbours.handshake.was_invited
        if is_known or message.incarnation != view.me.incarnation:
            if message.refutations < view.refutations:
                return
            if not view.outrank(message.refutations):
                return
            view.set_timer_by("join", view.now + view.config.probe_timeout_ns)
        else:
            self._end_incarnation(sender, message.incarnation)

    def on_admission_confirmed(self, sender: Peer, message: AdmissionConfirmed) -> None:
        """Become a member when the range owner confirms the admission."""
        if self._neighbours.handshake.on_admission_confirmed(sender, message):
            self._become_member()

    def _create_ring(self) -> None:
        """Create a ring of one."""
        agreed = self._view.agreed
        agreed.create_ring(self._view.now)
        agreed.seeking = False
        agreed.name = (agreed.name[0], self._view.me.node)
        self._become_member()

    def _become_member(self) -> None:
        view = self._view
        handshake = self._neighbours.handshake
        self.phase = Phase.MEMBER
        view.joined = view.leaves_changed = True
        view.cancel_timer("join")
        leaves, queued_joins = handshake.leaves, handshake.queued_joins
        handshake.reset()
        for side in (view.agreed.predecessor, view.agreed.successor):
            neighbour_sighting = next(
                (sighting for sighting in leaves if side.peer is not None and sighting.peer.node == side.peer.node),
                None,
            )
            if neighbour_sighting is not None:
                view.meet(neighbour_sighting.peer, neighbour_sighting.refutations)
        self._neighbours.range_owner.take_over(queued_joins)
        view.effects.append(JoinCompleted())
        view.observe(RingJoined(view.now - self._started, self.search.attempt))
        self.search.gather(leaves)
        self._arrival.begin(self.search.take(), leaves)

    # ---- leaving, and joining again

    def abandon(self) -> None:
        """Stop joining."""
        self.phase = Phase.OUTSIDE
        self._stop()

    def _stop(self) -> None:
        view = self._view
        view.joined = False
        view.agreed.reset()
        view.agreed.seeking = False
        self._neighbours.stop()
        self._arrival.stop()
        self.search.bootstrap.stop()
        view.cancel_timer("join")

    def rejoin(self, reason: str, through: Peer | None) -> None:
        """Leave a ring that goes on without this node, and join again with one more refutation of the same incarnation."""
        view = self._view
        agreed, handshake = view.agreed, self._neighbours.handshake
        contacts = [side.peer for side in (agreed.predecessor, agreed.successor) if side.peer is not None]
        contacts.extend(view.leaf_set.members)
        contacts.extend(sighting.peer for sighting in handshake.leaves)
        contacts.extend(view.book.lost)
        was_member = view.joined
        self._rejoins = self._rejoins or was_member
        self.ring_creation.saw_ring(0)
        self._stop()
        view.clear_tables()
        view.refutations += 1
        view.agreed.rejoined += 1
        if was_member:
            view.effects.append(Rejoining(reason))
        view.observe(RingRejoining(reason))
        self.search.keep(contacts)
        self._begin()
        rest_ns, agreed.rest_ns = agreed.rest_ns, 0
        if rest_ns:
            view.set_timer("join", view.now + rest_ns)
            return
        if through is None:
            self._seek()
        else:
            self.search.seek_through(through)

    def leave(self, *, is_clean: bool) -> None:
        """Take leave of all peers; records have been handed over.

        Not clean: a change is pending between this node and its ring neighbours, so to them it just falls silent.
        """
        self._send_departing(is_clean=is_clean)
        self._view.effects.append(LeaveCompleted())
        self._view.observe(RingLeft())

    def _send_departing(self, *, is_clean: bool) -> None:
        view = self._view
        sides = (view.agreed.predecessor.peer, view.agreed.successor.peer)
        involved = [side.node for side in sides if side is not None]
        for peer in view.known():
            if is_clean or peer.node not in involved:
                view.send(peer, Departing())
        self.phase = Phase.OUTSIDE
        self.ring_creation.has_left = not view.agreed.is_alone
        self._stop()

    def violations(self) -> list[str]:
        """Check that phase and flags agree, and that a search has a timer."""
        view = self._view
        agreed, phase = view.agreed, self.phase
        complaints = [*self._arrival.violations(), *self._neighbours.violations(), *self.search.bootstrap.violations()]
        flags = (view.joined, agreed.confirmed, agreed.seeking)
        if flags != (phase is Phase.MEMBER, phase is Phase.MEMBER, phase is Phase.SEEKING):
            complaints.append(f"phase: {phase.name}, but joined, confirmed, seeking are {flags}")
        if phase is Phase.SEEKING:
            complaints.extend(view.missing_timer("join"))
        if phase is Phase.OUTSIDE and agreed.active:
            complaints.append("phase: OUTSIDE, and it may deliver")
        return complaints
