"""How a node outside the ring finds a member that brings its join on the way, and what it learns of others meanwhile.

One attempt: seeds and fellows are probed; the first that says it is a member leads to a near one (`bootstrap`), which gets the
JoinRequest. Members on its way send rows; the next attempt asks those, too, and who gets in takes its tables from them.

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
    """Attempts of one node to get a join on its way.

    Attributes:
        attempt: number of the last one in this life.
        tries: attempts since the node began to look for the ring.
        is_answered: somebody answered since then, member or not.
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
        """Others that may help: joiners that looked for a member here, members that an earlier attempt told of."""
        self._gathered: dict[NodeId, Sighting] = {}

    @property
    def is_on(self) -> bool:
        """Whether this node looks for the ring, and nobody has offered it a place yet."""
        agreed = self._view.agreed
        return agreed.seeking and not agreed.active

    def forget(self) -> None:
        """A search that has nothing to do with earlier ones."""
        self._fellows.clear()
        self.is_answered = False

    def seek(self, *, is_hurried: bool) -> None:
        """The next attempt; hurried, or not the first: through whoever answers first."""
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
        """The next attempt, through somebody who is known to be in."""
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

    # ---- what comes in

    def on_probe_ack(self, sender: Peer, message: ProbeAck) -> None:
        """A seed answered; if it is a member, the join starts from it or from one that is nearer."""
        if not self.is_on:
            return
        self.is_answered = True
        self._ring_creation.on_answer(sender, message)
        if message.joined and not self.has_asked:
            self.bootstrap.on_member(sender)

    def _on_chosen(self, member: Peer) -> None:
        """The nearest member that could be found."""
        if self.is_on and not self.has_asked:
            self._request(member, walking=False)

    def on_fellow(self, sender: Peer) -> None:
        """Somebody else who is not a member either looks for one here."""
        self._ring_creation.note_candidate(sender)
        if self._view.agreed.seeking:
            self._add_fellow(sender)

    def _add_fellow(self, peer: Peer) -> None:
        if len(self._fellows) < MAX_SEEDS:
            self._fellows[peer.node] = peer

    def on_rows(self, sender: Peer, message: JoinRows) -> None:
        """A member on the way tells what it knows."""
        self._ring_creation.saw_ring(0)
        if self._view.agreed.seeking and message.attempt == self.attempt:
            self.gather((Sighting(sender), *message.sightings))

    # ---- what it has learnt

    def gather(self, sightings: Iterable[Sighting]) -> None:
        """Remember members for the tables of this node."""
        for sighting in sightings:
            if len(self._gathered) < _MAX_GATHERED and sighting.peer.node != self._view.me.node:
                self._gathered.setdefault(sighting.peer.node, sighting)

    def take(self) -> tuple[Sighting, ...]:
        """The search is over: all that were gathered."""
        gathered = tuple(self._gathered.values())
        self._gathered.clear()
        self._fellows.clear()
        return gathered

    def keep(self, contacts: Iterable[Peer]) -> None:
        """A member must join again: these, and the fellows of before, may know the way."""
        known = {peer.node: peer for peer in (*contacts, *self._fellows.values()) if peer.node != self._view.me.node}
        self._fellows = dict(list(known.items())[:MAX_SEEDS])
