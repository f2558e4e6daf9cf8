"""A voter's side of configurations.

A voter learns that an admin continued the run without it, and leaves the run. The coordinator notifies excluded voters that come
back. `register/quorum_recovery.py` explains configurations. A configuration is valid only with the admin's signed command that
began
it, at no other node's word.

The awkward case: a voter of the new configuration receives messages of its leader before it has its first value. It stays silent
until it has that value, and votes meanwhile.
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
    """Return the lowest ballot of the configuration of an attempt."""
    return Ballot(attempt // ATTEMPTS_PER_CONFIGURATION * ROUNDS_PER_CONFIGURATION)


class Configurations:
    """Configurations of a run, as one voter knows them."""

    def __init__(self, context: RecoveryContext, voter_slot: VoterSlot, proposer: Proposer) -> None:
        self._context, self._voter_slot, self._proposer = context, voter_slot, proposer
        self._returned: dict[NodeId, Peer] = {}

    def is_superseded(self, known: RegisterValue | None) -> bool:
        """Return whether the run continues in a later configuration of which this voter knows no more than that."""
        return (
            known is not None
            and max(self._voter_slot.promised, self._proposer.highest).configuration > known.configuration
        )

    def is_proven(self, sender: Peer, ballot: Ballot, signed_command: bytes) -> bool:
        """Return whether the configuration of a ballot is known here, or comes with an admin's signed command."""
        if ballot.configuration <= self._proposer.highest.configuration or self._voter_slot.is_known(
            ballot.configuration, signed_command
        ):
            return True
        self._context.observe(MessageIgnored(sender.node, "configuration"))
        return False

    @property
    def is_exhausted(self) -> bool:
        """Return whether no ballot of this configuration is left. The next one would belong to a configuration that no admin
        has begun.
        """
        return (max(self._voter_slot.promised, self._proposer.highest).round + 1) % ROUNDS_PER_CONFIGURATION == 0

    def is_far_above(self, ballot: Ballot) -> bool:
        """Return whether a ballot is so far above the known ones that no leader reaches it in steps that voters accept."""
        return ballot > self._proposer.highest and self._voter_slot.is_far_above(ballot)

    def is_later(self, sender: Peer, ballot: Ballot, signed_command: bytes, known: RegisterValue | None) -> bool:
        """Return whether a peer's ballot belongs to a later configuration than the known value; if so, this voter stops."""
        if known is None or ballot.configuration <= known.configuration:
            return False
        if self._voter_slot.promised.configuration <= known.configuration:
            self._context.observe(VoterExcluded(self._voter_slot.run, sender.node))
        self._voter_slot.yield_to(ballot, signed_command)
        return True

    def refuse_superseded(self, sender: Peer, ballot: Ballot) -> bool:
        """Notify a leader of an earlier configuration that it is superseded; return whether it was."""
        if ballot.configuration >= self._voter_slot.promised.configuration:
            return False
        self._voter_slot.refuse(sender, ballot)
        return True

    # ---- while leading

    def on_quorum_recovered(self, value: RegisterValue) -> None:
        """Report that a configuration begins here."""
        voters = tuple(voter.peer.node for voter in value.voters)
        self._context.observe(
            QuorumRecovered(value.run, value.quorum_generation, value.committed.epoch, voters, value.left)
        )

    def is_back(self, peer: Peer, value: RegisterValue) -> None:
        """Note that a node is reachable again. An excluded voter is notified until it acknowledges."""
        if peer.node in value.left:
            self._returned[peer.node] = peer

    def on_acknowledged(self, peer: Peer) -> None:
        """Stop notifying a node that has acknowledged the leader."""
        self._returned.pop(peer.node, None)

    def notify_returned(self, announcement: Message) -> None:
        """Send the leader's announcement to excluded voters that came back."""
        for peer in self._returned.values():
            self._context.send(peer, announcement)
