"""The joiner's side of an admission: it takes one call at a time, takes the place it is offered, and waits to be confirmed.

    idle         Call →        called: Here → guardian; t0 := now, once for each ticket, however often the call is repeated
    called       Place →       provisional: delivers from now on, until t0 + admission; Taken → guardian, repeated
    called       time over →   idle
    provisional  Confirmed →   in the ring: Renew → successor, which only now takes it for its predecessor; then `arrival`
    provisional  TooLate, or no answer a moment after t0 + admission → out: it has stopped by its own clock, and joins again
    called       another Call → Busy
    any          a Call whose time has begun and is over, or was given up → Busy: it never begins again
    idle         WhatOfYield → Unyield: that call will never bring it in

t0 must not move with a repeated call: the guardian counts from the first Here that reached it, so a later t0 could let the joiner
deliver longer than the guardian holds its keys free for it. Nor may it begin anew when the node has taken other calls, or has been
a member and joins again: copies of a Call and of its Place may come however late, from two links that were held. So the last ticket
of each guardian is remembered for the whole life of the process.

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
"""Guardians whose last ticket is remembered: a copy would have to be later than the admissions by as many others."""


class Invitation:
    """A call that this joiner has answered."""

    __slots__ = ("began", "range_owner", "refutations", "sightings", "ticket")

    def __init__(self, ticket: Ticket, range_owner: Peer, message: InviteJoiner, began: Instant) -> None:
        self.ticket, self.range_owner, self.began = ticket, range_owner, began
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
        """What guardian and successor told of their leaves."""

    @property
    def is_invited(self) -> bool:
        """Whether an admission of this node is under way."""
        invitation = self._invitation
        return invitation is not None and self._view.now < invitation.began + self._view.config.admission_ns

    @property
    def was_invited(self) -> bool:
        """Whether any guardian has ever begun to let this life in: others may know it by that."""
        return bool(self._begun)

    def reset(self) -> None:
        """Begin anew."""
        self._invitation = None
        self.queued_joins, self.leaves = (), ()
        self._view.cancel_timer("taken")

    def on_invite_joiner(self, sender: Peer, message: InviteJoiner) -> None:
        """A guardian has time for this node."""
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
        """Nobody delivers this node's keys now: it does."""
        view = self._view
        agreed, invitation = view.agreed, self._invitation
        if agreed.active or not agreed.seeking or invitation is None or invitation.ticket != message.ticket:
            return
        lease = invitation.began + agreed.held(view.config.admission_ns)
        if view.now >= lease:
            return
        agreed.active = True
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
        """Not confirmed yet."""
        view = self._view
        agreed, invitation = view.agreed, self._invitation
        if invitation is None or not agreed.active or agreed.confirmed:
            return
        if view.now > invitation.began + view.config.admission_ns + view.config.handshake_retry_ns:
            agreed.rejoin_reason = "its guardian did not confirm it"
        else:
            self._send_taken(invitation)

    def on_admission_confirmed(self, sender: Peer, message: AdmissionConfirmed) -> bool:
        """The guardian counts this node as its successor: it is in. True when that is new."""
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
        """The guardian has given this admission up."""
        agreed, invitation = self._view.agreed, self._invitation
        if agreed.active and not agreed.confirmed and invitation is not None and invitation.ticket == message.ticket:
            agreed.rejoin_reason = "its guardian has given up"

    def on_query_transfer(self, sender: Peer, message: QueryTransfer) -> None:
        """The successor of an admission of this node asks what came of it."""
        view = self._view
        agreed = view.agreed
        is_of_earlier_life = message.joiner.incarnation < view.me.incarnation
        if agreed.confirmed and agreed.successor.is_incarnation(sender) and not is_of_earlier_life:
            view.send(sender, RenewLease(False, view.now, view.refutations, agreed.name))
        elif not agreed.active or is_of_earlier_life:
            if self._invitation is not None and self._invitation.ticket == message.ticket:
                self._invitation = None
            view.send(sender, RevokeTransfer(message.ticket))

    def violations(self) -> list[str]:
        """Who has taken a place tells its guardian until it is confirmed; tickets are bounded."""
        found = []
        agreed = self._view.agreed
        if agreed.active and not agreed.confirmed:
            found = (
                self._view.missing_timer("taken")
                if self._invitation is not None
                else ["joiner: it took a place that nobody offered"]
            )
        if len(self._begun) > _MAX_BEGUN:
            found.append(f"bound: {len(self._begun)} tickets, at most {_MAX_BEGUN}")
        return found
