"""The guardian's side of a join: passing requests on to it, its queue, and the admission of one joiner at a time.

Every gap between two agreed neighbours has one guardian, its counter-clockwise end. It alone says who is in, so that the two
ends cannot disagree. A joiner X comes between this node A and its successor B (the same node in a ring of one):

    free      joiners wait →     calling: Call → the middle one of the queue, 4 times 250 ms
    calling   Here →             yielding: A stops for X's keys; until := now + admission; Yield → B
    calling   Busy, or silence → free: nothing was promised
    yielding  Taken, in time →   free: X is the successor; Confirmed → X, with the part of the queue that lies beyond it
    yielding  time over →        retracting: X has stopped by its own clock; A has its keys back; Unyield → B, repeated
    retracting Unyielded →       free
    retracting silence →         out, when the successor is heard all the while: it does not hear A, so nobody could ever be let in
                                 here. A joins again after those that waited, and is next to one of them
    any       late Taken →       TooLate → X; a repeated one of the successor: Confirmed again

The middle of the queue goes first: the queue halves, and both gaps go on in parallel.

Source: the project's overlay specification §5, step 7 a to e.
"""

from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import NodeId, clockwise_distance
from agiledart_kernel.peer import Peer
from agiledart_overlay.agreement import Admitting, Stage
from agiledart_overlay.messages import Accused, JoinRefused, JoinRequest, JoinRows
from agiledart_overlay.observations import AdmissionAborted, JoinerAdmitted
from agiledart_overlay.ring_messages import (
    MAX_CALLS,
    Busy,
    Call,
    Confirmed,
    Here,
    JoinBounced,
    JoinCall,
    Queued,
    Renew,
    Taken,
    TooLate,
    Unyield,
    Unyielded,
    WhatOfYield,
    Yield,
)
from agiledart_overlay.view import View

_CALLS = 4
"""Times that a joiner is called before the next one's turn comes."""


class Guardian:
    """Lets joiners in, one at a time."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._queue: dict[NodeId, JoinCall] = {}

    # ---- on the way to the guardian

    def on_join_request(self, sender: Peer, message: JoinRequest) -> None:
        """Pass a join on towards its place, or queue it."""
        view = self._view
        if not view.joined:
            if message.path and message.joiner.node not in (sender.node, view.me.node):
                call = JoinCall(message.joiner, message.attempt, message.refutations)
                view.send(sender, JoinBounced(call, message.path, message.walking))
            view.drop("outside")
        else:
            self._bring(message)

    def on_bounced(self, sender: Peer, message: JoinBounced) -> None:
        """The node that this join was passed to is not in the ring: out of the tables with it, and another way."""
        view = self._view
        known = view.book.get(sender.node)
        if known is not None and known.peer.incarnation == sender.incarnation:
            view.step_aside(known)
        if message.walking:
            # Agreed neighbours stay agreed while one of them is outside: the same way again would bounce again, for ever, and a
            # network that doubles messages would make a storm of it. The joiner asks anew when nobody calls it.
            view.drop("outside")
            return
        if view.joined and len(message.path) and message.path[-1].node == view.me.node:
            call = message.call
            self._bring(
                JoinRequest(call.joiner, call.attempt, message.path[:-1], message.walking, refutations=call.refutations)
            )

    def _bring(self, message: JoinRequest) -> None:
        view = self._view
        joiner = message.joiner
        if joiner.node == view.me.node or len(message.path) >= MAX_PATH:
            view.drop("join-path")
            return
        if self._is_refused(message):
            return
        if not message.walking:
            self._send_rows(message)
            hop = view.next_hop(joiner.node, (joiner.node,)).peer
            if hop is not None:
                if message.attempt > 1:
                    self._look_at(hop)
                self._pass_on(hop, message, walking=False)
                return
        self._walk(message)

    def _is_refused(self, message: JoinRequest) -> bool:
        """A copy of a node that lives or lived: refused. One that was held for dead and rejoins: told to say so."""
        view = self._view
        joiner = message.joiner
        known, grave = view.book.get(joiner.node), view.book.grave(joiner.node)
        other = known.peer if known is not None else grave.peer if grave is not None else None
        if other is None or other.incarnation < joiner.incarnation:
            return False
        is_final = grave is not None and grave.has_left
        if other.incarnation > joiner.incarnation or message.refutations == 0 or is_final:
            view.send(joiner, JoinRefused(message.attempt, "incarnation", other.incarnation))
            return True
        if grave is not None and message.refutations <= grave.refutations:
            view.send(joiner, Accused(grave.refutations, grave.peer.incarnation))
            return True
        return False

    def _look_at(self, hop: Peer) -> None:
        """An earlier try of a joiner came to nothing, perhaps since the way leads over the dead: tables find theirs when used."""
        view = self._view
        known = view.book.get(hop.node)
        if known is not None and view.now - known.heard_at > view.config.probe_interval_ns:
            view.refilled.append(hop.node)

    def _send_rows(self, message: JoinRequest) -> None:
        view = self._view
        told = list(view.routing_table.rows_for(message.joiner.node))
        if not message.path:
            told.extend(view.neighbourhood.nearest)
        unique = {peer.node: peer for peer in told if peer.node != message.joiner.node}
        sightings = view.sightings(unique.values())
        view.send(message.joiner, JoinRows(message.attempt, len(message.path), sightings))

    def _pass_on(self, to: Peer, message: JoinRequest, *, walking: bool) -> None:
        path = (*message.path, self._view.me)
        self._view.send(
            to, JoinRequest(message.joiner, message.attempt, path, walking, refutations=message.refutations)
        )

    def _walk(self, message: JoinRequest) -> None:
        """Along agreed neighbours to the member whose gap the joiner lies in."""
        view = self._view
        agreed = view.agreed
        joiner = message.joiner
        predecessor, successor = agreed.predecessor.peer, agreed.successor.peer
        if predecessor is None or successor is None or agreed.leaving:
            view.drop("outside")
            return
        call = JoinCall(joiner, message.attempt, message.refutations)
        if agreed.is_between(view.me, joiner.node, successor):
            self._enqueue(call)
        elif joiner.node == successor.node:
            # Its earlier life, or its earlier membership, has not ended here yet: it says so itself when asked.
            view.send(joiner, Renew(to_predecessor=False, at=view.now, refutations=view.refutations, name=agreed.name))
            self._enqueue(call)
        elif joiner.node == predecessor.node:
            view.send(joiner, Renew(to_predecessor=True, at=view.now, refutations=view.refutations, name=agreed.name))
            beyond = next((peer for peer in view.leaf_set.counterclockwise if peer.node != joiner.node), None)
            if beyond is not None:
                self._pass_on(beyond, message, walking=True)
        else:
            bits = view.config.id_bits
            ahead = clockwise_distance(view.me.node, joiner.node, bits)
            is_ahead = ahead < clockwise_distance(joiner.node, view.me.node, bits)
            self._pass_on(successor if is_ahead else predecessor, message, walking=True)

    # ---- the queue

    def _enqueue(self, call: JoinCall) -> None:
        view = self._view
        joiner, admitting = call.joiner, view.agreed.admitting
        if admitting is not None and admitting.call.joiner.node == joiner.node:
            view.send(joiner, Queued(call.attempt))
        elif len(self._queue) >= view.config.join_queue and joiner.node not in self._queue:
            view.send(joiner, JoinRefused(call.attempt, "busy"))
        else:
            self._queue[joiner.node] = call
            view.agreed.stirred = True
            if len(self._queue) > 1 or not self._is_free():
                view.send(joiner, Queued(call.attempt))

    def take_over(self, calls: tuple[JoinCall, ...]) -> None:
        """The guardian that admitted this node hands over those that wait beyond it."""
        for call in calls:
            if len(self._queue) < self._view.config.join_queue:
                self._queue.setdefault(call.joiner.node, call)

    def dismiss(self) -> None:
        """This node admits nobody any more; those that wait ask others."""
        for call in self._queue.values():
            self._view.send(call.joiner, JoinRefused(call.attempt, "busy"))
        self._queue.clear()
        self._view.cancel_timer("admit")

    def _is_free(self) -> bool:
        agreed = self._view.agreed
        return (
            agreed.admitting is None
            and agreed.retracting is None
            and agreed.closing is None
            and not agreed.successor.is_dead
            and agreed.is_fit(self._view.now)
        )

    def consider(self) -> None:
        """Call the next joiner if this node is free to."""
        view = self._view
        agreed = view.agreed
        if agreed.postponed is not None:
            self._queue.setdefault(agreed.postponed.joiner.node, agreed.postponed)
            agreed.postponed = None
        if not self._queue or not self._is_free():
            return
        successor = agreed.successor.peer
        assert successor is not None
        inside: list[JoinCall] = []
        for node in sorted(self._queue, key=lambda node: (node - view.me.node) & agreed.mask):
            call = self._queue[node]
            if agreed.is_between(view.me, node, successor):
                inside.append(call)
            elif node != successor.node:
                del self._queue[node]
                self._pass_on(
                    successor, JoinRequest(call.joiner, call.attempt, refutations=call.refutations), walking=True
                )
        if not inside:
            return
        call = inside[len(inside) // 2]
        del self._queue[call.joiner.node]
        agreed.admitting = Admitting(agreed.ticket(), call)
        self._call()

    # ---- one admission

    def _call(self) -> None:
        view = self._view
        admitting = view.agreed.admitting
        assert admitting is not None
        view.send(admitting.call.joiner, Call(admitting.ticket, view.refutations, view.leaf_sightings()))
        view.set_timer("admit", view.now + view.config.handshake_retry_ns)

    def on_timer(self) -> None:
        """Something was not answered: repeat it, or give it up."""
        view = self._view
        agreed, admitting = view.agreed, view.agreed.admitting
        if admitting is None:
            self._retract()
        elif admitting.stage is Stage.CALLING:
            admitting.tries += 1
            if admitting.tries < _CALLS:
                self._call()
            else:
                self._end()
        elif view.now >= admitting.until:
            self._abort(admitting)
        else:
            self._ask_to_yield(admitting)
        if agreed.admitting is None and agreed.retracting is None:
            agreed.stirred = True

    def _end(self) -> None:
        self._view.agreed.admitting = None
        self._view.agreed.stirred = True

    def _abort(self, admitting: Admitting) -> None:
        """The joiner has stopped by its own clock, so its keys are this node's and its successor's again."""
        view = self._view
        agreed = view.agreed
        agreed.aborted += 1
        view.observe(AdmissionAborted(admitting.call.joiner))
        successor = agreed.successor
        self._end()
        if not successor.is_dead and successor.peer is not None:
            agreed.retracting, agreed.retracting_since = (admitting.ticket, successor.peer), view.now
            self._retract()

    def _retract(self) -> None:
        view = self._view
        agreed = view.agreed
        if agreed.retracting is None:
            return
        if agreed.successor.is_dead:
            agreed.retracting = None
            agreed.stirred = True
            return
        if view.now - agreed.retracting_since >= view.config.merge_after_ns and agreed.is_fit(view.now):
            agreed.refused = "its successor does not hear it, and others wait to come between"
            agreed.rest_ns = view.config.queue_patience_ns
            return
        ticket, successor = agreed.retracting
        view.send(successor, Unyield(ticket))
        view.set_timer("admit", view.now + view.config.handshake_retry_ns)

    def on_unyielded(self, sender: Peer, message: Unyielded) -> None:
        """The successor has its keys back."""
        agreed = self._view.agreed
        if agreed.retracting is not None and agreed.retracting[0] == message.ticket:
            agreed.retracting = None
            agreed.stirred = True

    def _ask_to_yield(self, admitting: Admitting) -> None:
        view = self._view
        successor = view.agreed.successor.peer
        assert successor is not None
        view.send(successor, Yield(admitting.ticket, admitting.call.joiner))
        at = min(view.now + view.config.handshake_retry_ns, admitting.until)
        view.set_timer("admit", at)

    def on_here(self, sender: Peer, message: Here) -> None:
        """The joiner is there and waits: stop for its keys, and have the successor do so."""
        view = self._view
        admitting = self._matching(sender, message.ticket)
        if admitting is None or admitting.stage is not Stage.CALLING or view.agreed.successor.is_dead:
            return
        admitting.stage = Stage.YIELDING
        admitting.until = view.now + view.config.admission_ns
        admitting.lease = view.now + view.agreed.held(view.config.admission_ns)
        self._ask_to_yield(admitting)

    def on_busy(self, sender: Peer, message: Busy) -> None:
        """Another guardian was faster, or it is in."""
        admitting = self._matching(sender, message.ticket)
        if admitting is not None and admitting.stage is Stage.CALLING:
            self._end()

    def _matching(self, sender: Peer, ticket: object) -> Admitting | None:
        admitting = self._view.agreed.admitting
        if admitting is None or admitting.ticket != ticket or admitting.call.joiner.node != sender.node:
            return None
        return admitting if admitting.call.joiner.incarnation == sender.incarnation else None

    def on_taken(self, sender: Peer, message: Taken) -> None:
        """The joiner delivers: it is in, unless it comes too late."""
        view = self._view
        agreed = view.agreed
        admitting = self._matching(sender, message.ticket)
        if admitting is not None and admitting.stage is Stage.YIELDING and view.now < admitting.until:
            self._admit(sender, message, admitting)
        elif agreed.active and agreed.successor.is_life(sender) and agreed.admitted == message.ticket:
            agreed.successor.promise = max(agreed.successor.promise, view.now + view.config.lease_ns)
            view.send(sender, Confirmed(message.ticket, message.at, agreed.name))
        elif agreed.admitting is None or agreed.admitting.ticket != message.ticket:
            view.send(sender, TooLate(message.ticket))

    def _admit(self, sender: Peer, message: Taken, admitting: Admitting) -> None:
        view = self._view
        agreed = view.agreed
        beyond = agreed.successor.peer
        # It promised when it took the place, which was after its Here came.
        agreed.successor.settle(sender, view.now, admitting.lease, view.now + view.config.lease_ns)
        agreed.admitting, agreed.admitted, agreed.stirred = None, message.ticket, True
        handed = [call for node, call in self._queue.items() if agreed.is_between(sender, node, beyond)][:MAX_CALLS]
        for call in handed:
            del self._queue[call.joiner.node]
        view.observe(JoinerAdmitted(sender))
        view.meet(sender, message.refutations)
        view.send(sender, Confirmed(message.ticket, message.at, agreed.name, tuple(handed)))
        view.send(sender, Renew(to_predecessor=False, at=view.now, refutations=view.refutations, name=agreed.name))

    def on_what_of_yield(self, sender: Peer, message: WhatOfYield) -> None:
        """The successor of an earlier admission asks what came of it; silence while it is open, or when the joiner is in."""
        view = self._view
        agreed = view.agreed
        is_open = agreed.admitting is not None and agreed.admitting.ticket == message.ticket
        is_in = agreed.successor.peer is not None and agreed.successor.peer.node == message.joiner.node
        if message.ticket[0] == view.me.node and not is_open and not is_in:
            view.send(sender, Unyield(message.ticket))
