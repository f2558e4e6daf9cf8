"""Dispatch of peers' messages about themselves (present, joined, leaving) that concern several parts of the node."""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.peer import Peer
from agiledart_overlay.join.membership import Membership
from agiledart_overlay.join.node_arrival import NodeArrival
from agiledart_overlay.liveness.failure_detector import FailureDetector, step_out
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.ring.neighbours import Neighbours
from agiledart_overlay.routing.repair import Repair
from agiledart_overlay.state.view import View
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire.effects import PeerLeft


class PeerMessageDispatcher:
    """Dispatcher of such messages to the parts of one node."""

    __slots__ = ("_arrival", "_liveness", "_membership", "_neighbours", "_peer_gossip", "_repair", "_view")

    def __init__(
        self,
        view: View,
        peer_gossip: PeerGossip,
        arrival: NodeArrival,
        neighbours: Neighbours,
        membership: Membership,
        liveness: FailureDetector,
        repair: Repair,
    ) -> None:
        self._view, self._peer_gossip, self._arrival, self._neighbours = view, peer_gossip, arrival, neighbours
        self._membership, self._liveness, self._repair = membership, liveness, repair

    def messages(self) -> dict[type, Callable[[Peer, Any], None]]:
        """Return the handler of each message."""
        return {
            wire.PeerProbe: self.on_probe,
            wire.ProbeAck: self.on_probe_ack,
            wire.LeafState: self.on_leaf_state,
            wire.Announce: self.on_announce,
            wire.Announced: self.on_announced,
            wire.Accused: self.on_accused,
            wire.Refute: self.on_refute,
            wire.Departing: self.on_departing,
        }

    def on_probe(self, sender: Peer, message: wire.PeerProbe) -> None:
        """Answer a probe; a probe of a member also introduces its sender."""
        view = self._view
        if message.joined:
            view.meet(sender, message.refutations, message.vitals)
        else:
            known = view.book.get(sender.node)
            if view.joined and known is not None and message.refutations > known.refutations:
                view.step_aside(known, message.refutations)  # it joins again
            self._membership.search.on_fellow(sender)
        view.send(sender, self._membership.ring_creation.answer_to(message.number))

    def on_probe_ack(self, sender: Peer, message: wire.ProbeAck) -> None:
        """Take the answer to any probe of this node."""
        view = self._view
        asked_at = self._peer_gossip.asked_at(sender.node, message.number)
        if message.joined and view.joined:
            view.meet(sender, message.refutations, message.vitals, asked_at)
            if message.ring_age_ms == 0:
                self._neighbours.successor_replacer.on_member()
        elif view.joined:
            step_out(view, sender.node, message.refutations)
        self._liveness.on_probe_ack(sender, message)
        self._membership.search.on_probe_ack(sender, message)

    def on_leaf_state(self, sender: Peer, message: wire.LeafState) -> None:
        """Take a peer's leaf set."""
        if message.joined and self._view.joined:
            self._view.meet(sender, message.refutations)
        self._membership.search.bootstrap.on_leaf_state(sender, message)
        self._repair.on_leaf_state(sender, message)

    def on_announce(self, sender: Peer, message: wire.Announce) -> None:
        """Take a peer's announcement that it is a member, or still is."""
        view = self._view
        if not view.joined:
            view.drop("outside")
            return
        view.meet(sender, message.refutations, message.vitals)
        self._arrival.on_announce(sender, message)

    def on_announced(self, sender: Peer, message: wire.Announced) -> None:
        """Take the answer to an announcement."""
        view = self._view
        if view.joined:
            asked_at = self._arrival.asked_at(sender.node, message.number)
            view.meet(sender, message.refutations, message.vitals, asked_at)
            self._arrival.on_announced(sender, message)

    def on_accused(self, sender: Peer, message: wire.Accused) -> None:
        """Take a message of a peer that believes this node is dead."""
        if self._view.joined:
            self._arrival.on_accused(sender, message)
        else:
            self._membership.on_accused(sender, message)

    def on_refute(self, sender: Peer, message: wire.Refute) -> None:
        """Take a peer's refutation of its death."""
        if self._view.joined:
            self._view.meet(sender, message.refutations)

    def on_departing(self, sender: Peer, _message: wire.Departing) -> None:
        """Remove a departing peer; only a higher incarnation of it can return."""
        view = self._view
        self._liveness.checks.forget(sender.node)
        self._neighbours.leases.on_left(sender)
        known = view.book.get(sender.node)
        if known is not None:
            view.remove(known.peer, known.refutations, has_left=True)
            view.effects.append(PeerLeft(known.peer))
