"""Leases between agreed ring neighbours: each requests one once a round, grants them at once, and refuses them with a reason.

The same messages are the signs of life of ring neighbours, so there is no second stream of probes.

    here                 message            there                                    answer
    in the ring          RenewLease →       in the ring, and a neighbour             LeaseGranted: `lease` from receipt
                                            in the ring, and no neighbour            NotNeighbour: rejoin
                                            in the ring, both own leases expired     none (see `lease_expiry`)
                                            not in the ring                          NotInRing: dead at once

The holder counts a lease from the sending of its request, and shorter by the margin for drift; the granter from the receipt. A
refusal echoes its request and counts only when that was sent after the two became neighbours, so a late copy does no harm.

A neighbour is dead when it is silent for `dead_after`, or believed dead by `liveness`, *and* this node's own promise to it is
over; or at once when it reports that it is outside or leaves, or when a later incarnation of it has spoken. A wrong detector
costs time only: a node takes over only keys that no other node delivers any more.

Source: the project's overlay specification §5, step 7 f and g.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.range_transfer import confirm_neighbour
from agiledart_overlay.state.agreement import AdmissionStage, AgreedNeighbour, Agreement
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.ring_messages import (
    LeaseGranted,
    NotInRing,
    NotNeighbour,
    RenewLease,
    RingName,
    SeekPredecessor,
)
from agiledart_overlay.wire.sightings import Vitals


class Leases:
    """Leases of one node, as holder and granter."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    # ---- rounds

    def on_round(self) -> list[Peer]:
        """Renew both leases, and detect dead neighbours; return the neighbours that were asked now and must answer."""
        view = self._view
        agreed = view.agreed
        asked: list[Peer] = []
        if not agreed.confirmed:
            return asked
        if agreed.unchecked is None:
            predecessor, successor = agreed.predecessor.peer, agreed.successor.peer
            if predecessor is not None and predecessor.node != view.me.node:
                self.renew(predecessor, to_predecessor=True)
                asked.append(predecessor)
            if successor is not None and successor.node != view.me.node and agreed.closing is None:
                self.renew(successor, to_predecessor=False)
                if successor.node not in (peer.node for peer in asked):
                    asked.append(successor)
        self.look_for_dead()
        if agreed.predecessor.is_dead and not agreed.is_alone:
            self._seek()
        return asked

    def renew(self, peer: Peer, *, to_predecessor: bool) -> None:
        """Request a lease."""
        view = self._view
        view.send(peer, RenewLease(to_predecessor, view.now, view.refutations, view.agreed.name))

    def look_for_dead(self) -> None:
        """Mark a neighbour dead when it is silent and the own promise to it is over."""
        view = self._view
        agreed = view.agreed
        if not agreed.confirmed:
            return
        for side in (agreed.predecessor, agreed.successor):
            peer = side.peer
            if side.is_dead or peer is None or peer.node == view.me.node:
                continue
            if view.now - side.last_received_at <= view.config.dead_after_ns and peer.node in view.book:
                continue
            if view.now > side.promise:
                side.is_dead = agreed.has_changed = True
            else:
                view.set_timer_by("promise", side.promise + 1)

    def _seek(self) -> None:
        """Introduce this node to the next leaf counter-clockwise, which must replace its dead successor by this node."""
        view = self._view
        for peer in view.leaf_set.counterclockwise:
            if not view.agreed.predecessor.is_incarnation(peer):
                view.send(peer, SeekPredecessor(view.refutations))
                return

    def on_slept(self) -> None:
        """Reset silences: this node was late itself, so neighbours that it did not receive from are not to blame."""
        agreed = self._view.agreed
        agreed.predecessor.last_received_at = agreed.successor.last_received_at = self._view.now

    # ---- granting

    def on_renew(self, sender: Peer, message: RenewLease) -> None:
        """Answer a lease request of a neighbour, or of a node that takes itself for one."""
        view = self._view
        agreed = view.agreed
        if not agreed.active:
            view.send(sender, NotInRing(message.at))
        elif agreed.confirmed and not agreed.is_fit(view.now):
            return
        elif message.to_predecessor:
            self._grant_successor(sender, message)
        else:
            self._grant_predecessor(sender, message)

    def _grant_successor(self, sender: Peer, message: RenewLease) -> None:
        """Answer a sender that takes this node for its predecessor."""
        view = self._view
        agreed, side = view.agreed, view.agreed.successor
        if agreed.closing is not None:
            candidate = agreed.closing.candidate
            if candidate is None or candidate.node == sender.node:
                return
            if side.is_incarnation(sender) or agreed.is_between(view.me, sender.node, candidate):
                agreed.returned = sender
                agreed.has_changed = True
                return
        if side.is_incarnation(sender) and agreed.confirmed:
            side.is_dead = False
            self._grant(side, sender, message)
        elif agreed.confirmed and not (
            agreed.admitting is not None and agreed.admitting.queued_join.joiner.node == sender.node
        ):
            view.send(sender, NotNeighbour(message.to_predecessor, message.at))

    def _grant_predecessor(self, sender: Peer, message: RenewLease) -> None:
        """Answer a sender that takes this node for its successor."""
        view = self._view
        agreed, side = view.agreed, view.agreed.predecessor
        confirm_neighbour(view, sender, message.refutations)
        if side.is_incarnation(sender):
            side.is_dead = False
            self._grant(side, sender, message)
        elif agreed.pending_transfer is None and agreed.confirmed:
            view.send(sender, NotNeighbour(message.to_predecessor, message.at))

    def _grant(self, side: AgreedNeighbour, sender: Peer, message: RenewLease) -> None:
        view = self._view
        side.last_received_at = view.now
        side.promise = view.now + view.config.lease_ns
        view.meet(sender, message.refutations)
        view.send(
            sender,
            LeaseGranted(message.to_predecessor, message.at, view.agreed.name, view.distances.vitals.load_permille),
        )
        self.adopt_name(message.name)

    def adopt_name(self, name: RingName) -> None:
        """Adopt the larger of two names of one ring, and pass a new one on at once."""
        agreed = self._view.agreed
        if not agreed.confirmed or name <= agreed.name:
            return
        agreed.name = name
        for side, to_predecessor in ((agreed.predecessor, True), (agreed.successor, False)):
            is_other = side.peer is not None and side.peer.node != agreed.me.node
            if is_other and not side.is_dead and agreed.unchecked is None and agreed.closing is None:
                assert side.peer is not None
                self.renew(side.peer, to_predecessor=to_predecessor)

    # ---- holding

    def on_lease(self, sender: Peer, message: LeaseGranted) -> None:
        """Take a granted lease."""
        view = self._view
        agreed = view.agreed
        if not agreed.active:
            return
        side = agreed.predecessor if message.to_predecessor else agreed.successor
        if not side.is_incarnation(sender) or message.at < side.since or message.at > view.now:
            return
        if not message.to_predecessor and agreed.closing is not None:
            return
        side.lease = max(side.lease, message.at + agreed.held(view.config.lease_ns))
        side.last_received_at = view.now
        view.measure(sender.node, Instant(message.at))
        known = view.book.get(sender.node)
        if known is not None and known.vitals is not None and known.vitals.load_permille != message.load_permille:
            known.vitals = Vitals(known.vitals.coordinate, message.load_permille)
        self.adopt_name(message.name)

    def on_not_neighbour(self, sender: Peer, message: NotNeighbour) -> None:
        """Rejoin when a neighbour has another neighbour here. During a pending transfer it only means that the joiner is in."""
        agreed = self._view.agreed
        if not agreed.confirmed:
            return
        if message.to_predecessor:
            counts = agreed.predecessor.is_incarnation(sender) and agreed.pending_transfer is None
            counts = counts and message.at >= agreed.predecessor.since
        else:
            counts = agreed.successor.is_incarnation(sender) and message.at >= agreed.successor.since
        if counts:
            agreed.rejoin_reason = "its neighbours have other neighbours"

    def on_not_in_ring(self, sender: Peer, message: NotInRing) -> None:
        """Note that a neighbour has stopped."""
        view = self._view
        agreed = view.agreed
        if not agreed.active:
            return
        for side in (agreed.predecessor, agreed.successor):
            if side.is_incarnation(sender) and message.at >= side.since:
                lose(agreed, sender)
                known = view.book.get(sender.node)
                if known is not None and known.peer.incarnation == sender.incarnation:
                    view.step_aside(known)
                return

    def on_left(self, peer: Peer) -> None:
        """Note that a neighbour left. It would not leave during a pending transfer."""
        agreed = self._view.agreed
        if not agreed.active:
            return
        admitting = agreed.admitting
        if (
            admitting is not None
            and admitting.stage is AdmissionStage.TRANSFERRING
            and agreed.successor.is_incarnation(peer)
        ):
            agreed.admitting = None
            agreed.has_changed = True
        lose(agreed, peer)

    def on_seek(self, sender: Peer, message: SeekPredecessor) -> None:
        """Note that a peer whose predecessor is dead is alive."""
        if self._view.joined:
            self._view.meet(sender, message.refutations)


def lose(agreed: Agreement, peer: Peer) -> None:
    """Mark this incarnation of a neighbour as dead: it certainly delivers no keys any more."""
    if agreed.predecessor.is_incarnation(peer) and agreed.pending_transfer is None and peer.node != agreed.me.node:
        agreed.predecessor.is_dead = agreed.has_changed = True
    if agreed.successor.is_incarnation(peer) and not agreed.successor.is_dead and peer.node != agreed.me.node:
        agreed.successor.is_dead = agreed.has_changed = True
        admitting = agreed.admitting
        if admitting is not None and admitting.stage is AdmissionStage.INVITING:
            agreed.admitting = None
            agreed.postponed = admitting.queued_join
