"""A voter's side of eras: it hears that an admin had the run go on without it, and lets go; who leads tells those that come back.

What an era is: `register/regaining.py`. It counts at nobody's word, only with the order of an admin that began it.

The awkward case: a voter of the new era that has not heard of its first value yet sees its leader, too. It stays silent until it
has that value, and votes meanwhile.
"""

from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.limits import LIVES_OF_AN_ERA, ROUNDS_OF_AN_ERA
from agiledart_recovery.register.proposer import Proposer
from agiledart_recovery.register.voter import VoterSeat
from agiledart_recovery.wire.names import Ballot
from agiledart_recovery.wire.observations import MessageIgnored, RunLeft, RunRegained
from agiledart_recovery.wire.value import Value


def first_ballot_of(life: int) -> Ballot:
    """The lowest ballot of the era of a life."""
    return Ballot(life // LIVES_OF_AN_ERA * ROUNDS_OF_AN_ERA)


class Eras:
    """What one voter knows of eras of a run."""

    def __init__(self, desk: Desk, seat: VoterSeat, proposer: Proposer) -> None:
        self._desk, self._seat, self._proposer = desk, seat, proposer
        self._returned: dict[NodeId, Peer] = {}

    def is_left(self, known: Value | None) -> bool:
        """Whether the run goes on in a later era, of which this voter knows no more than that."""
        return known is not None and max(self._seat.promised, self._proposer.highest).era > known.era

    def is_proven(self, sender: Peer, ballot: Ballot, order: bytes) -> bool:
        """Whether the era of a ballot is known here, or comes with an admin's order."""
        if ballot.era <= self._proposer.highest.era or self._seat.is_known(ballot.era, order):
            return True
        self._desk.observe(MessageIgnored(sender.node, "era"))
        return False

    @property
    def is_spent(self) -> bool:
        """Whether no ballot of this era is left: the next one would be of an era that nobody has ordered."""
        return (max(self._seat.promised, self._proposer.highest).round + 1) % ROUNDS_OF_AN_ERA == 0

    def is_far_above(self, ballot: Ballot) -> bool:
        """Whether nobody who leads comes to such a ballot from what is known here, in steps that voters take."""
        return ballot > self._proposer.highest and self._seat.is_far_above(ballot)

    def is_later(self, sender: Peer, ballot: Ballot, order: bytes, known: Value | None) -> bool:
        """Whether somebody's ballot is of a later era than what this voter knows: then nothing is to be done here any more."""
        if known is None or ballot.era <= known.era:
            return False
        if self._seat.promised.era <= known.era:
            self._desk.observe(RunLeft(self._seat.run, sender.node))
        self._seat.yield_to(ballot, order)
        return True

    def refuses(self, sender: Peer, ballot: Ballot) -> bool:
        """Who leads under a ballot of an era before is told that it is over."""
        if ballot.era >= self._seat.promised.era:
            return False
        self._seat.refuse(sender, ballot)
        return True

    # ---- who leads

    def regained(self, value: Value) -> None:
        """An era begins here."""
        voters = tuple(voter.peer.node for voter in value.voters)
        self._desk.observe(RunRegained(value.run, value.generation, value.committed.epoch, voters, value.left))

    def is_back(self, peer: Peer, value: Value) -> None:
        """A node can be reached again: one that the run was made to go on without is told, until it has heard it."""
        if peer.node in value.left:
            self._returned[peer.node] = peer

    def has_heard(self, peer: Peer) -> None:
        """A node has heard who leads."""
        self._returned.pop(peer.node, None)

    def tell_returned(self, leading: Message) -> None:
        """Say again who leads."""
        for peer in self._returned.values():
            self._desk.send(peer, leading)
