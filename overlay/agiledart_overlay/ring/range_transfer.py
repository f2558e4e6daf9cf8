"""The successor's side of an admission: it stops delivering the joiner's keys, offers them, and waits for the outcome.

    idle      TransferRange of the predecessor → pending: stops for the joiner's keys; OfferRange → joiner
    pending   the same TransferRange again →     OfferRange again
    pending   RenewLease of the joiner →         idle: the joiner is the predecessor now
    pending   RevokeTransfer of range owner or joiner → idle: the keys are its own again; TransferRevoked back
    pending   time over →                        asks range owner and joiner every round. It never takes the keys back on its own,
                                                 so that range owner and successor agree about the nodes between them
    pending   range owner dead, both silent `dead_after` after the time was over → idle: its predecessor is dead

Source: the project's overlay specification §5, step 7 c and e.
"""

from agiledart_kernel.peer import Peer
from agiledart_overlay.state.agreement import PendingTransfer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.ring_messages import (
    OfferRange,
    QueryTransfer,
    RenewLease,
    RevokeTransfer,
    TransferRange,
    TransferRevoked,
)


def confirm_neighbour(view: View, sender: Peer, refutations: int) -> None:
    """Accept a sender that acts as predecessor: in a pending transfer to it, this shows that its range owner has confirmed it."""
    agreed = view.agreed
    pending_transfer = agreed.pending_transfer
    if (
        pending_transfer is None
        or pending_transfer.joiner.node != sender.node
        or pending_transfer.joiner.incarnation != sender.incarnation
    ):
        return
    agreed.finish(pending_transfer.ticket)
    # It promised when it took the offer, which was after this node had stopped for it.
    agreed.predecessor.confirm_neighbour(sender, view.now, pending_transfer.lease, view.now + view.config.lease_ns)
    agreed.pending_transfer = None
    agreed.has_changed = True
    view.meet(sender, refutations)
    if pending_transfer.lease < view.now + view.config.lease_renewal_ns:
        # Its promise as a joiner may end before this node asks it in its next round.
        view.send(sender, RenewLease(to_predecessor=True, at=view.now, refutations=view.refutations, name=agreed.name))


class RangeTransfer:
    """Admissions between this node and its predecessor."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def on_transfer_range(self, sender: Peer, message: TransferRange) -> None:
        """Stop for a joiner's keys when the predecessor admits it, and offer them."""
        view = self._view
        agreed = view.agreed
        if not agreed.is_fit(view.now):
            return
        confirm_neighbour(view, sender, 0)
        ticket, joiner = message.ticket, message.joiner
        if ticket[0] != sender.node or agreed.finished.get(sender.node, ticket) > ticket:
            return
        if agreed.finished.get(sender.node) == ticket or agreed.predecessor.is_dead:
            return
        is_ours = agreed.predecessor.is_incarnation(sender) and agreed.is_between(sender, joiner.node, view.me)
        if not is_ours or (agreed.pending_transfer is not None and agreed.pending_transfer.ticket != ticket):
            return
        if agreed.pending_transfer is None:
            admission_ns = view.config.admission_ns
            until, lease = view.now + admission_ns, view.now + agreed.held(admission_ns)
            agreed.pending_transfer = PendingTransfer(ticket, joiner, sender, until, lease)
        view.send(joiner, OfferRange(ticket, view.refutations, view.leaf_sightings()))

    def on_revoke_transfer(self, sender: Peer, message: RevokeTransfer) -> None:
        """Take the keys back: that admission failed."""
        agreed = self._view.agreed
        ticket = message.ticket
        pending_transfer = agreed.pending_transfer
        if pending_transfer is not None and pending_transfer.ticket == ticket:
            if sender.node not in (pending_transfer.range_owner.node, pending_transfer.joiner.node):
                return
            agreed.pending_transfer = None
            agreed.has_changed = True
            agreed.finish(ticket)
        elif ticket[0] == sender.node:
            agreed.finish(ticket)
        self._view.send(sender, TransferRevoked(ticket))

    def on_round(self) -> None:
        """Ask for the outcome when the time is over, or give both up."""
        view = self._view
        agreed, pending_transfer = view.agreed, view.agreed.pending_transfer
        if pending_transfer is None or view.now <= pending_transfer.until:
            return
        if agreed.predecessor.is_dead and view.now > pending_transfer.until + view.config.dead_after_ns:
            agreed.finish(pending_transfer.ticket)
            agreed.pending_transfer = None
            agreed.has_changed = True
            return
        for peer in (pending_transfer.range_owner, pending_transfer.joiner):
            view.send(peer, QueryTransfer(pending_transfer.ticket, pending_transfer.joiner))
