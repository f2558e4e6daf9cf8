"""A voter's side of eras: it hears that an admin had the run go on without it, and lets go; who leads tells those that come back.

What an era is: `register/regaining.py`. It counts at nobody's word, only with the order of an admin that began it.

The awkward case: a voter of the new era that has not heard of its first value yet sees its leader, too. It stays silent until it
has that value, and votes meanwhile.
"""

from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import ATTEMPTS_PER_CONFIGURATION, ROUNDS_PER_CONFIGURATION
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Proposer
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire.names import Ballot
from agiledart_recovery.wire.observations import MessageIgnored, QuorumRecovered, VoterExcluded
from agiledart_recovery.wire.register_value import RegisterValue


def first_ballot_of_configuration(attempt: int) -> Ballot:
    """The lowest ballot of the era of a life."""
    return Ballot(attempt // ATTEMPTS_PER_CONFIGURATION * ROUNDS_PER_CONFIGURATION)


class Configurations:
    """What one voter knows of eras of a run."""

    def __init__(self, context: RecoveryContext, voter_slot: VoterSlot, proposer: Proposer) -> None:
        self._context, self._voter_slot, self._proposer = context, voter_slot, proposer
        self._returned: dict[NodeId, Peer] = {}

    def is_superseded(self, known: RegisterValue | None) -> bool:
        """Whether the run goes on in a later era, of which this voter knows no more than that."""
        return (
            known is not None
            and max(self._voter_slot.promised, self._proposer.highest).configuration > known.configuration
        )

    def is_proven(self, sender: Peer, ballot: Ballot, signed_command: bytes) -> bool:
        """Whether the era of a ballot is known here, or comes with an admin's order."""
        if ballot.configuration <= self._proposer.highest.configuration or self._voter_slot.is_known(
            ballot.configuration, signed_command
        ):
            return True
        self._context.observe(MessageIgnored(sender.node, "era"))
        return False

    @property
    def is_exhausted(self) -> bool:
        """Whether no ballot of this era is left: the next one would be of an era that nobody has ordered."""
        return (max(self._voter_slot.promised, self._proposer.highest).round + 1) % ROUNDS_PER_CONFIGURATION == 0

    def is_far_above(self, ballot: Ballot) -> bool:
        """Whether nobody who leads comes to such a ballot from what is known here, in steps that voters take."""
        return ballot > self._proposer.highest and self._voter_slot.is_far_above(ballot)

    def is_later(self, sender: Peer, ballot: Ballot, signed_command: bytes, known: RegisterValue | None) -> bool:
        """Whether somebody's ballot is of a later era than what this voter knows: then nothing is to be done here any more."""
        if known is None or ballot.configuration <= known.configuration:
            return False
        if self._voter_slot.promised.configuration <= known.configuration:
            self._context.observe(VoterExcluded(self._voter_slot.run, sender.node))
        self._voter_slot.yield_to(ballot, signed_command)
        return True

    def refuse_superseded(self, sender: Peer, ballot: Ballot) -> bool:
        """Who leads under a ballot of an era before is told that it is over."""
        if ballot.configuration >= self._voter_slot.promised.configuration:
            return False
        self._voter_slot.refuse(sender, ballot)
        return True

    # ---- who leads

    def on_quorum_recovered(self, value: RegisterValue) -> None:
        """An era begins here."""
        voters = tuple(voter.peer.node for voter in value.voters)
        self._context.observe(
            QuorumRecovered(value.run, value.quorum_generation, value.committed.epoch, voters, value.left)
        )

    def is_back(self, peer: Peer, value: RegisterValue) -> None:
        """A node can be reached again: one that the run was made to go on without is told, until it has heard it."""
        if peer.node in value.left:
            self._returned[peer.node] = peer

    def on_acknowledged(self, peer: Peer) -> None:
        """A node has heard who leads."""
        self._returned.pop(peer.node, None)

    def notify_returned(self, leading: Message) -> None:
        """Say again who leads."""
        for peer in self._returned.values():
            self._context.send(peer, leading)
