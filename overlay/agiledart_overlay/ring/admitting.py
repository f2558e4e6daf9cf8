"""The guardian's side of a join: its queue, and the admission of one joiner at a time. How joins get here: `join_route`.

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
    closing   for long, and a joiner asks → out, in the same way: A and its successor cannot come to an agreement
    any       late Taken →       TooLate → X; a repeated one of the successor: Confirmed again

The middle of the queue goes first: the queue halves, and both gaps go on in parallel.

Source: the project's overlay specification §5, step 7 a to e.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.agreement import Admitting, Stage
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import JoinRefused, JoinRequest
from agiledart_overlay.wire.observations import AdmissionAborted, JoinerAdmitted
from agiledart_overlay.wire.ring_messages import (
    MAX_CALLS,
    MAX_LOST,
    Busy,
    Call,
    Confirmed,
    Here,
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

_CALLS = 4
"""Times that a joiner is called before the next one's turn comes."""


class Guardian:
    """Lets joiners in, one at a time."""

    __slots__ = ("_queue", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._queue: dict[NodeId, JoinCall] = {}

    # ---- the queue

    def enqueue(self, call: JoinCall) -> None:
        """A joiner of this node's gap waits for its turn."""
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
            closing = view.agreed.closing
            if closing is not None and self._is_in_the_way(closing.since):
                self._make_room("it cannot close the gap behind it")

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
                pass_on(
                    view, successor, JoinRequest(call.joiner, call.attempt, refutations=call.refutations), walking=True
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
        if self._is_in_the_way(agreed.retracting_since):
            self._make_room("its successor does not hear it")
            return
        ticket, successor = agreed.retracting
        view.send(successor, Unyield(ticket))
        view.set_timer("admit", view.now + view.config.handshake_retry_ns)

    def _is_in_the_way(self, since: int) -> bool:
        """Whether something has kept this gap shut for so long that only another guardian may open it."""
        view = self._view
        return view.now - since >= view.config.merge_after_ns and view.agreed.is_fit(view.now)

    def _make_room(self, why: str) -> None:
        agreed = self._view.agreed
        agreed.refused = f"{why}, and others wait to come between"
        agreed.rest_ns = self._view.config.queue_patience_ns

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
            view.send(sender, Confirmed(message.ticket, message.at, agreed.name, lost=self._lost(sender)))
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
        view.send(sender, Confirmed(message.ticket, message.at, agreed.name, tuple(handed), self._lost(sender)))
        view.send(sender, Renew(to_predecessor=False, at=view.now, refutations=view.refutations, name=agreed.name))

    def _lost(self, joiner: Peer) -> tuple[Peer, ...]:
        return tuple(peer for peer in self._view.book.lost if peer.node != joiner.node)[-MAX_LOST:]

    def on_what_of_yield(self, sender: Peer, message: WhatOfYield) -> None:
        """The successor of an earlier admission asks what came of it; silence while it is open, or when the joiner is in."""
        view = self._view
        agreed = view.agreed
        is_open = agreed.admitting is not None and agreed.admitting.ticket == message.ticket
        is_in = agreed.successor.peer is not None and agreed.successor.peer.node == message.joiner.node
        if message.ticket[0] == view.me.node and not is_open and not is_in:
            view.send(sender, Unyield(message.ticket))

    def violations(self) -> list[str]:
        """The timer is set while an admission is under way; who is being admitted waits no more; the queue is bounded."""
        view = self._view
        agreed, admitting = view.agreed, view.agreed.admitting
        found = view.unguarded("admit") if admitting is not None or agreed.retracting is not None else []
        if admitting is not None and admitting.call.joiner.node in self._queue:
            found.append(f"queue: {admitting.call.joiner.node.short} waits, and is being admitted")
        if len(self._queue) > view.config.join_queue + 1:  # one was called when the successor died
            found.append(f"bound: {len(self._queue)} joiners wait, at most {view.config.join_queue}")
        return found


def pass_on(view: View, to: Peer, message: JoinRequest, *, walking: bool) -> None:
    """Send a join to the next one on its way."""
    path = (*message.path, view.me)
    view.send(to, JoinRequest(message.joiner, message.attempt, path, walking, refutations=message.refutations))
