"""Arrival of a new member: it announces itself to the peers that should know it, and finds near peers for its tables.

It runs after the node has become a member (`begin`), and again when others believe it dead (`on_accused`).

    LEAVES   the leaf set is announced to every leaf, repeated until it answers; a leaf that knows more sends it. The answers
             place this node in the space of latencies
    TABLE    of all peers reported during the join, the cheapest for each slot and the nearest neighbours by coordinates are
             contacted LOCALITY the nearest entry of each row is asked for its row, the nearest neighbour for its neighbours; a
             peer clearly cheaper than the entry here is contacted
    IDLE     no work is pending

Each stage ends when all have answered or its time is over, and each is bounded by a figure of the configuration. So a join costs
at most a known number of messages. A contact also introduces this node to the peer, which puts it where it fits.

Source: [Pastry] §2.4 and [Pastry proximity] (second stage); the project's overlay specification §5, steps 4 to 6.
"""

from collections.abc import Iterable
from enum import IntEnum

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.state.view import View
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.wire.messages import Accused, Announce, Announced, NeighbourRequest, RowRequest, Sighting
from agiledart_overlay.wire.sightings import Sightings

_TRIES = 3
"""Times an announcement is sent before its receiver counts as silent."""


_PASSES = 4
"""Times that the round trips to the leaves are applied to the coordinate."""


class ArrivalStage(IntEnum):
    """Stage of the arrival."""

    IDLE = 0
    LEAVES = 1
    TABLE = 2
    LOCALITY = 3


class Announcement:
    """Announcement to one peer that has not answered yet."""

    __slots__ = ("number", "peer", "sent_at", "tries")

    def __init__(self, peer: Peer, number: int, sent_at: Instant) -> None:
        self.peer, self.number, self.sent_at, self.tries = peer, number, sent_at, 1


class NodeArrival:
    """Announcements and the first filling of the tables of one node."""

    __slots__ = ("_future", "_gathered", "_known_and_announced", "_peer_gossip", "_stage", "_view", "_waiting")

    def __init__(self, view: View, peer_gossip: PeerGossip) -> None:
        self._view, self._peer_gossip = view, peer_gossip
        self._waiting: dict[NodeId, Announcement] = {}
        self._gathered: dict[NodeId, Sighting] = {}
        self._future: dict[NodeId, Sighting] = {}
        """Leaves that the neighbours reported, until they answer."""
        self._known_and_announced: tuple[Sightings, Sightings] = ((), ())
        """Leaves known now, and the content of announcements while these do not change."""
        self._stage = ArrivalStage.IDLE

    @property
    def stage(self) -> ArrivalStage:
        """Return the present stage."""
        return self._stage

    def begin(self, gathered: Iterable[Sighting] = (), leaves: Iterable[Sighting] = ()) -> None:
        """Begin as a new member, with peers reported during the join and leaves reported by the neighbours."""
        view = self._view
        self._gathered = {sighting.peer.node: sighting for sighting in gathered}
        self._stage = ArrivalStage.LEAVES
        view.distances.is_locating = True
        config = view.config
        future = LeafSet(view.me.node, config.leaf_count, config.id_bits)
        reported: dict[NodeId, Sighting] = {}
        for sighting in leaves:
            if not view.book.is_dead(sighting.peer, sighting.refutations):
                reported[sighting.peer.node] = sighting
                future.add(sighting.peer)
        self._future = {peer.node: reported[peer.node] for peer in future.members}
        self._known_and_announced = ((), tuple(self._future.values()))
        for peer in {peer.node: peer for peer in (*view.leaf_set.members, *future.members)}.values():
            self._announce_to(peer)
        self._set_timer()
        if not self._waiting:
            self._advance()

    def stop(self) -> None:
        """Stop: this node is no longer a member."""
        self._waiting.clear()
        self._gathered.clear()
        self._future.clear()
        self._stage = ArrivalStage.IDLE
        self._view.distances.is_locating = False
        for name in ("announce", "arrive"):
            self._view.cancel_timer(name)

    # ---- announcing

    def _announce_to(self, peer: Peer) -> None:
        announcement = Announcement(peer, self._view.number(), self._view.now)
        self._waiting[peer.node] = announcement
        self._send(announcement)

    def _send(self, announcement: Announcement) -> None:
        """Send an announcement; only leaves get the leaf set with it, as distant nodes have other leaves."""
        view = self._view
        node = announcement.peer.node
        if node in self._future:
            known = view.leaf_sightings()
            if self._known_and_announced[0] is not known:
                merged = {**self._future, **{sighting.peer.node: sighting for sighting in known}}
                self._known_and_announced = known, tuple(merged.values())
            state = self._known_and_announced[1]
        else:
            state = view.leaf_sightings() if node in view.leaf_set else ()
        view.send(announcement.peer, Announce(announcement.number, view.refutations, state, view.distances.vitals))

    def _set_timer(self) -> None:
        if self._waiting:
            self._view.set_timer("announce", self._view.now + 2 * self._view.config.probe_timeout_ns)

    def on_timer(self) -> None:
        """Announce again to peers that did not answer."""
        view = self._view
        for announcement in list(self._waiting.values()):
            if announcement.tries >= _TRIES or view.book.is_dead(announcement.peer, 0):
                del self._waiting[announcement.peer.node]
            else:
                announcement.tries += 1
                self._send(announcement)
        self._set_timer()
        if self._stage is ArrivalStage.LEAVES:
            self._advance()

    def asked_at(self, node: NodeId, number: int) -> Instant | None:
        """Return the instant of the announcement with this number; None when it was not sent, or sent more than once."""
        announcement = self._waiting.get(node)
        if announcement is None or announcement.number != number or announcement.tries > 1:
            return None
        return announcement.sent_at

    def on_announced(self, sender: Peer, message: Announced) -> None:
        """Take an answer to an announcement."""
        view = self._view
        announcement = self._waiting.get(sender.node)
        if announcement is not None and announcement.number == message.number:
            del self._waiting[sender.node]
        self._peer_gossip.receive_sightings(message.sightings)
        if not self._waiting:
            view.cancel_timer("announce")
            if self._stage is ArrivalStage.LEAVES:
                self._advance()

    def on_announce(self, sender: Peer, message: Announce) -> None:
        """Answer a new member, or one back from the dead, with the leaves that it lacks; the caller has put it into the tables."""
        view = self._view
        self._peer_gossip.receive_sightings(message.sightings)
        lacking: tuple[Sighting, ...] = ()
        if sender.node in view.leaf_set:
            lacking = view.sightings(
                view.leaf_set.lacking(sender.node, [sighting.peer.node for sighting in message.sightings])
            )
        view.send(sender, Announced(message.number, view.refutations, lacking, view.distances.vitals))

    def on_accused(self, sender: Peer, message: Accused) -> None:
        """Refute an accusation of death, and announce to all peers, because others may have received it too."""
        view = self._view
        if message.refutations >= view.refutations:
            if not view.outrank(message.refutations):
                return
            for peer in {peer.node: peer for peer in (*view.known(), sender)}.values():
                self._announce_to(peer)
            self._set_timer()
        elif sender.node not in self._waiting:
            self._announce_to(sender)
            view.set_timer_by("announce", view.now + 2 * view.config.probe_timeout_ns)

    # ---- table and locality

    def on_stage_timer(self) -> None:
        """End a stage whose time is over."""
        self._advance()

    def _advance(self) -> None:
        """Enter the next stage; skip a stage without work."""
        view = self._view
        if self._stage is ArrivalStage.LEAVES:
            view.distances.locate(_PASSES)
            view.collect_garbage()
            self._peer_gossip.forget_old()
            self._stage = ArrivalStage.TABLE
            self._future.clear()
            if self._contact_gathered():
                view.set_timer("arrive", view.now + view.config.probe_timeout_ns)
                return
        if self._stage is ArrivalStage.TABLE:
            self._stage = ArrivalStage.LOCALITY
            if self._ask_for_locality():
                view.set_timer("arrive", view.now + view.config.probe_timeout_ns)
                return
        self._stage = ArrivalStage.IDLE
        view.cancel_timer("arrive")

    def _contact_gathered(self) -> int:
        """Contact the best reported peers for each slot and the nearest ones; return the number of contacts."""
        view, config = self._view, self._view.config
        gathered, self._gathered = self._gathered, {}
        strangers = [sighting for node, sighting in gathered.items() if node != view.me.node and node not in view.book]
        # Ids differ, so the sightings themselves are never compared.
        ranked = sorted((self._rank(sighting), sighting.peer.node, sighting) for sighting in strangers)
        slots: dict[tuple[int, int], int] = {}
        chosen: list[Sighting] = []
        neighbours = max(0, config.arrival_neighbours - len(view.neighbourhood))
        for _, node, sighting in ranked:
            place = view.routing_table.slot_of(node)
            taken = slots.get(place)
            if taken is None:
                taken = len(view.routing_table.candidates(*place))
            if taken < config.arrival_candidates:
                slots[place] = taken + 1
                chosen.append(sighting)
            elif neighbours > 0:
                neighbours -= 1
                chosen.append(sighting)
            if len(chosen) >= config.arrival_contacts:
                break
        return sum(self._peer_gossip.contact(sighting) for sighting in chosen)

    def _rank(self, sighting: Sighting) -> float:
        cost = self._view.distances.guessed_cost(sighting)
        return 1.0 if cost is None else cost

    def _ask_for_locality(self) -> int:
        """Ask near entries for their rows and their neighbours; return the number of questions."""
        view = self._view
        most = view.config.second_stage_questions
        asked = 0
        nearest = next(iter(view.neighbourhood.nearest), None)
        if nearest is not None and asked < most:
            view.send(nearest, NeighbourRequest())
            asked += 1
        for row in view.routing_table.rows:
            if asked >= most:
                break
            helper = min(view.routing_table.row(row), key=lambda peer: (view.distances.cost(peer), peer.node))
            view.send(helper, RowRequest(row, -1))
            asked += 1
        return asked

    def violations(self) -> list[str]:
        """Check that announcements and questions have timers, and that none exist outside the ring."""
        view = self._view
        complaints = view.missing_timer("announce") if self._waiting else []
        if self._stage in (ArrivalStage.TABLE, ArrivalStage.LOCALITY):
            complaints.extend(view.missing_timer("arrive"))
        if self._stage is ArrivalStage.LEAVES and not self._waiting:
            complaints.append("arrival: it waits for leaves, and none was reported")
        if not view.joined and (self._waiting or self._stage is not ArrivalStage.IDLE):
            complaints.append("arrival: the node is not in the ring and announces itself")
        return complaints
