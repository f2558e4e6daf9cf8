"""The range owner's side of a join: its queue, and the admission of one joiner at a time. Joins get here by `join_route`.

Every key range between two agreed neighbours has one owner, its counter-clockwise end. It alone decides on members, so that the
two ends cannot disagree. A joiner X comes between this node A and its successor B (the same node in a ring of one):
    free          joiners wait →      inviting: InviteJoiner → the middle one of the queue, 4 times 250 ms
    inviting      JoinerReady →       transferring: A stops for X's keys; until := now + admission; TransferRange → B
    inviting      JoinerBusy, or silence → free: A has promised nothing
    transferring  RangeTaken, in time → free: X is the successor; AdmissionConfirmed → X, with the part of the queue beyond it
    transferring  time over →         revoking: X has stopped by its own clock; A has its keys back; RevokeTransfer → B, repeated
    revoking      TransferRevoked →   free
    revoking      silence →           out, if messages of the successor arrive all the while: it does not receive A's, so no joiner
                                      could ever be admitted here. A rejoins after the waiting joiners, next to one of them
    replacing     a joiner asks, after long → out, in the same way: A cannot agree with a new successor
    any           late RangeTaken →   AdmissionExpired → X; a repeated one of the successor: AdmissionConfirmed again

The middle of the queue goes first: the queue halves, and both key ranges continue in parallel. Source: the project's overlay
specification §5, step 7 a to e.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.agreement import Admission, AdmissionStage
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import JoinRefused, JoinRequest
from agiledart_overlay.wire.observations import AdmissionAborted, JoinerAdmitted
from agiledart_overlay.wire.ring_messages import (
    MAX_LOST,
    MAX_QUEUED_JOINS,
    AdmissionConfirmed,
    AdmissionExpired,
    InviteJoiner,
    JoinerBusy,
    JoinerReady,
    JoinQueued,
    QueryTransfer,
    QueuedJoin,
    RangeTaken,
    RenewLease,
    RevokeTransfer,
    TransferRange,
    TransferRevoked,
)

_INVITATIONS = 4
"""Times that a joiner is invited before the next one's turn comes."""


class RangeOwner:
    """Admission of joiners, one at a time."""

    __slots__ = ("_queue", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._queue: dict[NodeId, QueuedJoin] = {}

    # ---- the queue

    def enqueue(self, queued_join: QueuedJoin) -> None:
        """Queue a joiner of this node's key range."""
        view = self._view
        joiner, admitting = queued_join.joiner, view.agreed.admitting
        if admitting is not None and admitting.queued_join.joiner.node == joiner.node:
            view.send(joiner, JoinQueued(queued_join.attempt))
        elif len(self._queue) >= view.config.join_queue and joiner.node not in self._queue:
            view.send(joiner, JoinRefused(queued_join.attempt, "busy"))
        else:
            self._queue[joiner.node] = queued_join
            view.agreed.has_changed = True
            if len(self._queue) > 1 or not self._is_free():
                view.send(joiner, JoinQueued(queued_join.attempt))
            closing = view.agreed.closing
            if closing is not None and self._is_blocking_joins(closing.since):
                self._rejoin_elsewhere("it cannot replace its dead successor")

    def take_over(self, queued_joins: tuple[QueuedJoin, ...]) -> None:
        """Queue the joiners that the range owner hands over, which lie beyond this node."""
        for queued_join in queued_joins:
            if len(self._queue) < self._view.config.join_queue:
                self._queue.setdefault(queued_join.joiner.node, queued_join)

    def dismiss(self) -> None:
        """Dismiss the queue: this node admits no joiners any more; they ask other nodes."""
        for queued_join in self._queue.values():
            self._view.send(queued_join.joiner, JoinRefused(queued_join.attempt, "busy"))
        self._queue.clear()
        self._view.cancel_timer("admit")

    def _is_free(self) -> bool:
        agreed = self._view.agreed
        return (
            agreed.admitting is None
            and agreed.revoking is None
            and agreed.closing is None
            and not agreed.successor.is_dead
            and agreed.is_fit(self._view.now)
        )

    def consider(self) -> None:
        """Invite the next joiner if this node is free to."""
        view = self._view
        agreed = view.agreed
        if agreed.postponed is not None:
            self._queue.setdefault(agreed.postponed.joiner.node, agreed.postponed)
            agreed.postponed = None
        if not self._queue or not self._is_free():
            return
        successor = agreed.successor.peer
        assert successor is not None
        inside: list[QueuedJoin] = []
        for node in sorted(self._queue, key=lambda node: (node - view.me.node) & agreed.mask):
            queued_join = self._queue[node]
            if agreed.is_between(view.me, node, successor):
                inside.append(queued_join)
            elif node != successor.node:
                del self._queue[node]
                pass_on(
                    view,
                    successor,
                    JoinRequest(queued_join.joiner, queued_join.attempt, refutations=queued_join.refutations),
                    walking=True,
                )
        if not inside:
            return
        queued_join = inside[len(inside) // 2]
        del self._queue[queued_join.joiner.node]
        agreed.admitting = Admission(agreed.ticket(), queued_join)
        self._invite()

    # ---- one admission

    def _invite(self) -> None:
        view = self._view
        admitting = view.agreed.admitting
        assert admitting is not None
        view.send(admitting.queued_join.joiner, InviteJoiner(admitting.ticket, view.refutations, view.leaf_sightings()))
        view.set_timer("admit", view.now + view.config.handshake_retry_ns)

    def on_timer(self) -> None:
        """Repeat an unanswered message, or give it up."""
        view = self._view
        agreed, admitting = view.agreed, view.agreed.admitting
        if admitting is None:
            self._revoke()
        elif admitting.stage is AdmissionStage.INVITING:
            admitting.tries += 1
            if admitting.tries < _INVITATIONS:
                self._invite()
            else:
                self._end()
        elif view.now >= admitting.until:
            self._abort(admitting)
        else:
            self._request_transfer(admitting)
        if agreed.admitting is None and agreed.revoking is None:
            agreed.has_changed = True

    def _end(self) -> None:
        self._view.agreed.admitting = None
        self._view.agreed.has_changed = True

    def _abort(self, admitting: Admission) -> None:
        """Abort: the joiner has stopped by its own clock, so its keys are this node's and its successor's again."""
        view = self._view
        agreed = view.agreed
        agreed.aborted += 1
        view.observe(AdmissionAborted(admitting.queued_join.joiner))
        successor = agreed.successor
        self._end()
        if not successor.is_dead and successor.peer is not None:
            agreed.revoking, agreed.revoking_since = (admitting.ticket, successor.peer), view.now
            self._revoke()

    def _revoke(self) -> None:
        view = self._view
        agreed = view.agreed
        if agreed.revoking is None:
            return
        if agreed.successor.is_dead:
            agreed.revoking = None
            agreed.has_changed = True
            return
        if self._is_blocking_joins(agreed.revoking_since):
            self._rejoin_elsewhere("its successor does not receive its messages")
            return
        ticket, successor = agreed.revoking
        view.send(successor, RevokeTransfer(ticket))
        view.set_timer("admit", view.now + view.config.handshake_retry_ns)

    def _is_blocking_joins(self, since: int) -> bool:
        """Report whether joins have been blocked here for so long that only another range owner may admit them."""
        view = self._view
        return view.now - since >= view.config.merge_after_ns and view.agreed.is_fit(view.now)

    def _rejoin_elsewhere(self, why: str) -> None:
        agreed = self._view.agreed
        agreed.rejoin_reason = f"{why}, and joiners wait in its key range"
        agreed.rest_ns = self._view.config.queue_timeout_ns

    def on_transfer_revoked(self, sender: Peer, message: TransferRevoked) -> None:
        """Note that the successor has its keys back."""
        agreed = self._view.agreed
        if agreed.revoking is not None and agreed.revoking[0] == message.ticket:
            agreed.revoking = None
            agreed.has_changed = True

    def _request_transfer(self, admitting: Admission) -> None:
        view = self._view
        successor = view.agreed.successor.peer
        assert successor is not None
        view.send(successor, TransferRange(admitting.ticket, admitting.queued_join.joiner))
        at = min(view.now + view.config.handshake_retry_ns, admitting.until)
        view.set_timer("admit", at)

    def on_joiner_ready(self, sender: Peer, message: JoinerReady) -> None:
        """Stop for the keys of a ready joiner, and request the same of the successor."""
        view = self._view
        admitting = self._matching(sender, message.ticket)
        if admitting is None or admitting.stage is not AdmissionStage.INVITING or view.agreed.successor.is_dead:
            return
        admitting.stage = AdmissionStage.TRANSFERRING
        admitting.until = view.now + view.config.admission_ns
        admitting.lease = view.now + view.agreed.held(view.config.admission_ns)
        self._request_transfer(admitting)

    def on_joiner_busy(self, sender: Peer, message: JoinerBusy) -> None:
        """Give an invitation up: another range owner was faster, or the joiner is in already."""
        admitting = self._matching(sender, message.ticket)
        if admitting is not None and admitting.stage is AdmissionStage.INVITING:
            self._end()

    def _matching(self, sender: Peer, ticket: object) -> Admission | None:
        admitting = self._view.agreed.admitting
        if admitting is None or admitting.ticket != ticket or admitting.queued_join.joiner.node != sender.node:
            return None
        return admitting if admitting.queued_join.joiner.incarnation == sender.incarnation else None

    def on_range_taken(self, sender: Peer, message: RangeTaken) -> None:
        """Admit the joiner that delivers now, unless it comes too late."""
        view = self._view
        agreed = view.agreed
        admitting = self._matching(sender, message.ticket)
        if admitting is not None and admitting.stage is AdmissionStage.TRANSFERRING and view.now < admitting.until:
            self._admit(sender, message, admitting)
        elif agreed.active and agreed.successor.is_incarnation(sender) and agreed.admitted == message.ticket:
            agreed.successor.promise = max(agreed.successor.promise, view.now + view.config.lease_ns)
            view.send(sender, AdmissionConfirmed(message.ticket, message.at, agreed.name, lost=self._lost(sender)))
        elif agreed.admitting is None or agreed.admitting.ticket != message.ticket:
            view.send(sender, AdmissionExpired(message.ticket))

    def _admit(self, sender: Peer, message: RangeTaken, admitting: Admission) -> None:
        view = self._view
        agreed = view.agreed
        beyond = agreed.successor.peer
        # It promised when it took the range, which was after its JoinerReady came.
        agreed.successor.confirm_neighbour(sender, view.now, admitting.lease, view.now + view.config.lease_ns)
        agreed.admitting, agreed.admitted, agreed.has_changed = None, message.ticket, True
        handed_over = [
            queued_join for node, queued_join in self._queue.items() if agreed.is_between(sender, node, beyond)
        ][:MAX_QUEUED_JOINS]
        for queued_join in handed_over:
            del self._queue[queued_join.joiner.node]
        view.observe(JoinerAdmitted(sender))
        view.meet(sender, message.refutations)
        view.send(
            sender, AdmissionConfirmed(message.ticket, message.at, agreed.name, tuple(handed_over), self._lost(sender))
        )
        view.send(sender, RenewLease(to_predecessor=False, at=view.now, refutations=view.refutations, name=agreed.name))

    def _lost(self, joiner: Peer) -> tuple[Peer, ...]:
        return tuple(peer for peer in self._view.book.lost if peer.node != joiner.node)[-MAX_LOST:]

    def on_query_transfer(self, sender: Peer, message: QueryTransfer) -> None:
        """Answer the successor of an earlier admission, unless the admission is open or the joiner is in."""
        view = self._view
        agreed = view.agreed
        is_open = agreed.admitting is not None and agreed.admitting.ticket == message.ticket
        is_in = agreed.successor.peer is not None and agreed.successor.peer.node == message.joiner.node
        if message.ticket[0] == view.me.node and not is_open and not is_in:
            view.send(sender, RevokeTransfer(message.ticket))

    def violations(self) -> list[str]:
        """Check that an admission has a timer, that its joiner is not queued, and that the queue is bounded."""
        view = self._view
        agreed, admitting = view.agreed, view.agreed.admitting
        complaints = view.missing_timer("admit") if admitting is not None or agreed.revoking is not None else []
        if admitting is not None and admitting.queued_join.joiner.node in self._queue:
            complaints.append(f"queue: {admitting.queued_join.joiner.node.short} waits, and is being admitted")
        if len(self._queue) > view.config.join_queue + 1:  # one was invited when the successor died
            complaints.append(f"bound: {len(self._queue)} joiners wait, at most {view.config.join_queue}")
        return complaints


def pass_on(view: View, to: Peer, message: JoinRequest, *, walking: bool) -> None:
    """Send a join to the next node on its route."""
    path = (*message.path, view.me)
    view.send(to, JoinRequest(message.joiner, message.attempt, path, walking, refutations=message.refutations))
