"""Shared state of the overlay's parts, and the only code that changes it: tables, peer book, timers, effects of this step.

Parts (liveness, membership, repair, forwarding, directory) do not call each other to report changes. They change the view, and at
the end of a step the machine notifies each part of the changes.
"""

from collections.abc import Container, Iterable
from itertools import islice

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import CancelTimer, Effect, Message, Send, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observer
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.state.agreement import Agreement
from agiledart_overlay.state.distances import Distances
from agiledart_overlay.state.peer_book import KnownPeer, PeerBook
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.neighbourhood import UNMEASURED_NS, Neighbourhood
from agiledart_overlay.tables.next_hop import Hop, next_hop
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.messages import DeclaredFailed, Sighting, Vitals
from agiledart_overlay.wire.observations import MessageDropped
from agiledart_overlay.wire.sightings import MAX_SIGHTINGS

_MAX_LOST = 64

MAX_REFUTATIONS = 1 << 32
"""More than any incarnation has: one a second for 136 years."""


class View:
    """State of one node; `now` and `effects` are those of the present step."""

    __slots__ = (
        "_leaf_sightings",
        "_number",
        "_timers",
        "agreed",
        "book",
        "config",
        "distances",
        "dropped",
        "effects",
        "gone",
        "joined",
        "leaf_set",
        "leaves_changed",
        "loopback_messages",
        "me",
        "neighbourhood",
        "now",
        "observe",
        "random",
        "refilled",
        "refutations",
        "routing_table",
        "seeds",
        "sent",
        "watched",
    )  # fmt: skip

    def __init__(self, me: Peer, config: OverlayConfig, random: RandomStream, observe: Observer) -> None:
        self.me = me
        self.config = config
        self.agreed = Agreement(me, config)
        self.seeds: tuple[Peer, ...] = ()
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
        """Peers that came into the leaf set in this step because others went: long silent, perhaps dead too."""
        self.leaves_changed = False
        self.loopback_messages: list[Message] = []
        """Messages that this node sent to itself: in a ring of one it is its own neighbour."""
        self.distances = Distances(me, config, self.book, random)
        self.sent: dict[type, int] = {}
        self.dropped: dict[str, int] = {}
        self._timers: dict[str, Instant] = {}
        self._number = 0
        self._leaf_sightings: tuple[Sighting, ...] | None = None

    def number(self) -> int:
        """Return a number that no other message of this incarnation has."""
        self._number += 1
        return self._number

    def send(self, to: Peer, message: Message) -> None:
        """Send, and count by kind."""
        kind = type(message)
        sent = self.sent
        sent[kind] = sent.get(kind, 0) + 1
        if to.node == self.me.node:
            self.loopback_messages.append(message)
        else:
            self.effects.append(Send(to, message))

    def drop(self, reason: str) -> None:
        """Count something dropped."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.observe(MessageDropped(reason))

    def set_timer(self, name: str, at: int) -> None:
        """Set `TimerFired(("overlay", name))` for an instant, in place of any earlier setting."""
        self._timers[name] = instant = Instant(at)
        self.effects.append(SetTimer(("overlay", name), instant))

    def set_timer_by(self, name: str, at: int) -> None:
        """Set a timer, unless it is set for that instant or an earlier one."""
        armed = self._timers.get(name)
        if armed is None or at < armed:
            self.set_timer(name, at)

    def cancel_timer(self, name: str) -> None:
        """Cancel a timer."""
        if self._timers.pop(name, None) is not None:
            self.effects.append(CancelTimer(("overlay", name)))

    def take_timer(self, name: str) -> int | None:
        """Take a fired timer: return its lateness in nanoseconds, or None when it was not set or fires early."""
        at = self._timers.get(name)
        if at is None or at > self.now:
            return None
        del self._timers[name]
        return self.now - at

    def missing_timer(self, name: str, by: int | None = None) -> list[str]:
        """Return a complaint when a needed timer is not set, or fires later than it should."""
        armed = self._timers.get(name)
        if armed is None:
            return [f"timer: something waits for {name!r}, which is not set"]
        if by is not None and armed > max(by, self.now):
            return [f"timer: {name!r} fires {armed - by} ns after what waits for it"]
        return []

    def next_hop(self, key: NodeId, avoid: Container[NodeId] = ()) -> Hop:
        """Return the next hop of a message for this key."""
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

    def look_at(self, hop: Peer) -> None:
        """Have a hop probed that did not lead on, unless it was just active. Tables find their dead when they are used."""
        known = self.book.get(hop.node)
        if known is not None and self.now - known.last_received_at > self.config.probe_interval_ns:
            self.refilled.append(hop.node)

    def is_root(self, key: NodeId) -> bool:
        """Report whether this node is the one that delivers a key now."""
        return self.agreed.owns(key, self.now)

    def is_closest(self, key: NodeId) -> bool:
        """Report whether this node is a member and closest to the key as far as its leaf set shows."""
        return self.joined and self.leaf_set.covers(key) and self.leaf_set.closest(key) is None

    def fallback_peers(self) -> list[Peer]:
        """Return all peers that may know more when this node has no peer in its ring: leaves, seeds, the lost."""
        peers = {peer.node: peer for peer in (*self.seeds, *self.book.lost[-_MAX_LOST:], *self.leaf_set.members)}
        peers.pop(self.me.node, None)
        return list(peers.values())

    def known(self) -> list[Peer]:
        """Return every live peer of a table and every watched one, once: leaves, table, neighbourhood, watched."""
        peers: dict[NodeId, Peer] = {}
        for peer in (*self.leaf_set.members, *self.routing_table, *self.neighbourhood):
            peers.setdefault(peer.node, peer)
        for node in self.watched:
            acquaintance = self.book.get(node)
            if acquaintance is not None:
                peers.setdefault(node, acquaintance.peer)
        return list(peers.values())

    def sightings(self, peers: Iterable[Peer]) -> tuple[Sighting, ...]:
        """Return this node's reports about peers for other nodes."""
        alive = self.book.alive
        return tuple([_sighting(peer, alive.get(peer.node)) for peer in islice(peers, MAX_SIGHTINGS)])

    def leaf_sightings(self) -> tuple[Sighting, ...]:
        """Return this node's reports about its leaves; cached until one of them changes, since they are sent often."""
        if self._leaf_sightings is None:
            self._leaf_sightings = self.sightings(self.leaf_set.members)
        return self._leaf_sightings

    def meet(
        self, peer: Peer, refutations: int, vitals: Vitals | None = None, asked_at: Instant | None = None
    ) -> KnownPeer | None:
        """Put a member that introduced itself, perhaps by an answer, into the tables where it fits.

        Return None when this incarnation is known to be over.
        """
        known = self.book.alive.get(peer.node)
        if (
            known is not None
            and known.is_placed
            and known.refutations >= refutations
            and (known.peer is peer or (known.peer == peer and known.peer.reach.revision >= peer.reach.revision))
        ):
            known.last_received_at = self.now
            if asked_at is not None:
                self.measure(peer.node, asked_at, vitals)
            elif vitals is not None and vitals.coordinate.is_sane:
                known.vitals = vitals
            return known
        if peer.node == self.me.node or self.book.is_dead(peer, refutations):
            return None
        known = self.book.meet(peer, refutations, self.now)
        if asked_at is not None:
            self._sample(known, asked_at, vitals)
        elif vitals is not None and vitals.coordinate.is_sane:
            known.vitals = vitals
        if peer.node in self.leaf_set:
            self._leaf_sightings = None
        self.place(known)
        return known

    def place(self, known: KnownPeer) -> None:
        """Put a live peer into the tables where it fits."""
        peer = known.peer
        known.is_placed = True
        if self.leaf_set.add(peer):
            self.leaves_changed = True
            self._leaf_sightings = None
        rtt_ns = self.distances.rtt_ns(known)
        self.routing_table.add(peer, self.distances.cost_of(known, rtt_ns))
        self.neighbourhood.offer(peer, rtt_ns or UNMEASURED_NS)

    def measure(self, node: NodeId, sent_at: Instant, vitals: Vitals | None = None) -> None:
        """Take a peer's answer to a message sent at `sent_at`, with its vitals."""
        known = self.book.alive.get(node)
        if known is None:
            return
        is_first = known.rtt_ns == 0
        self._sample(known, sent_at, vitals)
        if not known.is_placed:
            return  # it is watched, and not in the ring
        self.neighbourhood.offer(known.peer, known.rtt_ns)
        if is_first:
            self.routing_table.add(known.peer, self.distances.cost_of(known, known.rtt_ns))

    def _sample(self, known: KnownPeer, sent_at: Instant, vitals: Vitals | None) -> None:
        if not self.distances.sample(known, self.now - sent_at, vitals):
            self.drop("coordinate")

    def outrank(self, refutations: int) -> bool:
        """Refute own death once more, above the reported number. Return False for an impossible number, which ends the incarnation.

        A peer that believes that number hears nothing else from this incarnation; the next one has a higher number, which
        outranks it.
        """
        if refutations >= MAX_REFUTATIONS:
            self.agreed.expel_reason = (
                f"peers report that this node refuted its death {refutations} times: start it again"
            )
            return False
        self.refutations = refutations + 1
        return True

    def report_death(self, to: Peer, peer: Peer, refutations: int) -> bool:
        """Notify a peer of a death that it does not know; return False when that incarnation is not known to be over."""
        if not self.book.is_dead(peer, refutations):
            return False
        tombstone = self.book.tombstone(peer.node)
        assert tombstone is not None
        self.send(
            to, DeclaredFailed(peer, refutations if tombstone.has_left else max(refutations, tombstone.refutations))
        )
        return True

    def remove(self, peer: Peer, refutations: int, *, has_left: bool) -> None:
        """Remove a dead or departed peer from all tables, and remember its death."""
        node = peer.node
        self._leaf_sightings = None
        self.book.mark_dead(peer, refutations, self.now, has_left=has_left)
        self.routing_table.remove(node)
        self.neighbourhood.remove(node)
        if self.leaf_set.remove(node):
            self.leaves_changed = True
            fits = self.leaf_set.fits
            for other in sorted(
                [other.peer for other in self.book if other.is_placed and fits(other.peer.node)],
                key=lambda other: other.node,
            ):
                if self.leaf_set.add(other):
                    self.refilled.append(other.node)
        self.gone.append(peer)

    def step_aside(self, known: KnownPeer, refutations: int = 0) -> None:
        """Remove a live peer that is not in the ring from the tables, until it reports that it is back.

        Args:
            refutations: the peer's own number. Earlier rumours of its death concern a membership that it gave up.
        """
        peer = known.peer
        if peer.node not in self.watched:
            self.remove(peer, known.refutations, has_left=False)
            return
        known.is_placed = False
        known.refutations = max(known.refutations, refutations)
        self._leaf_sightings = None
        self.routing_table.remove(peer.node)
        self.neighbourhood.remove(peer.node)
        if self.leaf_set.remove(peer.node):
            self.leaves_changed = True
        self.gone.append(peer)

    def clear_tables(self) -> None:
        """Empty the tables: this node is out of the ring; the watched stay in the book."""
        for peer in self.known():
            self.routing_table.remove(peer.node)
            self.neighbourhood.remove(peer.node)
            self.leaf_set.remove(peer.node)
        for node in [known.peer.node for known in self.book if known.peer.node not in self.watched]:
            self.book.forget(node)
        for known in self.book:
            known.is_placed = False
        self._leaf_sightings = None
        self.leaves_changed = True

    def collect_garbage(self) -> None:
        """Forget unneeded peers and old tombstones; renew the reference RTT and the order of slots."""
        needed = {peer.node for peer in self.known()}
        for node in [node for node in self.book.alive if node not in needed]:
            self.book.forget(node)
        self.book.forget_tombstones(self.now - self.config.tombstone_ns)
        self.distances.renew_reference()
        self.routing_table.reorder(self.distances.cost)
        self._leaf_sightings = None

    def violations(self) -> list[str]:
        """Check that tables are in form and hold only known incarnations of live peers, and that watched peers are bounded."""
        book, me = self.book, self.me.node
        complaints = [
            *self.leaf_set.violations(), *self.routing_table.violations(), *self.neighbourhood.violations(), *book.violations()
        ]  # fmt: skip
        for peer in (*self.leaf_set.members, *self.routing_table, *self.neighbourhood):
            known = book.alive.get(peer.node)
            if known is None or not known.is_placed:
                complaints.append(f"I3: {peer.node.short} is in a table and not known as a live member")
            elif known.peer.incarnation != peer.incarnation:
                complaints.append(
                    f"I3: incarnation {peer.incarnation} of {peer.node.short} is in a table, {known.peer.incarnation} is known"
                )
        if me in book or book.tombstone(me) is not None or me in self.watched:
            complaints.append("I3: the node knows itself as a peer")
        if len(self.watched) > self.config.max_watched:
            complaints.append(f"bound: {len(self.watched)} are watched, at most {self.config.max_watched}")
        if not self.distances.vitals.coordinate.is_sane:
            complaints.append("place: its own coordinate makes no sense")
        cached_sightings = self._leaf_sightings
        if cached_sightings is not None and [sighting.peer for sighting in cached_sightings] != list(
            self.leaf_set.members[:MAX_SIGHTINGS]
        ):
            complaints.append("sightings: the cached leaf sightings are not the leaves")
        return complaints


def _sighting(peer: Peer, known: KnownPeer | None) -> Sighting:
    if known is None:
        return Sighting(peer)
    return Sighting(peer, known.refutations, known.vitals.coordinate if known.vitals is not None else None)
