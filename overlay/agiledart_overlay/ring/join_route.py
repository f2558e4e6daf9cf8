"""The way of a join to its guardian: routed to the closest member, then along agreed neighbours to the one whose gap it lies in.

Members on the way send the joiner their rows, and refuse a life that they know to be over. One that is outside of the ring gives
the request back; the sender takes it out of its tables and tries another way.

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
"""From this attempt on every other one goes by the second best hop each time: a link on the best way may be broken."""


class JoinRoute:
    """One node's part in it."""

    __slots__ = ("_range_owner", "_view")

    def __init__(self, view: View, range_owner: RangeOwner) -> None:
        self._view, self._range_owner = view, range_owner

    def on_join_request(self, sender: Peer, message: JoinRequest) -> None:
        """Pass a join on towards its place, or queue it."""
        view = self._view
        if not view.joined:
            if message.path and message.joiner.node not in (sender.node, view.me.node):
                queued_join = QueuedJoin(message.joiner, message.attempt, message.refutations)
                view.send(sender, JoinBounced(queued_join, message.path, message.walking))
            view.drop("outside")
        else:
            self._bring(message)

    def on_bounced(self, sender: Peer, message: JoinBounced) -> None:
        """The node that this join was passed to is not in the ring: out of the tables with it, and another way."""
        view = self._view
        known = view.book.get(sender.node)
        if known is not None and known.peer.incarnation == sender.incarnation:
            view.step_aside(known)
        if message.walking:
            # Agreed neighbours stay agreed while one of them is outside: the same way again would bounce again, for ever, and a
            # network that doubles messages would make a storm of it. The joiner asks anew when nobody calls it.
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
                    # Perhaps the way leads over the dead.
                    view.look_at(hop)
                pass_on(view, hop, message, walking=False)
                return
            # The path of a walk begins with the walk: who was on the way before it may well be on it again.
            message = JoinRequest(joiner, message.attempt, walking=True, refutations=message.refutations)
        elif any(passed.node == view.me.node for passed in message.path):
            # Round the ring, since the next one to the joiner is dead: a storm, in a network that doubles messages.
            view.drop("join-loop")
            return
        self._walk(message)

    def _is_refused(self, message: JoinRequest) -> bool:
        """A copy of a node that lives or lived: refused. One that was held for dead and rejoins: told to say so."""
        view = self._view
        joiner = message.joiner
        known, tombstone = view.book.get(joiner.node), view.book.tombstone(joiner.node)
        other = known.peer if known is not None else tombstone.peer if tombstone is not None else None
        if other is None or other.incarnation < joiner.incarnation:
            return False
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
        told = list(view.routing_table.rows_for(message.joiner.node))
        if not message.path:
            told.extend(view.neighbourhood.nearest)
        unique = {peer.node: peer for peer in told if peer.node != message.joiner.node}
        sightings = view.sightings(unique.values())
        view.send(message.joiner, JoinRows(message.attempt, len(message.path), sightings))

    def _walk(self, message: JoinRequest) -> None:
        """Along agreed neighbours to the member whose gap the joiner lies in."""
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
            # Its earlier life, or its earlier membership, has not ended here yet: it says so itself when asked.
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
        """Which way a walk goes: at first the shorter one; then on, as seen from whoever passed it on, perhaps over somebody."""
        view, joiner = self._view, message.joiner
        if message.path:
            return view.agreed.is_between(view.me, joiner.node, message.path[-1])
        bits = view.config.id_bits
        ahead = clockwise_distance(view.me.node, joiner.node, bits)
        return ahead < clockwise_distance(joiner.node, view.me.node, bits)

    def _step_on(self, message: JoinRequest, *, is_ahead: bool) -> None:
        """To the next agreed neighbour; round it when it grants this node nothing: it is dead, or the way to it is broken."""
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
                # It comes from behind the gap that is to be closed, so perhaps it is to be the other end.
                self._range_owner.enqueue(QueuedJoin(message.joiner, message.attempt, message.refutations))
                return
        pass_on(view, hop, message, walking=True)


def _beyond(peer: Peer, leaves: tuple[Peer, ...]) -> Peer | None:
    """The nearest leaf of a side that is another one."""
    return next((leaf for leaf in leaves if leaf.node != peer.node), None)
