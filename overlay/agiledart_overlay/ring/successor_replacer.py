"""Replacement of a dead successor, by the owner of the key range: the member whose successor is dead.

    range owner A, successor dead: ProposeNeighbour → the next leaf C clockwise; silent six times: the next one; none: alone
    C answers   NeighbourAccepted   its predecessor is A, or was dead and it knows no live node between: A and C are neighbours
                NeighbourElsewhere  a node is between, alive or not yet known to be dead: A asks that one
                NeighbourNotReady   it lives but cannot answer yet (a transfer is pending, it has no lease itself, or one of the
                                    dead between may still have some): silence would count as death
                NeighbourRefused    its predecessor lies beyond A: the ring has closed over A, which rejoins; or C is in no ring
    alone       all old acquaintances and seeds are asked. One is in a ring: rejoin through it. None answers: a ring of one

A node takes over no more than the keys between itself and the other end, and each end only when its own dead neighbour can
deliver no more (`leases`). So it does no harm if the dead were not dead: they find that the ring has closed over them, and
rejoin.

Source: the project's overlay specification §5, step 7 g.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.range_transfer import confirm_neighbour
from agiledart_overlay.state.agreement import SuccessorReplacement
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import PeerProbe
from agiledart_overlay.wire.observations import SuccessorReplaced
from agiledart_overlay.wire.ring_messages import (
    LeaseGranted,
    NeighbourAccepted,
    NeighbourElsewhere,
    NeighbourNotReady,
    NeighbourRefused,
    ProposeNeighbour,
    RenewLease,
)

_TRIES = 6
"""Times that a candidate is asked before it counts as dead."""

_DETOURS = 12
"""Times that a candidate may name a node that was silent here before that node is asked again."""

_ALONE_TRIES = 3
"""Times that acquaintances are asked before this node creates a ring of one."""


class SuccessorReplacer:
    """Dead neighbours on both sides of one node."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    # ---- the range owner

    def consider(self) -> None:
        """Begin to replace the successor if it is dead and no other change is pending."""
        view = self._view
        agreed = view.agreed
        returned, agreed.returned = agreed.returned, None
        if returned is not None and agreed.closing is not None:
            # It lives and takes this node for its predecessor: no node is nearer.
            self._ask(returned, {})
            return
        if agreed.closing is not None or agreed.admitting is not None or not agreed.successor.is_dead:
            return
        if agreed.is_fit(view.now):
            agreed.revoking = None
            successor = agreed.successor.peer
            self._next({successor.node: None} if successor is not None else {})

    def _next(self, passed_over: dict[NodeId, None]) -> None:
        view = self._view
        for peer in view.leaf_set.clockwise:
            if peer.node not in passed_over:
                self._ask(peer, passed_over)
                return
        self._ask(None, passed_over)

    def _ask(self, candidate: Peer | None, passed_over: dict[NodeId, None]) -> None:
        now, agreed = self._view.now, self._view.agreed
        since = agreed.closing.since if agreed.closing is not None else now
        agreed.closing = SuccessorReplacement(agreed.ticket(), candidate, passed_over, now, since)
        self._send(agreed.closing)

    def _send(self, closing: SuccessorReplacement) -> None:
        view = self._view
        closing.sent_at = view.now
        if closing.candidate is not None:
            view.send(closing.candidate, ProposeNeighbour(closing.ticket, view.now, view.refutations, view.agreed.name))
        else:
            for peer in view.fallback_peers():
                view.send(peer, PeerProbe(view.number(), view.refutations, joined=False))
        view.set_timer("close", view.now + view.config.handshake_retry_ns)

    def on_timer(self) -> None:
        """Ask again, or ask the next one, when the candidate or all acquaintances did not answer."""
        closing = self._view.agreed.closing
        if closing is None:
            return
        closing.tries += 1
        if closing.candidate is None:
            if closing.tries >= _ALONE_TRIES:
                self._remain()
            else:
                self._send(closing)
        elif closing.tries >= _TRIES:
            self._next({**closing.passed_over, closing.candidate.node: None})
        else:
            self._send(closing)

    def _remain(self) -> None:
        """Become a ring of one when no node is left, as soon as no other node can deliver any of it."""
        view = self._view
        agreed = view.agreed
        predecessor = agreed.predecessor
        assert predecessor.peer is not None
        is_own = predecessor.peer.node == view.me.node
        if not is_own and (not predecessor.is_dead or agreed.pending_transfer is not None):
            if predecessor.is_dead:
                view.set_timer("close", view.now + view.config.handshake_retry_ns)
            else:
                self._ask(predecessor.peer, {})
            return
        agreed.create_ring(view.now)
        view.observe(SuccessorReplaced(view.me))

    def on_slept(self) -> None:
        """Reset tries: silence while this node slept means nothing."""
        if self._view.agreed.closing is not None:
            self._view.agreed.closing.tries = 0

    def on_member(self) -> None:
        """Rejoin when an acquaintance of a lonely node is in a ring."""
        agreed = self._view.agreed
        if agreed.closing is not None and agreed.closing.candidate is None:
            agreed.rejoin_reason = "it was alone, and others are in a ring"

    def _current(self, sender: Peer, ticket: object) -> SuccessorReplacement | None:
        closing = self._view.agreed.closing
        if closing is None or closing.ticket != ticket or closing.candidate is None:
            return None
        return closing if closing.candidate.node == sender.node else None

    def on_neighbour_accepted(self, sender: Peer, message: NeighbourAccepted) -> None:
        """Make the candidate the successor."""
        view = self._view
        agreed = view.agreed
        closing = self._current(sender, message.ticket)
        if closing is None or message.close_at > view.now:
            return
        if not agreed.is_fit(view.now):
            # It lives, and has taken this node for its neighbour: it is asked again until this node may finish.
            closing.tries = 0
            return
        lease = message.close_at + agreed.held(view.config.lease_ns)
        agreed.successor.confirm_neighbour(sender, view.now, lease, view.now + view.config.lease_ns)
        agreed.closing, agreed.has_changed = None, True
        view.cancel_timer("close")
        view.meet(sender, message.refutations)
        view.send(sender, LeaseGranted(True, message.at, agreed.name, view.distances.vitals.load_permille))
        view.observe(SuccessorReplaced(sender))

    def on_neighbour_elsewhere(self, sender: Peer, message: NeighbourElsewhere) -> None:
        """Ask a nearer node that the candidate named."""
        view = self._view
        closing = self._current(sender, message.ticket)
        if closing is None or not view.agreed.is_between(view.me, message.nearer.node, sender):
            return
        if message.nearer.node not in closing.passed_over:
            self._ask(message.nearer, closing.passed_over)
            return
        # This node already believes that node dead; the other will see, or this one is wrong.
        closing.tries = 0
        closing.detours += 1
        if closing.detours >= _DETOURS:
            self._ask(message.nearer, closing.passed_over)

    def on_neighbour_not_ready(self, sender: Peer, message: NeighbourNotReady) -> None:
        """Note that the candidate lives."""
        closing = self._current(sender, message.ticket)
        if closing is not None:
            closing.tries = 0

    def on_refused(self, sender: Peer, message: NeighbourRefused) -> None:
        """Take a refusal: the candidate is in no ring, or in one without this node."""
        closing = self._current(sender, message.ticket)
        if closing is None:
            return
        if message.outside:
            self._next({**closing.passed_over, sender.node: None})
        else:
            self._view.agreed.rejoin_reason = "the ring has closed over it"

    # ---- the other end

    def on_propose_neighbour(self, sender: Peer, message: ProposeNeighbour) -> None:
        """Answer a range owner that asks whether this node is next to it."""
        view = self._view
        agreed = view.agreed
        ticket, side = message.ticket, view.agreed.predecessor
        if not agreed.active:
            view.send(sender, NeighbourRefused(ticket, outside=True))
            return
        if not agreed.is_fit(view.now):
            view.send(sender, NeighbourNotReady(ticket))
            return
        confirm_neighbour(view, sender, message.refutations)
        pending_transfer = agreed.pending_transfer
        if pending_transfer is not None and side.is_incarnation(sender) and ticket > pending_transfer.ticket:
            # It has confirmed the joiner, which died before it spoke to this node.
            agreed.finish(pending_transfer.ticket)
            agreed.pending_transfer = pending_transfer = None
        if side.peer is None or pending_transfer is not None:
            view.send(sender, NeighbourNotReady(ticket))
            return
        if side.is_incarnation(sender):
            side.is_dead = False
        elif not agreed.is_between(sender, side.peer.node, view.me):
            view.send(sender, NeighbourRefused(ticket, outside=False))
            return
        elif (nearer := self._nearer(sender, side.peer)) is not None:
            view.send(sender, NeighbourElsewhere(ticket, nearer))
            return
        elif self._may_deliver(sender, side.peer):
            view.send(sender, NeighbourNotReady(ticket))
            return
        else:
            side.confirm_neighbour(sender, view.now, 0, 0)
            agreed.has_changed = True
        side.last_received_at, side.promise = view.now, view.now + view.config.lease_ns
        view.meet(sender, message.refutations)
        view.send(sender, NeighbourAccepted(ticket, message.at, view.now, view.refutations))

    def _may_deliver(self, sender: Peer, predecessor: Peer) -> bool:
        """Report whether a dead node between may still hold leases: one that fell silent later than both ends' own neighbours.

        The promises of the two ends concern their own dead neighbours only. One in the middle cannot have got a lease since it is
        silent.
        """
        view = self._view
        oldest = view.now - view.config.lease_ns
        return any(
            tombstone.silent_since > oldest
            and not tombstone.has_left
            and tombstone.peer.node != predecessor.node
            and view.agreed.is_between(sender, tombstone.peer.node, view.me)
            for tombstone in view.book.tombstones
        )

    def _nearer(self, sender: Peer, predecessor: Peer) -> Peer | None:
        """Return a node between the range owner and this node that is not known to be dead, and have it checked."""
        view = self._view
        agreed = view.agreed
        if not agreed.predecessor.is_dead:
            view.send(predecessor, RenewLease(True, view.now, view.refutations, agreed.name))
            view.refilled.append(predecessor.node)
            return predecessor
        for peer in reversed(view.leaf_set.counterclockwise):
            if agreed.is_between(sender, peer.node, view.me):
                view.refilled.append(peer.node)
                return peer
        return None
