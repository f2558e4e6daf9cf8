"""Behaviour of a node whose two leases have expired: it slept, or was cut off, and its neighbours may have replaced it.

Until it knows better it is not *fit*: it delivers, grants, admits, transfers and replaces nothing. It asks all its leaves. If one
fit leaf answers that the ring has closed over it, it rejoins. When all have answered or are silent for `dead_after` it is fit.
Without this, several adjacent sleepers would wake up, grant each other leases, and deliver keys that others took over.

A check in progress when the node slept again begins anew. Source: the project's overlay specification §5, step 7 h.
"""

from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.ring_messages import MembershipReply, QueryMembership


class LeaseExpiry:
    """Checks of one node after both its leases expired."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def on_round(self) -> None:
        """Begin a check when it is due, ask again, or end it."""
        view = self._view
        agreed = view.agreed
        if not agreed.confirmed:
            return
        if agreed.unchecked is None:
            if view.now < max(agreed.predecessor.lease, agreed.successor.lease, agreed.cleared):
                return
            self._begin()
        assert agreed.unchecked is not None
        waiting = {node: peer for node, peer in agreed.unchecked.items() if node in view.book}
        agreed.unchecked = waiting
        if not waiting or view.now - agreed.check_began > view.config.dead_after_ns:
            agreed.unchecked = None
            agreed.cleared = view.now + view.config.dead_after_ns + view.config.lease_ns
            agreed.has_changed = True
            return
        for peer in waiting.values():
            view.send(peer, QueryMembership(view.now))

    def _begin(self) -> None:
        agreed = self._view.agreed
        agreed.unchecked = {peer.node: peer for peer in self._view.leaf_set.members}
        agreed.check_began = self._view.now

    def on_slept(self) -> None:
        """Discard results from before this node slept."""
        agreed = self._view.agreed
        agreed.cleared = 0
        if agreed.unchecked is not None:
            self._begin()

    def on_query_membership(self, sender: Peer, message: QueryMembership) -> None:
        """Answer a peer that asks whether it is still in the ring."""
        view = self._view
        agreed = view.agreed
        predecessor, successor = agreed.predecessor, agreed.successor
        is_over_it = (
            view.book.is_dead(sender, 0)
            or (not successor.is_incarnation(sender) and agreed.is_between(view.me, sender.node, successor.peer))
            or (not predecessor.is_incarnation(sender) and agreed.is_between(predecessor.peer, sender.node, view.me))
        )
        # Only a node that is itself in a working ring may send others away.
        view.send(sender, MembershipReply(message.at, ok=not (is_over_it and agreed.is_fit(view.now))))

    def on_membership_reply(self, sender: Peer, message: MembershipReply) -> None:
        """Take a leaf's answer."""
        agreed = self._view.agreed
        if agreed.unchecked is None or message.at < agreed.check_began or sender.node not in agreed.unchecked:
            return
        if message.ok:
            del agreed.unchecked[sender.node]
            if not agreed.unchecked:
                self.on_round()
        else:
            agreed.rejoin_reason = "the ring has closed over it"
