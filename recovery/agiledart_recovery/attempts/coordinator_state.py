"""State of a coordinator that all its parts read and write."""

from enum import Enum

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.attempts.next_attempt import NextAttempt
from agiledart_recovery.attempts.recovery_progress import RecoveryProgress
from agiledart_recovery.attempts.voter_replacement import VoterReplacement
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.proposer import Proposer
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire.register_value import RegisterValue


class Phase(Enum):
    """Phase of a coordinator; the head of `coordinator.py` has the table."""

    FOLLOWING = "following"
    READING = "reading"
    RESETTING = "resetting"
    RUNNING = "running"
    WAITING = "waiting"
    CLOSING = "closing"


class CoordinatorState:
    """State of a coordinator.

    Attributes:
        need: why a new attempt is needed; empty: none is.
        progress: how far a recovery is, for people.
        evacuated: hosts that are drained; they receive RESET although no plan names them.
    """

    def __init__(self, context: RecoveryContext, voter_slot: VoterSlot) -> None:
        self.run = voter_slot.run
        self.phase = Phase.FOLLOWING
        self.proposer = Proposer(context, voter_slot.run)
        self.proposer.highest = voter_slot.promised
        self.commit_protocol = CommitProtocol(context, voter_slot.run)
        self.voter_replacement = VoterReplacement(context, voter_slot.run)
        self.next_attempt = NextAttempt(context)
        self.need = ""
        self.progress = RecoveryProgress()
        self.evacuated: dict[NodeId, Peer] = {}

    @property
    def value(self) -> RegisterValue:
        """The newest acknowledged value that this coordinator knows of."""
        value = self.proposer.value
        assert value is not None
        return value

    @property
    def holds_ballot(self) -> bool:
        """Return whether this coordinator can write a value now."""
        return self.proposer.phase is Hold.LEADING

    @property
    def is_coordinating(self) -> bool:
        """Return whether this coordinator leads a run that has not ended."""
        return self.phase not in (Phase.FOLLOWING, Phase.CLOSING)

    def follow(self) -> None:
        """Stop coordinating: another voter does, or this node does not vote any more."""
        self.commit_protocol.generation_change.forget()
        self.phase, self.need, self.progress = Phase.FOLLOWING, "", RecoveryProgress()
