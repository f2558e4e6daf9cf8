"""Leadership of a run, as one voter sees it: which voter coordinates, and when this one takes over.

| what happens | what follows |
|---|---|
| another voter announces that it coordinates | this one follows it |
| the coordinator is silent for too long | the voter nearest to the key reads the register under a higher ballot |
| a voter has promised a higher ballot | this one stops coordinating |
| a later configuration without this voter is proven | the same, for good |

The awkward case: a voter whose slot was given to another node while it was away. It takes over, reads that, and leaves the run.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.configurations import Configurations
from agiledart_recovery.attempts.coordinator_state import CoordinatorState, Phase
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.proposer import RegisterOutcome
from agiledart_recovery.register.quorums import rank
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, Voter
from agiledart_recovery.wire.observations import CoordinationLost
from agiledart_recovery.wire.register_value import RegisterValue


class Leadership:
    """Leadership of one run.

    Attributes:
        leader: the voter that announced last that it coordinates.
        lacks_voters: the voters that answer are no majority, so nothing can be committed.
        is_over: whether the run has ended and all its nodes know.
    """

    def __init__(self, context: RecoveryContext, voter_slot: VoterSlot, state: CoordinatorState) -> None:
        self._context, self._voter_slot, self._state = context, voter_slot, state
        self.configurations = Configurations(context, voter_slot, state.proposer)
        self.leader: Peer | None = None
        self.lacks_voters = False
        self.is_over, self._over_since = False, context.now
        self._last_received_at = context.now
        self._bootstrap_value: RegisterValue | None = None

    def known(self) -> RegisterValue | None:
        """Return the newest known value: the acknowledged one, or the one that this node's own voter slot accepted."""
        proposer = self._state.proposer
        newer = proposer.value if proposer.stamp > self._voter_slot.accepted else self._voter_slot.value
        return newer or self._bootstrap_value

    # ---- taking over

    def bootstrap(self, value: RegisterValue) -> None:
        """Start a run: write its first value, if no voter has written one."""
        self._bootstrap_value = value
        if self._state.phase is Phase.FOLLOWING:
            self.take_over()

    def recover_quorum(self, value: RegisterValue, below: Ballot) -> None:
        """Continue from this value with the voters that it names, after the majority of the old ones was lost for ever."""
        self.configurations.on_quorum_recovered(value)
        self._state.proposer.release()
        self._bootstrap_value, self._last_received_at = value, self._context.now
        self._state.follow()
        self._state.phase = Phase.READING
        self._state.proposer.recover_quorum(value, below)

    def take_over(self) -> None:
        """Read the register under a higher ballot, unless the run continues without this voter."""
        known, state = self.known(), self._state
        self._last_received_at = self._context.now
        if self.configurations.is_superseded(known) or self.configurations.is_exhausted:
            state.phase = Phase.FOLLOWING
        elif known is not None:
            state.proposer.highest = max(state.proposer.highest, self._voter_slot.promised)
            state.phase = Phase.READING
            state.proposer.begin(known)

    def retry_reading(self) -> None:
        """Read the register again under a higher ballot when too few voters have answered for long."""
        if self._context.now - self._last_received_at > 4 * self._context.config.silence_ns:
            self._state.proposer.release()
            self.take_over()

    def watch_leader(self) -> None:
        """Take over from a coordinator that has been silent for too long."""
        known = self.known()
        if (
            known is None
            or self.is_over
            or self._has_left(known)
            or self.configurations.is_superseded(known)
            or not self.is_voter((*known.voters, *known.old_voters))
        ):
            return
        if self._context.now - self._last_received_at > self._silence_timeout(known):
            self.take_over()

    def _silence_timeout(self, known: RegisterValue) -> int:
        """Return how long a leader may be silent before this voter prepares; the live voter nearest to the key goes first.

        A coordinator that is dead, or has given its voter slot away, will send nothing more, so the wait is shorter then.
        """
        living = [voter for voter in known.voters if voter.peer.node not in self._context.lost]
        leader = self.leader
        is_gone = leader is not None and (leader.node in self._context.lost or not known.may_be_sent_by(leader.node))
        silence = 0 if is_gone else self._context.config.silence_ns
        return silence + self._context.config.silence_ns * rank(living, self._state.run, self._context.me.node) // 2

    # ---- following

    def on_leader_announced(self, sender: Peer, message: wire.LeaderAnnounced) -> None:
        """Follow another voter that announces that it coordinates."""
        ballot, proposer = message.ballot, self._state.proposer
        if ballot.node != sender.node or self.configurations.refuse_superseded(sender, ballot):
            return
        if not self.configurations.is_proven(
            sender, ballot, message.signed_command
        ) or self.configurations.is_far_above(ballot):
            return
        if ballot < self._voter_slot.promised and ballot < proposer.highest:
            return
        self._last_received_at, self.leader, self.is_over = self._context.now, sender, message.is_over
        self._on_ballot_seen(proposer.observe_ballot(ballot))
        self._context.send(sender, wire.LeaderAcknowledged(self._state.run, ballot, self._voter_slot.voter_slot))
        self._yield_to_configuration(sender, ballot, message.signed_command)

    def on_refused(self, sender: Peer, message: wire.BallotRefused) -> None:
        """A voter has promised a higher ballot."""
        proposer = self._state.proposer
        is_mine = message.ballot == proposer.ballot
        if is_mine and self.configurations.is_proven(sender, message.promised, message.signed_command):
            self._on_ballot_seen(proposer.on_refused(sender, message))
            self._yield_to_configuration(sender, message.promised, message.signed_command)

    def _on_ballot_seen(self, outcome: RegisterOutcome | None) -> None:
        if outcome is RegisterOutcome.OVERTAKEN:
            self._context.observe(CoordinationLost(self._state.run, self._state.proposer.ballot))
            self._last_received_at = self._context.now
            self._state.follow()

    def yield_if_proven(self, sender: Peer, ballot: Ballot, signed_command: bytes) -> None:
        """Stop coordinating when a host proves that the run continues in a later configuration."""
        if self.configurations.is_proven(sender, ballot, signed_command):
            self._yield_to_configuration(sender, ballot, signed_command)

    def _yield_to_configuration(self, sender: Peer, ballot: Ballot, signed_command: bytes) -> None:
        """Stop coordinating a run that continues in a later configuration without this voter."""
        if self.configurations.is_later(sender, ballot, signed_command, self.known()):
            self._state.proposer.release()
            self._state.follow()

    # ---- voters

    def is_voter(self, voters: tuple[Voter, ...]) -> bool:
        """Return whether this node's voter slot is among these."""
        voter_id = (self._context.me.node, self._voter_slot.voter_slot)
        return any(voter.voter_id == voter_id for voter in voters)

    def _has_left(self, known: RegisterValue) -> bool:
        """Return whether others vote for the run by an acknowledged value, and by the newest one. They finish the change of voters.

        A former voter that read the register again and again would overtake each of them.
        """
        acknowledged = self._state.proposer.value
        return not (acknowledged is None or self.is_voter(acknowledged.voters) or self.is_voter(known.voters))

    def leave_if_replaced(self, voters: tuple[Voter, ...]) -> bool:
        """Leave the run to other voters when this node's slot was given away. Return whether it was."""
        if self.is_voter(voters):
            return False
        self._state.proposer.release()
        self._last_received_at = self._context.now
        return True

    def announce_leader(self) -> None:
        """Announce to the other voters that this node coordinates."""
        state, me = self._state, self._context.me
        if state.proposer.phase in (Hold.LEADING, Hold.WRITING):
            announcement = wire.LeaderAnnounced(
                state.run, state.proposer.ballot, self.is_over, state.value.signed_command
            )
            for voter in (*state.value.voters, *state.value.old_voters):
                if voter.peer.node != me.node:
                    self._context.send(voter.peer, announcement)
            state.voter_replacement.answered(me, self._voter_slot.voter_slot)
            self.configurations.notify_returned(announcement)

    def on_leader_acknowledged(self, sender: Peer, message: wire.LeaderAcknowledged) -> None:
        """Note that a voter, or an excluded voter, has received the announcement."""
        self.configurations.on_acknowledged(sender)
        self._state.voter_replacement.answered(sender, message.voter_slot)

    def look_for_voters(self) -> None:
        """Record which voters are missing when those that answer are no majority. Without a majority nothing can be committed."""
        state, now, limit = self._state, self._context.now, 2 * self._context.config.silence_ns
        if state.proposer.phase in (Hold.LEADING, Hold.WRITING):
            missing = state.voter_replacement.missing(state.value, Instant(now - limit))
        else:
            missing = state.proposer.silent() if now - self._last_received_at > limit else ()
        if missing and state.phase is not Phase.CLOSING:
            state.progress.enter("waiting", now, "no majority of the register's voters answers; bring one of them back")
            state.progress.waits_for = missing
        elif self.lacks_voters and state.phase is Phase.RUNNING:
            state.progress.enter("replay", now)
        self.lacks_voters = bool(missing)

    # ---- the end of the run

    def end(self) -> None:
        """Note that all nodes know the run's end; the other voters have to learn that."""
        if not self.is_over:
            self.is_over, self._over_since = True, self._context.now

    @property
    def is_silent(self) -> bool:
        """Return whether nothing is left to send, because the run is over and all voters know it."""
        is_following = self._state.phase is Phase.FOLLOWING
        return self.is_over and (is_following or self._state.voter_replacement.all_answered_since(self._over_since))
