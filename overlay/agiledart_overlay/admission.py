"""The member's side of a join: passing requests on, and the guardian's queue.

The guardian of a gap is the member just before it. It admits one joiner at a time: two that come between the same two members at
once would not learn of each other. The others wait in a bounded queue; its middle goes first, because the new member takes over
the far part of the gap, and with it the far part of the queue.

Source: [Pastry] §2.4; the project's overlay specification §5, step 7 a (the queue; the leases of the other steps come later).
"""

from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import NodeId, clockwise_distance
from agiledart_kernel.peer import Peer
from agiledart_overlay.messages import JoinRefused, JoinRequest, JoinRows, Welcome
from agiledart_overlay.observations import JoinerAdmitted
from agiledart_overlay.view import View


class Admission:
    """Lets joiners in, one at a time."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._admitted: tuple[NodeId, int] | None = None
        self._admitted_until = 0
        self._queue: dict[NodeId, JoinRequest] = {}

    def stop(self) -> None:
        """Admit nobody any more; those that wait will ask others."""
        self._view.cancel_timer("admit")
        self._queue.clear()
        self._admitted = None

    def on_announce(self, sender: Peer) -> None:
        """A member announced itself; if it is the one admitted here, the next one's turn has come."""
        if self._admitted == sender.life:
            self._admitted = None
            self._view.cancel_timer("admit")
            self._admit_next()

    def on_join_request(self, message: JoinRequest) -> None:
        """Pass a join on towards its place, or admit it."""
        view = self._view
        joiner = message.joiner
        if joiner.node == view.me.node or len(message.path) >= MAX_PATH:
            view.drop("join-path")
            return
        known = view.book.get(joiner.node)
        if known is not None and known.peer.incarnation >= joiner.incarnation:
            view.send(joiner, JoinRefused(message.attempt, "incarnation", known.peer.incarnation))
            return
        grave = view.book.grave(joiner.node)
        if grave is not None and grave.peer.incarnation >= joiner.incarnation:
            view.send(joiner, JoinRefused(message.attempt, "incarnation", grave.peer.incarnation))
            return
        if not message.walking:
            self._send_rows(message)
            hop = view.next_hop(joiner.node, (joiner.node,)).peer
            if hop is not None:
                view.send(hop, JoinRequest(joiner, message.attempt, (*message.path, view.me)))
                return
        guardian = self._guardian(joiner.node)
        if guardian is None:
            self._admit(message)
        else:
            view.send(guardian, JoinRequest(joiner, message.attempt, (*message.path, view.me), walking=True))

    def _send_rows(self, message: JoinRequest) -> None:
        view = self._view
        told = list(view.routing_table.rows_for(message.joiner.node))
        if not message.path:
            told.extend(view.neighbourhood.nearest)
        unique = {peer.node: peer for peer in told if peer.node != message.joiner.node}
        sightings = view.sightings(unique.values())
        view.send(message.joiner, JoinRows(message.attempt, len(message.path), sightings))

    def _guardian(self, joiner: NodeId) -> Peer | None:
        """The known member just before the joiner; None: this node."""
        view = self._view
        bits = view.config.id_bits
        best, nearest = None, clockwise_distance(view.me.node, joiner, bits)
        for peer in view.leaf_set.members:
            distance = clockwise_distance(peer.node, joiner, bits)
            if 0 < distance < nearest:
                best, nearest = peer, distance
        return best

    def _admit(self, message: JoinRequest) -> None:
        view = self._view
        joiner = message.joiner
        if self._admitted is not None and self._admitted != joiner.life and view.now < self._admitted_until:
            if len(self._queue) >= view.config.join_queue and joiner.node not in self._queue:
                view.send(joiner, JoinRefused(message.attempt, "busy"))
            else:
                self._queue[joiner.node] = message
            return
        self._queue.pop(joiner.node, None)
        self._admitted = joiner.life
        self._admitted_until = view.now + view.config.admission_ns
        view.set_timer("admit", self._admitted_until)
        view.observe(JoinerAdmitted(joiner))
        leaves = [peer for peer in view.leaf_set.members if peer.node != joiner.node]
        path = (*message.path, view.me)[:MAX_PATH]
        view.send(joiner, Welcome(message.attempt, path, view.refutations, view.sightings(leaves)))

    def on_admit_timer(self) -> None:
        """The admitted joiner took too long."""
        self._admitted = None
        self._admit_next()

    def _admit_next(self) -> None:
        """Take the queue up again, its middle first: the gap has changed, so part of it may now be another guardian's."""
        waiting = [self._queue[node] for node in sorted(self._queue)]
        self._queue.clear()
        if waiting:
            waiting.insert(0, waiting.pop(len(waiting) // 2))
        for request in waiting:
            self.on_join_request(JoinRequest(request.joiner, request.attempt, request.path, walking=True))
