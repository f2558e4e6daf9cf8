"""Agreed ring as one part: the handlers of its messages, and its work at the end of a step or round.

It composes `leases`, `join_route`, `range_owner`, `range_transfer`, `handshake`, `successor_replacer`, `lease_expiry` and
`merging` over the shared `Agreement`.
"""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.handshake import Handshake
from agiledart_overlay.ring.join_route import JoinRoute
from agiledart_overlay.ring.lease_expiry import LeaseExpiry
from agiledart_overlay.ring.leases import Leases
from agiledart_overlay.ring.merging import Merging
from agiledart_overlay.ring.range_owner import RangeOwner
from agiledart_overlay.ring.range_transfer import RangeTransfer
from agiledart_overlay.ring.successor_replacer import SuccessorReplacer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire import ring_messages as wire
from agiledart_overlay.wire.messages import JoinRequest


class Neighbours:
    """Agreed neighbours of one node."""

    __slots__ = (
        "_view",
        "handshake",
        "join_route",
        "lease_expiry",
        "leases",
        "merging",
        "range_owner",
        "range_transfer",
        "successor_replacer",
        "timers",
    )

    def __init__(self, view: View) -> None:
        self._view = view
        self.leases = Leases(view)
        self.range_owner = RangeOwner(view)
        self.join_route = JoinRoute(view, self.range_owner)
        self.range_transfer = RangeTransfer(view)
        self.handshake = Handshake(view)
        self.successor_replacer = SuccessorReplacer(view)
        self.lease_expiry = LeaseExpiry(view)
        self.merging = Merging(view, self.leases)
        self.timers: dict[str, Callable[[], None]] = {
            "admit": self.range_owner.on_timer,
            "taken": self.handshake.on_timer,
            "close": self.successor_replacer.on_timer,
            "promise": self.leases.look_for_dead,
        }

    def messages(self) -> dict[type, Callable[[Peer, Any], None]]:
        """Return the handler of each message; the machine handles `JoinQueued` and `AdmissionConfirmed`, which concern the whole
        node.
        """
        range_owner, successor_replacer, leases, handshake = (
            self.range_owner,
            self.successor_replacer,
            self.leases,
            self.handshake,
        )
        return {
            JoinRequest: self.join_route.on_join_request,
            wire.JoinBounced: self.join_route.on_bounced,
            wire.InviteJoiner: handshake.on_invite_joiner,
            wire.JoinerReady: range_owner.on_joiner_ready,
            wire.JoinerBusy: range_owner.on_joiner_busy,
            wire.TransferRange: self.range_transfer.on_transfer_range,
            wire.OfferRange: handshake.on_offer_range,
            wire.RangeTaken: range_owner.on_range_taken,
            wire.AdmissionExpired: handshake.on_admission_expired,
            wire.RevokeTransfer: self.range_transfer.on_revoke_transfer,
            wire.TransferRevoked: range_owner.on_transfer_revoked,
            wire.QueryTransfer: self._on_query_transfer,
            wire.RenewLease: leases.on_renew,
            wire.LeaseGranted: leases.on_lease,
            wire.NotNeighbour: leases.on_not_neighbour,
            wire.NotInRing: leases.on_not_in_ring,
            wire.SeekPredecessor: leases.on_seek,
            wire.ProposeNeighbour: successor_replacer.on_propose_neighbour,
            wire.NeighbourAccepted: successor_replacer.on_neighbour_accepted,
            wire.NeighbourElsewhere: successor_replacer.on_neighbour_elsewhere,
            wire.NeighbourNotReady: successor_replacer.on_neighbour_not_ready,
            wire.NeighbourRefused: successor_replacer.on_refused,
            wire.QueryMembership: self.lease_expiry.on_query_membership,
            wire.MembershipReply: self.lease_expiry.on_membership_reply,
            wire.RingProbe: self.merging.on_ring_probe,
            wire.RingState: self.merging.on_ring_state,
        }

    def _on_query_transfer(self, sender: Peer, message: wire.QueryTransfer) -> None:
        if message.joiner.node == self._view.me.node:
            self.handshake.on_query_transfer(sender, message)
        else:
            self.range_owner.on_query_transfer(sender, message)

    def on_round(self) -> list[Peer]:
        """Run a round, once per `lease_renewal_ns`; return the peers that were asked and must answer at once."""
        view = self._view
        config = view.config
        view.agreed.wake_deadline = view.now + config.lease_renewal_ns + config.paused_ns
        self.lease_expiry.on_round()
        asked = self.leases.on_round()
        self.range_transfer.on_round()
        self.merging.on_round()
        view.agreed.has_changed = True
        return asked

    def on_slept(self) -> None:
        """Discard suspicions and results from before this node slept."""
        view = self._view
        view.agreed.wake_deadline = view.now + view.config.lease_renewal_ns + view.config.paused_ns
        self.leases.on_slept()
        self.lease_expiry.on_slept()
        self.successor_replacer.on_slept()

    def consider(self) -> None:
        """Act on a change: a dead successor may now be replaced, a joiner invited."""
        agreed = self._view.agreed
        while agreed.has_changed:
            agreed.has_changed = False
            self.successor_replacer.consider()
            self.range_owner.consider()

    def violations(self) -> list[str]:
        """Check the agreement, and the timers of pending answers."""
        view = self._view
        complaints = [*view.agreed.violations(view.now), *self.range_owner.violations(), *self.handshake.violations()]
        if view.agreed.closing is not None:
            complaints.extend(view.missing_timer("close"))
        return complaints

    def stop(self) -> None:
        """Stop: this node is out of the ring."""
        self.range_owner.dismiss()
        self.handshake.reset()
        for name in self.timers:
            self._view.cancel_timer(name)
