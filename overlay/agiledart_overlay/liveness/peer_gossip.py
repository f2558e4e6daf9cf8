"""Gossip about peers: it changes no table. A reported peer that would fit and is unknown is probed, and its answer introduces it.

Source: the project's overlay specification §5, steps 5 and 6, and §6.
"""

from collections.abc import Iterable

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import PeerProbe, Sighting

_MAX_ASKED = 512
_CLEARLY = 0.8
"""A peer known by gossip is contacted when it would cost less than this share of the entry that it would replace."""


class PeerGossip:
    """Probes of one node to peers that others reported."""

    __slots__ = ("_asked", "_view")

    def __init__(self, view: View) -> None:
        self._view = view
        self._asked: dict[NodeId, tuple[int, Instant]] = {}

    def receive_sightings(self, sightings: Iterable[Sighting]) -> None:
        """Contact reported peers that would fit and are unknown, as gossip itself changes nothing."""
        view = self._view
        if not view.joined:
            return
        alive, leaves = view.book.alive, view.leaf_set.by_id
        contacts_left = view.config.gossip_contacts
        for sighting in sightings:
            peer = sighting.peer
            if leaves.get(peer.node) is peer:
                continue
            known = alive.get(peer.node)
            if known is not None and known.is_placed:
                if known.peer is not peer and known.peer.incarnation < peer.incarnation:
                    self.contact(sighting)
            elif view.leaf_set.fits(peer.node):
                self.contact(sighting)
            elif contacts_left and self.would_improve(sighting) and self.contact(sighting):
                contacts_left -= 1

    def would_improve(self, sighting: Sighting) -> bool:
        """Report whether an unknown peer would fill an empty slot or neighbour place, or clearly undercut the best entry there."""
        view = self._view
        node = sighting.peer.node
        if node == view.me.node:
            return False
        primary = view.routing_table.primary(node)
        if primary is None or view.neighbourhood.has_free_slot:
            return True
        if sighting.coordinate is None:
            return False
        rtt = view.distances.guessed_rtt_ns(sighting.coordinate)
        if rtt is None:
            return False
        if rtt < _CLEARLY * view.neighbourhood.worst_ns:
            return True
        return view.distances.cost_at(sighting.peer, rtt) < _CLEARLY * view.distances.cost(primary)

    def contact(self, sighting: Sighting) -> bool:
        """Probe a reported peer, and introduce this node; return False when it is dead or was asked just now."""
        view = self._view
        peer = sighting.peer
        node = peer.node
        if node == view.me.node or view.book.is_dead(peer, sighting.refutations) or not self._may_ask(node):
            return False
        number = view.number()
        self._asked[node] = (number, view.now)
        view.send(peer, PeerProbe(number, view.refutations, view.joined, view.distances.vitals))
        return True

    def asked_at(self, node: NodeId, number: int) -> Instant | None:
        """Return the instant at which this node sent the contact with this number, if it did."""
        asked = self._asked.get(node)
        return asked[1] if asked is not None and asked[0] == number else None

    def _may_ask(self, node: NodeId) -> bool:
        view = self._view
        asked = self._asked.get(node)
        if asked is not None and view.now - asked[1] < view.config.probe_timeout_ns:
            return False
        if len(self._asked) >= _MAX_ASKED:
            self.forget_old()
        return len(self._asked) < _MAX_ASKED

    def forget_old(self) -> None:
        """Drop questions that will not be answered any more."""
        view = self._view
        oldest = view.now - 4 * view.config.probe_timeout_ns
        for node in [node for node, (_, at) in self._asked.items() if at < oldest]:
            del self._asked[node]

    def violations(self) -> list[str]:
        """Check that questions are bounded."""
        return [f"bound: {len(self._asked)} contacts, at most {_MAX_ASKED}"] if len(self._asked) > _MAX_ASKED else []
