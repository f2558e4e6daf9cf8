"""Bugs to plant in the overlay, each with where it hides and how many seeds the simulator may need to find it.

A checker that has never failed is no checker. The bugs are those of the project's reliability notes §7 (found by none of 300 random
seeds there, for want of small id spaces, of a ledger of look-ups and of a global view) and the classics of this protocol family.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from agiledart_kernel.node_id import NodeId, clockwise_distance, digit, ring_distance, shared_prefix
from agiledart_kernel.peer import Peer
from agiledart_node.scheduling.claims import CLAIM_CODEC, Claim, Claims, scheduler_slot_key
from agiledart_node.scheduling.messages import SchedulerSlot
from agiledart_node.scheduling.scheduler_endpoint import SchedulerEndpoint
from agiledart_overlay.join.membership import Membership
from agiledart_overlay.join.node_arrival import NodeArrival
from agiledart_overlay.liveness.checks import Checks
from agiledart_overlay.liveness.failure_detector import FailureDetector
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.records.record_directory import RecordDirectory
from agiledart_overlay.records.record_store import Merge, Record
from agiledart_overlay.ring.handshake import Handshake
from agiledart_overlay.routing.repair import Repair
from agiledart_overlay.routing.router import Router
from agiledart_overlay.state.agreement import FOREVER, Agreement
from agiledart_overlay.state.peer_book import PeerBook
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_overlay.wire.messages import RouteAck, RouteHop, Sighting
from agiledart_overlay.wire.ring_messages import InviteJoiner, OfferRange

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """One planted bug.

    Args:
        name: for people.
        plant: puts it in.
        scenario: where it is looked for.
        fixed: options that are not drawn.
        seeds: at most so many are needed.
        complaint: message of the checker that finds it; empty: anything.
        is_slow: takes more than a few seconds to find.
        known: a seed that found it before; it is looked at first.
    """

    name: str
    plant: Plant
    scenario: str = "swarm"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 100
    complaint: str = ""
    is_slow: bool = False
    known: int = 1

    def found_at(self, complaints: "Callable[[Mutant, int], list[str]]") -> int | None:
        """Return a seed of its budget that finds it; None: there is none."""
        seeds = dict.fromkeys((self.known, *range(1, self.seeds + 1)))
        return next((seed for seed in seeds if complaints(self, seed)), None)


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""


def ties_go_the_other_way(patch: pytest.MonkeyPatch) -> None:
    """At equal distance from a key the larger id wins, but only in the leaf set."""

    def closest(self: LeafSet, key: NodeId, avoid: Any = ()) -> Peer | None:
        best, rank = None, (ring_distance(self._owner, key, self._bits), -self._owner)
        for node, peer in self._members.items():
            other = (ring_distance(node, key, self._bits), -node)
            if other < rank and node not in avoid:
                best, rank = peer, other
        return best

    patch.setattr(LeafSet, "closest", closest)


def one_side_is_not_repaired(patch: pytest.MonkeyPatch) -> None:
    """After losing a leaf, a node admits no new node on its counter-clockwise side."""
    crippled: dict[int, LeafSet] = {}
    add, remove = LeafSet.add, LeafSet.remove

    def adding(self: LeafSet, peer: Peer) -> bool:
        away = (peer.node - self._owner) & self._mask
        if id(self) in crippled and peer.node not in self and away > self._mask // 2:
            return False
        return add(self, peer)

    def removing(self: LeafSet, node: NodeId) -> bool:
        was_member = remove(self, node)
        if was_member:
            crippled[id(self)] = self
        return was_member

    patch.setattr(LeafSet, "add", adding)
    patch.setattr(LeafSet, "remove", removing)


def gossip_raises_the_dead(patch: pytest.MonkeyPatch) -> None:
    """Gossip about a peer is believed without a probe and without the list of the dead."""
    receive_sightings = PeerGossip.receive_sightings

    def believing(self: PeerGossip, sightings: Any) -> None:
        told, view = tuple(sightings), self._view
        for sighting in told:
            node = sighting.peer.node
            if view.joined and node != view.me.node and node not in view.book and view.leaf_set.fits(node):
                view.place(view.book.meet(sighting.peer, sighting.refutations, view.now))
        receive_sightings(self, told)

    patch.setattr(PeerGossip, "receive_sightings", believing)


def rows_of_another_prefix(patch: pytest.MonkeyPatch) -> None:
    """A node that shares more digits than a row has is put into that row."""

    def place(self: RoutingTable, node: NodeId) -> int:
        row = min(1, shared_prefix(self._owner, node, self._bits, self._digit_bits))
        return row * self._columns + digit(node, row, self._bits, self._digit_bits)

    patch.setattr(RoutingTable, "_place", place)


def records_stay_where_they_are(patch: pytest.MonkeyPatch) -> None:
    """The new root of a key does not take its record over."""
    patch.setattr(RecordDirectory, "on_leaves_changed", nothing)


def equal_versions_are_not_ordered(patch: pytest.MonkeyPatch) -> None:
    """Two copies of one version, made on the two sides of a cut, stand beside each other for ever."""

    def first(one: Record, other: Record, merge: Merge) -> Record:
        return other if other.version > one.version else one

    patch.setattr("agiledart_overlay.records.record_store.merged", first)
    patch.setattr(Record, "rank", property(lambda self: (self.version, b"")))


def suspicion_is_final(patch: pytest.MonkeyPatch) -> None:
    """Neither a heartbeat nor a refutation ends a suspicion."""
    note_alive = Checks.note_alive

    def deaf(self: Checks, node: NodeId) -> None:
        if not self.is_suspect(node):
            note_alive(self, node)

    patch.setattr(Checks, "note_alive", deaf)
    patch.setattr(FailureDetector, "refute", nothing)


def the_accused_keep_quiet(patch: pytest.MonkeyPatch) -> None:
    """A node suspected of being dead does not refute."""
    patch.setattr(NodeArrival, "on_accused", nothing)
    patch.setattr(Membership, "on_accused", nothing)


def doubles_are_not_removed(patch: pytest.MonkeyPatch) -> None:
    """A look-up that arrives twice over one hop is passed on twice."""
    on_route = Router.on_route

    def forgetful(self: Router, sender: Peer, message: RouteHop) -> None:
        self._seen.clear()
        on_route(self, sender, message)

    patch.setattr(Router, "on_route", forgetful)


def numbers_start_again(patch: pytest.MonkeyPatch) -> None:
    """Hops are numbered from 1 in each incarnation and recognised without it, so a restarted node's look-ups count as
    duplicates.
    """
    on_route, pass_on = Router.on_route, Router._pass_on
    numbers: dict[int, int] = {}

    def blind(self: Router, sender: Peer, message: RouteHop) -> None:
        path = (*message.path[:-1], msgspec.structs.replace(message.path[-1], incarnation=0))
        on_route(self, path[-1], msgspec.structs.replace(message, path=path))

    def counting(self: Router, *arguments: Any) -> bool:
        view = self._view
        shared, view._number = view._number, numbers.get(id(self), 0)
        done = pass_on(self, *arguments)
        numbers[id(self)], view._number = view._number, shared
        return done

    patch.setattr(Router, "on_route", blind)
    patch.setattr(Router, "_pass_on", counting)


def acknowledged_and_dropped(patch: pytest.MonkeyPatch) -> None:
    """One of sixteen hops is acknowledged and not taken over."""
    on_route = Router.on_route

    def careless(self: Router, sender: Peer, message: RouteHop) -> None:
        if message.number % 16 == 7:
            self._view.send(sender, RouteAck(message.number))
        else:
            on_route(self, sender, message)

    patch.setattr(Router, "on_route", careless)


def no_tombstones(patch: pytest.MonkeyPatch) -> None:
    """The dead are forgotten at once, so what they said before they died and what comes late brings them back."""
    patch.setattr(PeerBook, "is_dead", lambda self, peer, refutations: False)
    patch.setattr(PeerBook, "tombstone", lambda self, node: None)


def helpers_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    """Results of indirect probes are ignored."""
    patch.setattr(FailureDetector, "on_indirect_probe_ack", nothing)


def news_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Two that join at once on both sides of a member never learn of each other."""
    patch.setattr(PeerGossip, "receive_sightings", nothing)


def lost_leaves_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    """Neither a lost leaf nor a regular exchange makes a node ask for others' leaf sets."""
    patch.setattr(Repair, "on_gone", nothing)
    patch.setattr(Repair, "on_exchange", nothing)


def a_joiner_answers_early(patch: pytest.MonkeyPatch) -> None:
    """Called by its range owner, a joiner takes its place at once, before the node on the other side has stopped for it."""
    on_invite_joiner = Handshake.on_invite_joiner

    def eager(self: Handshake, sender: Peer, message: InviteJoiner) -> None:
        on_invite_joiner(self, sender, message)
        view = self._view
        after = [each for each in message.sightings if each.peer.node != view.me.node] or [Sighting(sender)]
        first = min(after, key=lambda each: clockwise_distance(view.me.node, each.peer.node, view.config.id_bits))
        self.on_offer_range(first.peer, OfferRange(message.ticket, first.refutations, message.sightings))

    patch.setattr(Handshake, "on_invite_joiner", eager)


def a_guardian_keeps_delivering(patch: pytest.MonkeyPatch) -> None:
    """During an admission, the node before the gap keeps delivering the newcomer's keys."""
    patch.setattr(Agreement, "_right_border", lambda self: self.successor.peer.node)


def the_other_side_keeps_delivering(patch: pytest.MonkeyPatch) -> None:
    """During an admission, the node behind the gap keeps delivering the newcomer's keys."""
    patch.setattr(Agreement, "_left_border", lambda self: self.predecessor.peer.node)


def leases_do_not_end(patch: pytest.MonkeyPatch) -> None:
    """Once in the ring, a node delivers whether or not its neighbours still let it."""
    patch.setattr(Agreement, "lease", property(lambda self: FOREVER))


def two_schedulers_for_one_office(patch: pytest.MonkeyPatch) -> None:
    """The winner of a vote takes the scheduler slot: neither claimant nor owner asks the ring which was first."""

    async def claim(self: Claims, domain: str, index: int, winner: Peer, seen: tuple[int, Claim | None]) -> Claim:
        version, before = seen
        made = Claim(SchedulerSlot(domain, index, before.scheduler_slot.term + 1 if before is not None else 1), winner)
        await self._records.store(scheduler_slot_key(domain, index), version, CLAIM_CODEC.encode(made))
        return made

    async def look(self: SchedulerEndpoint, scheduler_slot: SchedulerSlot) -> None:
        if self._role.scheduler_slot is None and not self._context.is_leaving:
            self._role.take_scheduler_slot(scheduler_slot)
            self._start_upkeep()
        self._is_looking = False
        waiting, self._waiting = self._waiting, []
        for sender, message in waiting:
            self._answer(sender, message)

    patch.setattr(Claims, "claim", claim)
    patch.setattr(SchedulerEndpoint, "_look", look)


MUTANTS = [
    Mutant(
        "two schedulers for one office", two_schedulers_for_one_office, "applications", complaint="sc_1", is_slow=True
    ),
    Mutant("a joiner answers early", a_joiner_answers_early, "joins", complaint="I6"),
    Mutant("a guardian keeps delivering", a_guardian_keeps_delivering, "joins", complaint="I6"),
    Mutant("the other side keeps delivering", the_other_side_keeps_delivering, "joins", complaint="I6"),
    Mutant("leases do not end", leases_do_not_end, "pauses", complaint="I6"),
    Mutant("ties go the other way", ties_go_the_other_way, fixed={"id_bits": 8, "nodes": 12}, complaint="I4"),
    Mutant(
        "one side is not repaired", one_side_is_not_repaired, "crashes", {"nodes": 20, "leaf_count": 8}, complaint="I2"
    ),
    Mutant("gossip raises the dead", gossip_raises_the_dead, "crashes", {"nodes": 20}, complaint="dead_2"),
    Mutant(
        "no tombstones",
        no_tombstones,
        "crashes",
        {"spike": 0.02, "spike_ms": 3_000, "nodes": 12},
        complaint="dead_2",
        is_slow=True,
    ),
    Mutant(
        "rows of another prefix",
        rows_of_another_prefix,
        "joins",
        {"nodes": 40, "id_bits": 16},
        complaint="I1",
        is_slow=True,
    ),
    Mutant("records stay where they are", records_stay_where_they_are, "crashes", complaint="record", known=4),
    Mutant(
        "equal versions are not ordered",
        equal_versions_are_not_ordered,
        "partitions",
        {"nodes": 8},
        complaint="record",
        known=6,
    ),
    Mutant("suspicion is final", suspicion_is_final, "pauses", {"nodes": 12}, complaint="dead_1", known=3),
    Mutant("the accused keep quiet", the_accused_keep_quiet, "partitions", complaint="I2"),
    Mutant("doubles are not removed", doubles_are_not_removed, complaint="rt_2"),
    Mutant("numbers start again", numbers_start_again, "crashes", complaint="rt_", is_slow=True),
    Mutant("acknowledged and dropped", acknowledged_and_dropped, complaint="rt_"),
    Mutant("helpers are not heard", helpers_are_not_heard, "partitions", complaint="dead_1", known=4),
    Mutant("news is ignored", news_is_ignored, "joins", complaint="I2"),
    Mutant(
        "lost leaves are not asked for",
        lost_leaves_are_not_asked_for,
        "crashes",
        {"nodes": 60, "leaf_count": 8, "id_bits": 16},
        complaint="I2",
        is_slow=True,
    ),
]
