"""Repair of tables: leaf-set exchange, replacement of dead entries, search for a lost half of the ring.

Gossip never changes a table: a reported peer that would fit is contacted first (`peer_gossip`).

Source: [Pastry] §2.4 (repair), §4.1; the project's overlay specification §6.
"""

from hashlib import blake2b

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.routing.slot_searches import SlotSearches
from agiledart_overlay.state.agreement import FOREVER
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import (
    LeafDigest,
    LeafRequest,
    LeafState,
    NeighbourRequest,
    PeerProbe,
    RowRequest,
    RowState,
    Sighting,
)

_MENDING_ROUNDS = 6
"""Rounds after the last death of a leaf in which the leaf set is compared with others."""


class Repair:
    """Keeper of full and correct tables of one node."""

    __slots__ = ("_heal_index", "_mending", "_next_heal", "_next_table_exchange", "_peer_gossip", "_searches", "_view")

    def __init__(self, view: View, peer_gossip: PeerGossip) -> None:
        self._view, self._peer_gossip = view, peer_gossip
        self._searches = SlotSearches(view)
        self._next_table_exchange = Instant(0)
        self._next_heal = Instant(0)
        self._heal_index = 0
        self._mending = 0

    def start(self) -> None:
        """Begin the exchanges."""
        view = self._view
        view.set_timer("exchange", view.now + int(view.config.leaf_exchange_ns * view.random.uniform()))
        self._next_table_exchange = Instant(view.now + int(view.config.table_exchange_ns * view.random.uniform()))

    def stop(self) -> None:
        """End the exchanges."""
        self._searches.stop()
        self._view.cancel_timer("exchange")
        self._view.cancel_timer("mend")

    def on_exchange(self, seeds: tuple[Peer, ...]) -> None:
        """Compare leaf sets with one random leaf; now and then look further."""
        view = self._view
        config = view.config
        view.set_timer("exchange", view.now + config.leaf_exchange_ns)
        view.collect_garbage()
        self._peer_gossip.forget_old()
        leaves = view.leaf_set.members
        if leaves:
            leaf = view.random.choice(leaves)
            view.send(leaf, LeafDigest(view.number(), view.refutations, self._digest_with(leaf.node)))
        self._searches.on_exchange()
        if view.now >= self._next_table_exchange:
            self._next_table_exchange = Instant(view.now + config.table_exchange_ns)
            self._exchange_tables()
        if view.now >= self._next_heal:
            self._next_heal = Instant(view.now + config.heal_interval_ns)
            self._heal(seeds)

    def _exchange_tables(self) -> None:
        """Ask a random member of each row for its row, and a random neighbour for its neighbours."""
        view = self._view
        for row in view.routing_table.rows:
            view.send(view.random.choice(view.routing_table.row(row)), RowRequest(row, -1))
        neighbours = view.neighbourhood.nearest
        if neighbours:
            view.send(view.random.choice(neighbours), NeighbourRequest())

    def _heal(self, seeds: tuple[Peer, ...]) -> None:
        """Probe a lost peer, or a seed that is in no table: it may be in another half of the ring."""
        view = self._view
        lost = view.book.lost
        lost.extend(seed for seed in seeds if seed.node not in view.book and view.book.tombstone(seed.node) is None)
        if lost:
            self._heal_index += 1
            view.send(lost[self._heal_index % len(lost)], PeerProbe(view.number(), view.refutations, view.joined))

    def on_mend(self) -> None:
        """Compare with the farthest leaf of each side every round, after the recent death of leaves.

        The first node that was asked may have known no better, or be dead too.
        """
        view = self._view
        self._mending -= 1
        if self._mending > 0:
            view.set_timer("mend", view.now + view.config.lease_renewal_ns)
        for side in (view.leaf_set.clockwise, view.leaf_set.counterclockwise):
            if side:
                leaf = side[-1]
                view.send(leaf, LeafDigest(view.number(), view.refutations, self._digest_with(leaf.node)))

    # ---- leaves

    def _digest_with(self, node: NodeId) -> bytes:
        """Return the digest of this node and its leaves that should also be leaves of that node."""
        view = self._view
        shared = {peer.node: peer.incarnation for peer in view.leaf_set.shared_with(node)}
        shared[view.me.node] = view.me.incarnation
        text = b"".join(member.to_bytes16() + shared[member].to_bytes(8, "big") for member in sorted(shared))
        return blake2b(text, digest_size=8).digest()

    def on_leaf_digest(self, sender: Peer, message: LeafDigest) -> None:
        """Compare a leaf's digest; when the two differ, compare in full."""
        view = self._view
        if not view.joined:
            return
        view.meet(sender, message.refutations)
        if sender.node in view.leaf_set and message.digest != self._digest_with(sender.node):
            self._ask_leaf(sender)

    def _ask_leaf(self, peer: Peer) -> None:
        view = self._view
        state = view.leaf_sightings()
        view.send(peer, LeafRequest(view.number(), view.refutations, view.joined, state))

    def on_leaf_request(self, sender: Peer, message: LeafRequest) -> None:
        """Answer a leaf-set comparison: a joiner always, a member with the leaves that it lacks."""
        view = self._view
        leaves: tuple[Sighting, ...] = ()
        if not message.joined:
            leaves = view.leaf_sightings() if view.joined else ()
        elif view.joined:
            self._peer_gossip.receive_sightings(message.sightings)
            for sighting in message.sightings:
                view.report_death(sender, sighting.peer, sighting.refutations)
            listed = [sighting.peer.node for sighting in message.sightings]
            leaves = view.sightings(view.leaf_set.lacking(sender.node, listed))
            if not leaves and view.me.node in listed:
                return
        view.send(sender, LeafState(message.number, view.refutations, view.joined, leaves))

    def on_leaf_state(self, _sender: Peer, message: LeafState) -> None:
        """Take a peer's leaf set."""
        self._peer_gossip.receive_sightings(message.sightings)

    # ---- the dead

    def on_gone(self, gone: list[Peer]) -> None:
        """Replace dead or departed peers: ask outermost and nearest leaves, and row members for table entries."""
        view = self._view
        if not view.joined:
            return
        if view.leaves_changed:
            helpers: dict[NodeId, Peer] = {}
            for side in (view.leaf_set.clockwise, view.leaf_set.counterclockwise):
                for peer in (side[-1], side[0]) if side else ():
                    helpers[peer.node] = peer
            for peer in helpers.values():
                self._ask_leaf(peer)
            self._mending = _MENDING_ROUNDS
            view.set_timer_by("mend", view.now + view.config.lease_renewal_ns)
        for peer in gone:
            self._searches.begin(peer.node)
        if view.neighbourhood.has_free_slot and len(view.book) > len(view.neighbourhood):
            nearest = next(iter(view.neighbourhood.nearest), None)
            if nearest is not None:
                view.send(nearest, NeighbourRequest())

    # ---- rows and neighbours

    def on_row_request(self, sender: Peer, message: RowRequest) -> None:
        """Send entries of a row; an answer about a single slot may also be empty."""
        view = self._view
        table = view.routing_table
        digits, columns = view.config.id_bits // view.config.digit_bits, 1 << view.config.digit_bits
        if not view.joined or not 0 <= message.row < digits or message.column >= columns:
            view.drop("row")
            return
        peers = table.row(message.row) if message.column < 0 else table.candidates(message.row, message.column)
        reported = [peer for peer in peers if peer.node != sender.node]
        if reported or message.column >= 0:
            view.send(sender, RowState(view.sightings(reported), message.row, message.column))

    def on_neighbour_request(self, sender: Peer, _message: NeighbourRequest) -> None:
        """Send the neighbourhood set."""
        view = self._view
        near = [peer for peer in view.neighbourhood.nearest if peer.node != sender.node]
        if view.joined and near:
            view.send(sender, RowState(view.sightings(near)))

    def on_row_state(self, sender: Peer, message: RowState) -> None:
        """Take entries of a peer's row, or its neighbours."""
        self._peer_gossip.receive_sightings(message.sightings)
        if message.column >= 0:
            self._searches.on_answer(sender, message)

    def violations(self) -> list[str]:
        """Check that exchanges go on while the node is in the ring."""
        view = self._view
        complaints = [*self._searches.violations(), *self._peer_gossip.violations()]
        # A machine that was put into a finished ring has no exchanges.
        if view.joined and view.agreed.wake_deadline < FOREVER:
            complaints.extend(view.missing_timer("exchange"))
        return complaints
