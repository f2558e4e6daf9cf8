"""Filling gaps: leaf-set exchange, replacement of dead entries, search for a lost half of the ring.

Hearsay never changes a table: whoever is heard of and would fit is contacted first (`View.hear_of`).

Source: [Pastry] §2.4 (repair), §4.1; the project's overlay specification §6.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.peer import Peer
from agiledart_overlay.messages import LeafRequest, LeafState, Probe, RowRequest, RowState
from agiledart_overlay.view import View

_MAX_ROW_REPAIRS = 8
"""Row questions sent for the dead of one step."""


class Repair:
    """Keeps the tables of one node full and true."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._next_row_exchange = Instant(0)
        self._next_heal = Instant(0)
        self._heal_turn = 0

    def start(self) -> None:
        """Begin the exchanges."""
        view = self._view
        view.set_timer("exchange", view.now + int(view.config.leaf_exchange_ns * view.random.uniform()))

    def stop(self) -> None:
        """End them."""
        self._view.cancel_timer("exchange")

    def on_exchange(self, seeds: tuple[Peer, ...]) -> None:
        """Compare leaf sets with one random leaf; now and then look further."""
        view = self._view
        config = view.config
        view.set_timer("exchange", view.now + config.leaf_exchange_ns)
        view.tidy()
        leaves = view.leaf_set.members
        if leaves:
            self._ask_leaf(view.random.choice(leaves))
        if view.now >= self._next_row_exchange:
            self._next_row_exchange = Instant(view.now + config.table_exchange_ns)
            entries = list(view.routing_table)
            if entries:
                peer = view.random.choice(entries)
                row, _ = view.routing_table.slot_of(peer.node)
                view.send(peer, RowRequest(row, -1))
        if view.now >= self._next_heal:
            self._next_heal = Instant(view.now + config.heal_interval_ns)
            self._heal(seeds)

    def _heal(self, seeds: tuple[Peer, ...]) -> None:
        """Try one that was lost, or a seed that is in no table: it may be in another half of the ring."""
        view = self._view
        lost = [grave.peer for grave in view.book.graves if not grave.has_left]
        lost.extend(seed for seed in seeds if seed.node not in view.book and view.book.grave(seed.node) is None)
        if lost:
            self._heal_turn += 1
            view.send(lost[self._heal_turn % len(lost)], Probe(view.number(), view.refutations, view.joined))

    def _ask_leaf(self, peer: Peer) -> None:
        view = self._view
        state = view.leaf_sightings()
        view.send(peer, LeafRequest(view.number(), view.refutations, view.joined, state))

    def on_gone(self, gone: list[Peer]) -> None:
        """Peers are dead or left: ask the outermost and nearest leaves for replacements, and row members for table entries."""
        view = self._view
        if not view.joined:
            return
        if view.leaves_changed:
            helpers: dict[int, Peer] = {}
            for side in (view.leaf_set.clockwise, view.leaf_set.counterclockwise):
                for peer in (side[-1], side[0]) if side else ():
                    helpers[peer.node] = peer
            for peer in helpers.values():
                self._ask_leaf(peer)
        for peer in gone[:_MAX_ROW_REPAIRS]:
            row, column = view.routing_table.slot_of(peer.node)
            if view.routing_table.candidates(row, column):
                continue
            for candidates in (view.routing_table.row(row), view.routing_table.row(row + 1)):
                if candidates:
                    view.send(view.random.choice(candidates), RowRequest(row, column))
                    break

    def on_leaf_request(self, sender: Peer, message: LeafRequest) -> None:
        """Somebody compares: answer a joiner always, a member when the two sets differ."""
        view = self._view
        if message.joined:
            view.hear_of(message.sightings)
            theirs = sorted([sender.node, *(sighting.peer.node for sighting in message.sightings)])
            ours = sorted([view.me.node, *(peer.node for peer in view.leaf_set.members)])
            if theirs == ours:
                return
        leaves = view.leaf_sightings() if view.joined else ()
        view.send(sender, LeafState(message.number, view.refutations, view.joined, leaves))

    def on_leaf_state(self, _sender: Peer, message: LeafState) -> None:
        """Somebody's leaf set."""
        self._view.hear_of(message.sightings)

    def on_row_request(self, sender: Peer, message: RowRequest) -> None:
        """Tell entries of a row."""
        view = self._view
        table = view.routing_table
        if not 0 <= message.row < view.config.id_bits // view.config.digit_bits:
            view.drop("row")
            return
        peers = table.row(message.row) if message.column < 0 else table.candidates(message.row, message.column)
        if peers:
            view.send(sender, RowState(view.sightings(peers)))

    def on_row_state(self, _sender: Peer, message: RowState) -> None:
        """Entries of somebody's row."""
        self._view.hear_of(message.sightings)
