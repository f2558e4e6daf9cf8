"""The joiner's side of an admission: it takes one invitation at a time, takes the offered key range, and waits for confirmation.

    idle         InviteJoiner →        invited: JoinerReady → range owner; t0 := now, once for each ticket, however often repeated
    invited      OfferRange →          provisional: delivers from now on, until t0 + admission; RangeTaken → range owner, repeated
    invited      time over →           idle
    provisional  AdmissionConfirmed →  in the ring: RenewLease → successor, which only now takes it as its predecessor
    provisional  AdmissionExpired →    out: it has stopped by its own clock, and rejoins
    provisional  no answer until a moment after the offer + admission → out, in the same way. The range owner began to count
                 before that offer was made, so it has confirmed this node by then or never will
    invited      another InviteJoiner → JoinerBusy
    any          an InviteJoiner that was given up, or whose time is over → JoinerBusy: it never begins again
    idle         QueryTransfer →       RevokeTransfer: that invitation will never bring it in

t0 must not move with a repeated invitation: the range owner counts from the first JoinerReady that reached it, so a later t0
could let the joiner deliver longer than the range owner leaves its keys free for it. Nor may t0 begin anew when the node has
taken other invitations, or has been a member and rejoins: copies of an invitation and its offer may come however late, over two
delayed links. So the last ticket of each range owner is remembered for the whole life of the process.

Source: the project's overlay specification §5, step 7 b and d.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import Sighting
from agiledart_overlay.wire.ring_messages import (
    AdmissionConfirmed,
    AdmissionExpired,
    InviteJoiner,
    JoinerBusy,
    JoinerReady,
    OfferRange,
    QueryTransfer,
    QueuedJoin,
    RangeTaken,
    RenewLease,
    RevokeTransfer,
    Ticket,
)

_MAX_BEGUN = 256
"""Range owners whose last ticket is remembered: a copy would have to be later than the admissions by as many others."""


class Invitation:
    """Invitation that this joiner has answered."""

    __slots__ = ("began", "offered", "range_owner", "refutations", "sightings", "ticket")

    def __init__(self, ticket: Ticket, range_owner: Peer, message: InviteJoiner, began: Instant) -> None:
        self.ticket, self.range_owner, self.began, self.offered = ticket, range_owner, began, began
        self.refutations, self.sightings = message.refutations, message.sightings


class Handshake:
    """Admissions of this node itself."""

    __slots__ = ("_begun", "_invitation", "_view", "leaves", "queued_joins")

    def __init__(self, view: View) -> None:
        self._view = view
        self._invitation: Invitation | None = None
        self._begun: dict[NodeId, Ticket] = {}
        self.queued_joins: tuple[QueuedJoin, ...] = ()
        """Joiners handed over with the confirmation."""
        self.leaves: tuple[Sighting, ...] = ()
        """Leaves that range owner and successor reported."""

    @property
    def is_invited(self) -> bool:
        """Report whether an admission of this node is in progress."""
        invitation = self._invitation
        return invitation is not None and self._view.now < invitation.began + self._view.config.admission_ns

    @property
    def was_invited(self) -> bool:
        """Report whether any range owner has ever begun to admit this incarnation: peers may know it from that."""
        return bool(self._begun)

    def reset(self) -> None:
        """Begin anew."""
        self._invitation = None
        self.queued_joins, self.leaves = (), ()
        self._view.cancel_timer("taken")

    def on_invite_joiner(self, sender: Peer, message: InviteJoiner) -> None:
        """Take a range owner's invitation."""
        view = self._view
        agreed, invitation = view.agreed, self._invitation
        is_other = invitation is not None and invitation.ticket != message.ticket
        if agreed.active or not agreed.seeking or (is_other and self.is_invited) or message.ticket[0] != sender.node:
            view.send(sender, JoinerBusy(message.ticket))
            return
        if invitation is None or is_other:
            if message.ticket <= self._begun.get(sender.node, (sender.node, 0, 0)):
                view.send(sender, JoinerBusy(message.ticket))
                return
            self._begin(Invitation(message.ticket, sender, message, view.now))
        view.send(sender, JoinerReady(message.ticket))

    def _begin(self, invitation: Invitation) -> None:
        self._invitation = invitation
        self._begun.pop(invitation.range_owner.node, None)
        self._begun[invitation.range_owner.node] = invitation.ticket
        if len(self._begun) > _MAX_BEGUN:
            del self._begun[next(iter(self._begun))]

    def on_offer_range(self, sender: Peer, message: OfferRange) -> None:
        """Take the offered key range: no other node delivers this node's keys now."""
        view = self._view
        agreed, invitation = view.agreed, self._invitation
        if agreed.active or not agreed.seeking or invitation is None or invitation.ticket != message.ticket:
            return
        lease = invitation.began + agreed.held(view.config.admission_ns)
        if view.now >= lease:
            return
        agreed.active, invitation.offered = True, view.now
        promise = view.now + view.config.lease_ns
        agreed.predecessor.confirm_neighbour(invitation.range_owner, view.now, lease, promise)
        agreed.successor.confirm_neighbour(sender, view.now, lease, promise)
        own = (Sighting(invitation.range_owner, invitation.refutations), Sighting(sender, message.refutations))
        self.leaves = (*own, *invitation.sightings, *message.sightings)
        self._send_taken(invitation)

    def _send_taken(self, invitation: Invitation) -> None:
        view = self._view
        view.send(invitation.range_owner, RangeTaken(invitation.ticket, view.now, view.refutations))
        view.set_timer("taken", view.now + view.config.handshake_retry_ns)

    def on_timer(self) -> None:
        """Repeat `RangeTaken`, or give up, when no confirmation came."""
        view = self._view
        agreed, invitation = view.agreed, self._invitation
        if invitation is None or not agreed.active or agreed.confirmed:
            return
        if view.now > invitation.offered + view.config.admission_ns + view.config.handshake_retry_ns:
            agreed.rejoin_reason = "its range owner did not confirm its admission"
        else:
            self._send_taken(invitation)

    def on_admission_confirmed(self, sender: Peer, message: AdmissionConfirmed) -> bool:
        """Enter the ring when the range owner confirms; return True when that is new."""
        view = self._view
        agreed, invitation = view.agreed, self._invitation
        if not agreed.active or agreed.confirmed or invitation is None or invitation.ticket != message.ticket:
            return False
        if (
            invitation.range_owner.incarnation_key != sender.incarnation_key
            or not invitation.began <= message.at <= view.now
        ):
            return False
        predecessor, successor = agreed.predecessor, agreed.successor
        agreed.confirmed = agreed.has_changed = True
        agreed.seeking = False
        agreed.name = message.name
        predecessor.lease = max(predecessor.lease, message.at + agreed.held(view.config.lease_ns))
        predecessor.last_received_at = successor.last_received_at = view.now
        predecessor.promise = successor.promise = view.now + view.config.lease_ns
        assert successor.peer is not None
        view.send(successor.peer, RenewLease(False, view.now, view.refutations, agreed.name))
        self.queued_joins = message.queued_joins
        view.book.inherit(message.lost, view.now)
        view.cancel_timer("taken")
        return True

    def on_admission_expired(self, sender: Peer, message: AdmissionExpired) -> None:
        """Leave when the range owner has given this admission up."""
        agreed, invitation = self._view.agreed, self._invitation
        if agreed.active and not agreed.confirmed and invitation is not None and invitation.ticket == message.ticket:
            agreed.rejoin_reason = "its range owner has given its admission up"

    def on_query_transfer(self, sender: Peer, message: QueryTransfer) -> None:
        """Answer the successor of an own admission, which asks for the outcome."""
        view = self._view
        agreed = view.agreed
        is_of_earlier_incarnation = message.joiner.incarnation < view.me.incarnation
        if agreed.confirmed and agreed.successor.is_incarnation(sender) and not is_of_earlier_incarnation:
            view.send(sender, RenewLease(False, view.now, view.refutations, agreed.name))
        elif not agreed.active or is_of_earlier_incarnation:
            if self._invitation is not None and self._invitation.ticket == message.ticket:
                self._invitation = None
            view.send(sender, RevokeTransfer(message.ticket))

    def violations(self) -> list[str]:
        """Check that a provisional node repeats `RangeTaken` until it is confirmed, and that tickets are bounded."""
        complaints = []
        agreed = self._view.agreed
        if agreed.active and not agreed.confirmed:
            complaints = (
                self._view.missing_timer("taken")
                if self._invitation is not None
                else ["joiner: it took a key range without an offer"]
            )
        if len(self._begun) > _MAX_BEGUN:
            complaints.append(f"bound: {len(self._begun)} tickets, at most {_MAX_BEGUN}")
        return complaints
