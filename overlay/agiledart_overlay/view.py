"""The state that the overlay's parts share, and the only places that change it: tables, peer book, timers, effects of this step.

Parts (liveness, membership, repair, forwarding, directory) do not call each other to tell of changes; they change the view, and
at the end of a step the machine tells each part what changed.
"""

from collections.abc import Container, Iterable

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import CancelTimer, Effect, Message, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.config import OverlayConfig
from agiledart_overlay.leaf_set import LeafSet
from agiledart_overlay.messages import MAX_SIGHTINGS, Probe, Sighting
from agiledart_overlay.neighbourhood import Neighbourhood
from agiledart_overlay.observations import MessageDropped
from agiledart_overlay.peer_book import Acquaintance, PeerBook
from agiledart_overlay.router import Hop, next_hop
from agiledart_overlay.routing_table import RoutingTable

_MAX_ASKED = 512
_ZONE_WEIGHT = 0.25
"""Cost of leaving the zone, in median round trips; w_z of the overlay specification §3."""


class View:
    """One node's state; `now` and `effects` are those of the step under way."""

    def __init__(self, me: Peer, config: OverlayConfig, random: RandomStream, observe: Observer) -> None:
        self.me = me
        self.config = config
        self.random = random
        self.observe = observe
        self.now = Instant(0)
        self.effects: list[Effect] = []
        self.joined = False
        self.refutations = 0
        self.leaf_set = LeafSet(me.node, config.leaf_count, config.id_bits)
        self.routing_table = RoutingTable(me.node, config.id_bits, config.digit_bits, config.slot_candidates)
        self.neighbourhood = Neighbourhood(config.neighbour_count)
        self.book = PeerBook()
        self.watched: dict[NodeId, Peer] = {}
        self.gone: list[Peer] = []
        """Peers removed in this step, dead or departed."""
        self.refilled: list[NodeId] = []
        """Peers that came into the leaf set in this step because others went: long not heard of, perhaps dead too."""
        self.leaves_changed = False
        self.sent: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self._asked: dict[NodeId, tuple[int, Instant]] = {}
        self._timers: dict[str, Instant] = {}
        self._number = 0
        self._reference_rtt_ns = 1
        self._leaf_sightings: tuple[Sighting, ...] | None = None

    def number(self) -> int:
        """A number that no other message of this life has."""
        self._number += 1
        return self._number

    def send(self, to: Peer, message: Message) -> None:
        """Send, and count by kind."""
        kind = type(message).__name__
        self.sent[kind] = self.sent.get(kind, 0) + 1
        self.effects.append(Send(to, message))

    def drop(self, reason: str) -> None:
        """Count something thrown away."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.observe(MessageDropped(reason))

    def set_timer(self, name: str, at: int) -> None:
        """Have `TimerFired(("overlay", name))` at an instant, instead of any earlier wish."""
        self._timers[name] = Instant(at)
        self.effects.append(SetTimer(("overlay", name), Instant(at)))

    def set_timer_by(self, name: str, at: int) -> None:
        """The same, unless the timer is set for that instant or an earlier one."""
        armed = self._timers.get(name)
        if armed is None or at < armed:
            self.set_timer(name, at)

    def cancel_timer(self, name: str) -> None:
        """Forget a timer."""
        if self._timers.pop(name, None) is not None:
            self.effects.append(CancelTimer(("overlay", name)))

    def take_timer(self, name: str) -> int | None:
        """A timer fired: how late it is in nanoseconds, or None when it was not set or fires early."""
        at = self._timers.get(name)
        if at is None or at > self.now:
            return None
        del self._timers[name]
        return self.now - at

    def cost(self, peer: Peer) -> float:
        """How dear it is to forward through a peer: round trips in units of the median, and leaving the zone."""
        known = self.book.get(peer.node)
        rtt = known.rtt_ns / self._reference_rtt_ns if known is not None and known.rtt_ns else 1.0
        return rtt + (_ZONE_WEIGHT if peer.zone != self.me.zone else 0.0)

    def next_hop(self, key: NodeId, avoid: Container[NodeId] = ()) -> Hop:
        """Where a message for this key goes from here."""
        config = self.config
        return next_hop(
            self.me.node,
            key,
            self.leaf_set,
            self.routing_table,
            self.neighbourhood,
            config.id_bits,
            config.digit_bits,
            avoid,
        )

    def is_root(self, key: NodeId) -> bool:
        """Whether this node is a member and closest to the key as far as it knows."""
        return self.joined and self.leaf_set.covers(key) and self.leaf_set.closest(key) is None

    def known(self) -> list[Peer]:
        """Every peer in a table or watched and alive, once: leaves, table, neighbourhood, watched."""
        peers: dict[NodeId, Peer] = {}
        for peer in (*self.leaf_set.members, *self.routing_table, *self.neighbourhood):
            peers.setdefault(peer.node, peer)
        for node in self.watched:
            acquaintance = self.book.get(node)
            if acquaintance is not None:
                peers.setdefault(node, acquaintance.peer)
        return list(peers.values())

    def sightings(self, peers: Iterable[Peer]) -> tuple[Sighting, ...]:
        """What this node tells others about peers."""
        told = []
        for peer in peers:
            acquaintance = self.book.get(peer.node)
            told.append(Sighting(peer, acquaintance.refutations if acquaintance is not None else 0))
            if len(told) == MAX_SIGHTINGS:
                break
        return tuple(told)

    def leaf_sightings(self) -> tuple[Sighting, ...]:
        """What this node tells others about its leaves; kept until one of them changes, since it is told often."""
        if self._leaf_sightings is None:
            self._leaf_sightings = self.sightings(self.leaf_set.members)
        return self._leaf_sightings

    def meet(self, peer: Peer, refutations: int) -> Acquaintance | None:
        """A member showed itself: put it where it fits. None when this life is known to be over, or no table wants it."""
        known = self.book.get(peer.node)
        if known is not None and known.peer == peer and known.refutations >= refutations:
            known.heard_at = self.now
            return known
        if peer.node == self.me.node or self.book.is_dead(peer, refutations):
            return None
        known = self.book.meet(peer, refutations, self.now)
        self._leaf_sightings = None
        self.place(known)
        return known

    def place(self, known: Acquaintance) -> None:
        """Put a live peer into the tables where it fits."""
        peer = known.peer
        if self.leaf_set.add(peer):
            self.leaves_changed = True
        self.routing_table.add(peer, self.cost)
        if known.rtt_ns or self.neighbourhood.has_room:
            self.neighbourhood.offer(peer, known.rtt_ns or (1 << 62))

    def measure(self, node: NodeId, sent_at: Instant) -> None:
        """A peer answered what was sent at `sent_at`."""
        known = self.book.get(node)
        if known is None:
            return
        is_first = known.rtt_ns == 0
        known.measure(min(self.now - sent_at, 10 * self.config.probe_timeout_ns))
        self.neighbourhood.offer(known.peer, known.rtt_ns)
        if is_first:
            self.routing_table.add(known.peer, self.cost)

    def hear_of(self, sightings: Iterable[Sighting]) -> None:
        """Others speak of peers: contact those that would fit and are not known, since hearsay changes nothing."""
        if not self.joined:
            return
        for sighting in sightings:
            peer = sighting.peer
            node = peer.node
            known = self.book.get(node)
            if known is not None and known.peer.incarnation >= peer.incarnation:
                continue
            wanted = self.leaf_set.fits(node) or self.neighbourhood.has_room or self.routing_table.wants(node)
            if not (wanted or known is not None) or node == self.me.node:
                continue
            if not self.book.is_dead(peer, sighting.refutations) and self._may_ask(node):
                number = self.number()
                self._asked[node] = (number, self.now)
                self.send(peer, Probe(number, self.refutations, self.joined))

    def asked_at(self, node: NodeId, number: int) -> Instant | None:
        """When this node sent the contact with this number, if it did."""
        asked = self._asked.get(node)
        return asked[1] if asked is not None and asked[0] == number else None

    def remove(self, peer: Peer, refutations: int, *, has_left: bool) -> None:
        """A peer is dead or departed: out of all tables, into its grave."""
        node = peer.node
        self._leaf_sightings = None
        self.book.bury(peer, refutations, self.now, has_left=has_left)
        self.routing_table.remove(node)
        self.neighbourhood.remove(node)
        if self.leaf_set.remove(node):
            self.leaves_changed = True
            for other in sorted(self.book, key=lambda other: other.peer.node):
                if self.leaf_set.add(other.peer):
                    self.refilled.append(other.peer.node)
        self.gone.append(peer)

    def tidy(self) -> None:
        """Forget what nothing needs: strangers in the book, old graves and questions; renew the reference RTT."""
        needed = {peer.node for peer in self.known()}
        for node in [known.peer.node for known in self.book if known.peer.node not in needed]:
            if node not in self.watched:
                self.book.forget(node)
        self.book.forget_graves(self.now - self.config.grave_ns)
        self._forget_questions()
        measured = sorted(known.rtt_ns for known in self.book if known.rtt_ns)
        self._reference_rtt_ns = measured[len(measured) // 2] if measured else 1

    def _may_ask(self, node: NodeId) -> bool:
        asked = self._asked.get(node)
        if asked is not None and self.now - asked[1] < self.config.probe_timeout_ns:
            return False
        if len(self._asked) >= _MAX_ASKED:
            self._forget_questions()
        return len(self._asked) < _MAX_ASKED

    def _forget_questions(self) -> None:
        oldest = self.now - 4 * self.config.probe_timeout_ns
        for node in [node for node, (_, at) in self._asked.items() if at < oldest]:
            del self._asked[node]
