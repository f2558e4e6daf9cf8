"""Search of a node outside the ring for a member that forwards its join; it also collects the peers reported meanwhile.

One attempt: seeds and fellow seekers are probed; the first member that answers leads to a near one (`bootstrap`), which gets the
JoinRequest. Members on its route send rows; the next attempt also asks these, and a new member takes its tables from them.

Source: [Pastry] §2.4; the project's overlay specification §5, steps 1 and 2.
"""

from collections.abc import Iterable

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.join.bootstrap import Bootstrap
from agiledart_overlay.join.ring_creation import RingCreation
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import JoinRequest, JoinRows, PeerProbe, ProbeAck, Sighting

MAX_SEEDS = 32
_MAX_GATHERED = 1_024


class RingSearch:
    """Attempts of one node to send a join to the ring.

    Attributes:
        attempt: number of the last attempt in this incarnation.
        tries: attempts since the node began to look for the ring.
        is_answered: some node answered since then, member or not.
        has_asked: a member has the request of this attempt.
    """

    __slots__ = (
        "_fellows",
        "_gathered",
        "_ring_creation",
        "_view",
        "attempt",
        "bootstrap",
        "has_asked",
        "is_answered",
        "tries",
    )  # fmt: skip

    def __init__(self, view: View, ring_creation: RingCreation) -> None:
        self._view, self._ring_creation = view, ring_creation
        self.bootstrap = Bootstrap(view, self._on_chosen)
        self.attempt = self.tries = 0
        self.is_answered = self.has_asked = False
        self._fellows: dict[NodeId, Peer] = {}
        """Other nodes that may help: joiners that looked for a member here, members that an earlier attempt reported."""
        self._gathered: dict[NodeId, Sighting] = {}

    @property
    def is_on(self) -> bool:
        """Report whether this node looks for the ring and has no offer of a key range yet."""
        agreed = self._view.agreed
        return agreed.seeking and not agreed.active

    def forget(self) -> None:
        """Forget earlier searches."""
        self._fellows.clear()
        self.is_answered = False

    def seek(self, *, is_hurried: bool) -> None:
        """Begin the next attempt; hurried, or not the first: through the first node that answers."""
        view = self._view
        self._new_attempt()
        for sighting in self._gathered.values():
            self._add_fellow(sighting.peer)
        self._gathered.clear()
        asked = {peer.node: peer for peer in (*view.seeds, *self._fellows.values())}
        smallest = self._ring_creation.smallest
        if smallest is not None:
            asked.setdefault(smallest.node, smallest)
        for peer in asked.values():
            view.send(peer, PeerProbe(view.number(), view.refutations, joined=False))
        self.bootstrap.begin(is_hurried=is_hurried or self.tries > 1)
        view.set_timer("join", view.now + view.config.join_retry_ns)

    def seek_through(self, member: Peer) -> None:
        """Begin the next attempt, through a known member."""
        self._new_attempt()
        self._request(member, walking=True)

    def _new_attempt(self) -> None:
        self.attempt += 1
        self.tries += 1
        self.has_asked = False

    def _request(self, member: Peer, *, walking: bool) -> None:
        view = self._view
        self.has_asked = True
        view.send(member, JoinRequest(view.me, self.attempt, walking=walking, refutations=view.refutations))
        view.set_timer("join", view.now + view.config.join_retry_ns)

    # ---- received messages

    def on_probe_ack(self, sender: Peer, message: ProbeAck) -> None:
        """Take a seed's answer; a member starts the join, through itself or a nearer one."""
        if not self.is_on:
            return
        self.is_answered = True
        self._ring_creation.on_answer(sender, message)
        if message.joined and not self.has_asked:
            self.bootstrap.on_member(sender)

    def _on_chosen(self, member: Peer) -> None:
        """Send the join to the nearest member found."""
        if self.is_on and not self.has_asked:
            self._request(member, walking=False)

    def on_fellow(self, sender: Peer) -> None:
        """Note another node outside the ring that looks for a member here."""
        self._ring_creation.note_candidate(sender)
        if self._view.agreed.seeking:
            self._add_fellow(sender)

    def _add_fellow(self, peer: Peer) -> None:
        if len(self._fellows) < MAX_SEEDS:
            self._fellows[peer.node] = peer

    def on_rows(self, sender: Peer, message: JoinRows) -> None:
        """Take the rows of a member on the route."""
        self._ring_creation.saw_ring(0)
        if self._view.agreed.seeking and message.attempt == self.attempt:
            self.gather((Sighting(sender), *message.sightings))

    # ---- gathered members

    def gather(self, sightings: Iterable[Sighting]) -> None:
        """Remember members for the tables of this node."""
        for sighting in sightings:
            if len(self._gathered) < _MAX_GATHERED and sighting.peer.node != self._view.me.node:
                self._gathered.setdefault(sighting.peer.node, sighting)

    def take(self) -> tuple[Sighting, ...]:
        """End the search; return all members gathered."""
        gathered = tuple(self._gathered.values())
        self._gathered.clear()
        self._fellows.clear()
        return gathered

    def keep(self, contacts: Iterable[Peer]) -> None:
        """Keep these contacts, and earlier fellows, for the rejoin of a member."""
        known = {peer.node: peer for peer in (*contacts, *self._fellows.values()) if peer.node != self._view.me.node}
        self._fellows = dict(list(known.items())[:MAX_SEEDS])
