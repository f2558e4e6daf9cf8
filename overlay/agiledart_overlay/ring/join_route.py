"""Route of a join to its range owner: to the closest member, then along agreed neighbours to the owner of the key range.

Members on the route send the joiner their rows, and refuse an incarnation that they know to be over. A node outside the ring
returns the request; the sender takes that node out of its tables and tries another route.

Source: [Pastry] §2.4; the project's overlay specification §5, steps 2, 3 and 7 a.
"""

from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import clockwise_distance
from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.range_owner import RangeOwner, pass_on
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import Accused, JoinRefused, JoinRequest, JoinRows
from agiledart_overlay.wire.ring_messages import JoinBounced, QueuedJoin, RenewLease

_DOUBTFUL = 3
"""First attempt from which every other one uses the second best hops: a link on the best route may be broken."""


class JoinRoute:
    """One node's part in routes of joins."""

    __slots__ = ("_range_owner", "_view")

    def __init__(self, view: View, range_owner: RangeOwner) -> None:
        self._view, self._range_owner = view, range_owner

    def on_join_request(self, sender: Peer, message: JoinRequest) -> None:
        """Pass a join on towards its key range, or queue it."""
        view = self._view
        if not view.joined:
            if message.path and message.joiner.node not in (sender.node, view.me.node):
                queued_join = QueuedJoin(message.joiner, message.attempt, message.refutations)
                view.send(sender, JoinBounced(queued_join, message.path, message.walking))
            view.drop("outside")
        else:
            self._bring(message)

    def on_bounced(self, sender: Peer, message: JoinBounced) -> None:
        """Take the next hop out of the tables, because it is not in the ring, and try another route."""
        view = self._view
        known = view.book.get(sender.node)
        if known is not None and known.peer.incarnation == sender.incarnation:
            view.step_aside(known)
        if message.walking:
            # Agreed neighbours stay agreed while one of them is outside: the same route would bounce again, for ever. A network
            # that doubles messages would make a storm of it. The joiner asks anew when no invitation comes.
            view.drop("outside")
            return
        if view.joined and len(message.path) and message.path[-1].node == view.me.node:
            queued_join = message.queued_join
            self._bring(
                JoinRequest(
                    queued_join.joiner,
                    queued_join.attempt,
                    message.path[:-1],
                    message.walking,
                    refutations=queued_join.refutations,
                )
            )

    def _bring(self, message: JoinRequest) -> None:
        view = self._view
        joiner = message.joiner
        if joiner.node == view.me.node or len(message.path) >= MAX_PATH:
            view.drop("join-path")
            return
        if self._is_refused(message):
            return
        if not message.walking:
            self._send_rows(message)
            hop = view.next_hop(joiner.node, (joiner.node,)).peer
            if hop is not None and message.attempt >= _DOUBTFUL and message.attempt % 2:
                hop = view.next_hop(joiner.node, (joiner.node, hop.node)).peer
            if hop is not None:
                if message.attempt > 1:
                    # The route may lead over dead nodes.
                    view.look_at(hop)
                pass_on(view, hop, message, walking=False)
                return
            # The path of a walk begins with the walk, because earlier nodes of the route may well be on it again.
            message = JoinRequest(joiner, message.attempt, walking=True, refutations=message.refutations)
        elif any(passed.node == view.me.node for passed in message.path):
            # The walk went round the ring, since the next node to the joiner is dead: a storm, in a network that doubles
            # messages.
            view.drop("join-loop")
            return
        self._walk(message)

    def _is_refused(self, message: JoinRequest) -> bool:
        """Refuse a copy of a node that lives or lived; notify a rejoining one that was believed dead, so that it says so."""
        view = self._view
        joiner = message.joiner
        known, tombstone = view.book.get(joiner.node), view.book.tombstone(joiner.node)
        other = known.peer if known is not None else tombstone.peer if tombstone is not None else None
        if other is None or other.incarnation < joiner.incarnation:
            return False
        if known is not None and not known.is_placed and known.peer.incarnation == joiner.incarnation:
            return False  # it is only watched here: that is no membership
        is_final = tombstone is not None and tombstone.has_left
        if other.incarnation > joiner.incarnation or message.refutations == 0 or is_final:
            view.send(joiner, JoinRefused(message.attempt, "incarnation", other.incarnation))
            return True
        if tombstone is not None and message.refutations <= tombstone.refutations:
            view.send(joiner, Accused(tombstone.refutations, tombstone.peer.incarnation))
            return True
        return False

    def _send_rows(self, message: JoinRequest) -> None:
        view = self._view
        table_peers = list(view.routing_table.rows_for(message.joiner.node))
        if not message.path:
            table_peers.extend(view.neighbourhood.nearest)
        unique = {peer.node: peer for peer in table_peers if peer.node != message.joiner.node}
        sightings = view.sightings(unique.values())
        view.send(message.joiner, JoinRows(message.attempt, len(message.path), sightings))

    def _walk(self, message: JoinRequest) -> None:
        """Walk along agreed neighbours to the member whose key range the joiner lies in."""
        view = self._view
        agreed = view.agreed
        joiner = message.joiner
        predecessor, successor = agreed.predecessor.peer, agreed.successor.peer
        if predecessor is None or successor is None:
            view.drop("outside")
            return
        queued_join = QueuedJoin(joiner, message.attempt, message.refutations)
        if agreed.is_between(view.me, joiner.node, successor):
            self._range_owner.enqueue(queued_join)
        elif joiner.node == successor.node:
            # Its earlier incarnation or membership has not ended here yet: it reports that itself when asked.
            view.send(
                joiner, RenewLease(to_predecessor=False, at=view.now, refutations=view.refutations, name=agreed.name)
            )
            self._range_owner.enqueue(queued_join)
        elif joiner.node == predecessor.node:
            view.send(
                joiner, RenewLease(to_predecessor=True, at=view.now, refutations=view.refutations, name=agreed.name)
            )
            beyond = _beyond(joiner, view.leaf_set.counterclockwise)
            if beyond is not None:
                pass_on(view, beyond, message, walking=True)
        else:
            self._step_on(message, is_ahead=self._is_ahead(message))

    def _is_ahead(self, message: JoinRequest) -> bool:
        """Return the direction of a walk: at first the shorter one; later the direction in which it came, even past a node."""
        view, joiner = self._view, message.joiner
        if message.path:
            return view.agreed.is_between(view.me, joiner.node, message.path[-1])
        bits = view.config.id_bits
        ahead = clockwise_distance(view.me.node, joiner.node, bits)
        return ahead < clockwise_distance(joiner.node, view.me.node, bits)

    def _step_on(self, message: JoinRequest, *, is_ahead: bool) -> None:
        """Pass the join to the next agreed neighbour; past it when it grants no lease: it is dead, or the path to it is broken."""
        view = self._view
        agreed = view.agreed
        side = agreed.successor if is_ahead else agreed.predecessor
        leaves = view.leaf_set.clockwise if is_ahead else view.leaf_set.counterclockwise
        assert side.peer is not None
        hop = side.peer
        if side.is_dead or view.now >= side.lease:
            beyond = _beyond(hop, leaves)
            if beyond is not None and all(passed.node != beyond.node for passed in message.path):
                hop = beyond
            elif is_ahead and side.is_dead:
                # It comes from behind the dead successor, so it may become the new successor.
                self._range_owner.enqueue(QueuedJoin(message.joiner, message.attempt, message.refutations))
                return
        pass_on(view, hop, message, walking=True)


def _beyond(peer: Peer, leaves: tuple[Peer, ...]) -> Peer | None:
    """Return the nearest leaf of a side that is another node."""
    return next((leaf for leaf in leaves if leaf.node != peer.node), None)
