"""Coordinator of a run: the voter that holds the highest ballot decides which attempt and which epoch are current.

| phase | trigger |
|---|---|
| FOLLOWING | another voter leads. Nothing received for `silence` → READING |
| READING | reads the register: finished or failed → CLOSING; attempt 0 → a new attempt; else → RESETTING |
| RESETTING | RESET goes to all hosts. All answer → RUNNING. A host was ended since, or timeout → a new attempt |
| RUNNING | epochs, see `commit_protocol`. A host lost, a change late, NEW_ATTEMPT_NEEDED → a new attempt |
| WAITING | no next attempt possible: a pinned host, or all capacity, is missing. A node comes back → RESETTING |
| CLOSING | COMMITTED goes out until all nodes have it |
| any | a higher ballot is seen → FOLLOWING |

While a run is WAITING its attempt stays, so that work on the other side of a partition keeps its worth.
"A new attempt": the coordinator makes a plan for ℓ + 1, has it ACCEPTed, and only then acts upon it → RESETTING.

The awkward cases. (1) Take-over: a new coordinator asks what is prepared by a RESET of the *same* attempt. Hosts that are in it
answer with what they have. So there is one way in, and a change of coordinator that was only slow costs nothing. (2) Two
coordinators at once: each acts on a value that it has read or written under its ballot. The one that was overtaken learns it at its
next ACCEPT, and only an ACCEPT commits.
"""

from enum import Enum

import msgspec

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.attempts.configurations import Configurations, first_ballot_of_configuration
from agiledart_recovery.attempts.next_attempt import NextAttempt
from agiledart_recovery.attempts.recovery_progress import RecoveryProgress
from agiledart_recovery.attempts.voter_replacement import VoterReplacement
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.proposer import Proposer, RegisterOutcome
from agiledart_recovery.register.quorums import rank
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, CheckpointId, Voter
from agiledart_recovery.wire.observations import (
    AttemptBegan,
    CoordinationBegan,
    CoordinationLost,
    MessageIgnored,
    RunRecovered,
    RunWaits,
)
from agiledart_recovery.wire.register_value import Plan, RegisterValue, RunState


class Phase(Enum):
    """Phase of a coordinator; the module's head has the table."""

    FOLLOWING = "following"
    READING = "reading"
    RESETTING = "resetting"
    RUNNING = "running"
    WAITING = "waiting"
    CLOSING = "closing"


class Coordinator:
    """Role of a voter that coordinates, or would if no other voter did.

    Attributes:
        progress: how far a recovery is, for people.
        leader: the voter that announced last that it coordinates.
        lacks_voters: the voters that answer are no majority, so nothing can be committed.
    """

    def __init__(self, context: RecoveryContext, voter_slot: VoterSlot) -> None:
        self._context, self._voter_slot, self.run = context, voter_slot, voter_slot.run
        self.phase = Phase.FOLLOWING
        self.proposer = Proposer(context, voter_slot.run)
        self.proposer.highest = voter_slot.promised
        self.commit_protocol = CommitProtocol(context, voter_slot.run)
        self.voter_replacement = VoterReplacement(context, voter_slot.run)
        self.configurations = Configurations(context, voter_slot, self.proposer)
        self.next_attempt = NextAttempt(context)
        self._last_heard_at = context.now
        self.leader: Peer | None = None
        self._bootstrap_value: RegisterValue | None = None
        self._before: RegisterValue | None = None
        self._need = ""
        self._deadline = self._retry_at = 0
        self._answered: dict[NodeId, None] = {}
        self._refused: dict[NodeId, None] = {}
        self._evacuated: dict[NodeId, Peer] = {}
        self.progress = RecoveryProgress()
        self.lacks_voters = False
        self._is_over, self._over_since = False, context.now
        self._beat()

    # ---- leading or following

    @property
    def value(self) -> RegisterValue:
        """The newest acknowledged value that this coordinator knows of."""
        value = self.proposer.value
        assert value is not None
        return value

    @property
    def node(self) -> NodeId:
        """Return the node of this coordinator."""
        return self._context.me.node

    @property
    def known(self) -> RegisterValue | None:
        """The newest value that this node knows of, acknowledged or not; for people."""
        return self.proposer.value or self._known()

    @property
    def leads(self) -> bool:
        """Return whether this coordinator believes that it holds the highest ballot."""
        return self.phase is not Phase.FOLLOWING

    @property
    def is_coordinating(self) -> bool:
        """Return whether this coordinator leads a run that has not ended."""
        return self.leads and self.phase is not Phase.CLOSING

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended and all its nodes know."""
        return self._is_over

    def bootstrap(self, value: RegisterValue) -> None:
        """Start a run: write its first value, if no voter has written one."""
        self._bootstrap_value = value
        if self.phase is Phase.FOLLOWING:
            self._take_over()

    def recover_quorum(self, value: RegisterValue, below: Ballot) -> None:
        """Continue from this value with the voters that it names, after the majority of the old ones was lost for ever."""
        self.configurations.on_quorum_recovered(value)
        self.commit_protocol.generation_change.forget()
        self.proposer.release()
        self._bootstrap_value, self._need, self._last_heard_at, self.phase = value, "", self._context.now, Phase.READING
        self.progress = RecoveryProgress()
        self.proposer.recover_quorum(value, below)

    def _yield_to_configuration(self, sender: Peer, ballot: Ballot, signed_command: bytes) -> None:
        """Stop coordinating a run that continues in a later configuration without this voter."""
        if self.configurations.is_later(sender, ballot, signed_command, self._known()):
            self.proposer.release()
            self.commit_protocol.generation_change.forget()
            self.phase, self._need, self.progress = Phase.FOLLOWING, "", RecoveryProgress()

    def on_refused(self, sender: Peer, message: wire.BallotRefused) -> None:
        """A voter has promised a higher ballot."""
        is_mine = message.ballot == self.proposer.ballot
        if is_mine and self.configurations.is_proven(sender, message.promised, message.signed_command):
            self.outcome(self.proposer.on_refused(sender, message))
            self._yield_to_configuration(sender, message.promised, message.signed_command)

    def _beat(self) -> None:
        self._context.set_timer((self.run, "tick"), self._context.config.tick_ns)

    def _known(self) -> RegisterValue | None:
        """Return the newest known value: the acknowledged one, or the one that this node's own voter slot accepted."""
        newer = self.proposer.value if self.proposer.stamp > self._voter_slot.accepted else self._voter_slot.value
        return newer or self._bootstrap_value

    def _take_over(self) -> None:
        known = self._known()
        self._last_heard_at = self._context.now
        if self.configurations.is_superseded(known) or self.configurations.is_exhausted:
            self.phase = Phase.FOLLOWING
        elif known is not None:
            self.proposer.highest = max(self.proposer.highest, self._voter_slot.promised)
            self.phase = Phase.READING
            self.proposer.begin(known)

    def on_leader_announced(self, sender: Peer, message: wire.LeaderAnnounced) -> None:
        """Follow another voter that announces that it coordinates."""
        if message.ballot.node != sender.node or self.configurations.refuse_superseded(sender, message.ballot):
            return
        if not self.configurations.is_proven(
            sender, message.ballot, message.signed_command
        ) or self.configurations.is_far_above(message.ballot):
            return
        if message.ballot < self._voter_slot.promised and message.ballot < self.proposer.highest:
            return
        self._last_heard_at, self.leader, self._is_over = self._context.now, sender, message.is_over
        self.outcome(self.proposer.observe_ballot(message.ballot))
        self._context.send(sender, wire.LeaderAcknowledged(self.run, message.ballot, self._voter_slot.voter_slot))
        self._yield_to_configuration(sender, message.ballot, message.signed_command)

    def outcome(self, outcome: RegisterOutcome | None) -> None:
        """React to an outcome of the proposer."""
        if outcome is RegisterOutcome.OVERTAKEN:
            self._context.observe(CoordinationLost(self.run, self.proposer.ballot))
            self.commit_protocol.generation_change.forget()
            self.phase, self._last_heard_at, self._need = Phase.FOLLOWING, self._context.now, ""
            self.progress = RecoveryProgress()
        elif outcome is RegisterOutcome.READ and not self._is_voter(self.value.voters):
            # This voter's slot was given to another node while it was away. It has read that, and leaves the run alone.
            self.proposer.release()
            self.phase, self._last_heard_at = Phase.FOLLOWING, self._context.now
        elif outcome is RegisterOutcome.READ:
            self._context.observe(CoordinationBegan(self.run, self.proposer.ballot))
            self.voter_replacement.began(self.value)
            self.next_attempt.clear_silent()
            self._before = self.value
            self._act_on_value()
        elif outcome is RegisterOutcome.WRITTEN:
            self.voter_replacement.written(self.value)
            self.commit_protocol.generation_change.written(self._before, self.value)
            self._before = self.value
            if self._is_voter((*self.value.voters, *self.value.old_voters)):
                self._act_on_written()
            else:  # it has given its voter slot away: hosts accept nothing from it any more
                self.proposer.release()
                self.commit_protocol.generation_change.forget()
                self.phase, self._last_heard_at, self._need, self.progress = (
                    Phase.FOLLOWING,
                    self._context.now,
                    "",
                    RecoveryProgress(),
                )

    # ---- time

    def on_tick(self) -> None:
        """Repeat unanswered messages and check deadlines; stay silent once a run is over and all nodes know it."""
        if self._is_over and (
            self.phase is Phase.FOLLOWING or self.voter_replacement.all_answered_since(self._over_since)
        ):
            return
        self._beat()
        if self.phase is Phase.FOLLOWING:
            self._watch_leader()
            return
        self.proposer.repeat()
        self._announce_leader()
        self._look_for_voters()
        if self.phase is Phase.READING:
            if self._context.now - self._last_heard_at > 4 * self._context.config.silence_ns:
                self.proposer.release()
                self._take_over()
            return
        self.voter_replacement.on_tick(
            self.proposer,
            is_free=self.phase is Phase.RUNNING and not self._need and not self.commit_protocol.has_request,
        )
        if self.proposer.phase is not Hold.LEADING:
            return
        if self.phase is Phase.RESETTING:
            self._tick_resetting()
        elif self.phase is Phase.WAITING and self._context.now >= self._retry_at:
            self._try_again()
        elif self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.CLOSING:
            self.commit_protocol.send_committed(self.value)
            if not self._is_over and self.commit_protocol.all_acknowledged(self.value):
                self._is_over, self._over_since = True, self._context.now

    def _watch_leader(self) -> None:
        """Take over from a coordinator that has been silent for too long."""
        known = self._known()
        if (
            known is None
            or self._is_over
            or self.configurations.is_superseded(known)
            or not self._is_voter((*known.voters, *known.old_voters))
        ):
            return
        if self._context.now - self._last_heard_at > self._silence_timeout(known):
            self._take_over()

    def _silence_timeout(self, known: RegisterValue) -> int:
        """Return how long a leader may be silent before this voter prepares; the live voter nearest to the key goes first.

        A coordinator that is dead, or has given its voter slot away, will send nothing more, so the wait is shorter then.
        """
        living = [voter for voter in known.voters if voter.peer.node not in self._context.lost]
        leader = self.leader
        is_gone = leader is not None and (leader.node in self._context.lost or not known.may_be_sent_by(leader.node))
        silence = 0 if is_gone else self._context.config.silence_ns
        return silence + self._context.config.silence_ns * rank(living, self.run, self._context.me.node) // 2

    def _announce_leader(self) -> None:
        """Announce to the other voters that this node coordinates."""
        if self.proposer.phase in (Hold.LEADING, Hold.WRITING):
            announcement = wire.LeaderAnnounced(
                self.run, self.proposer.ballot, self._is_over, self.value.signed_command
            )
            for voter in (*self.value.voters, *self.value.old_voters):
                if voter.peer.node != self._context.me.node:
                    self._context.send(voter.peer, announcement)
            self.voter_replacement.answered(self._context.me, self._voter_slot.voter_slot)
            self.configurations.notify_returned(announcement)

    def on_leader_acknowledged(self, sender: Peer, message: wire.LeaderAcknowledged) -> None:
        """Note that a voter, or an excluded voter, has received the announcement."""
        self.configurations.on_acknowledged(sender)
        self.voter_replacement.answered(sender, message.voter_slot)

    def _look_for_voters(self) -> None:
        """Record which voters are missing when those that answer are no majority. Without a majority nothing can be committed."""
        now, limit = self._context.now, 2 * self._context.config.silence_ns
        if self.proposer.phase in (Hold.LEADING, Hold.WRITING):
            missing = self.voter_replacement.missing(self.value, Instant(now - limit))
        else:
            missing = self.proposer.silent() if now - self._last_heard_at > limit else ()
        if missing and self.phase is not Phase.CLOSING:
            self.progress.enter("waiting", now, "no majority of the register's voters answers; bring one of them back")
            self.progress.waits_for = missing
        elif self.lacks_voters and self.phase is Phase.RUNNING:
            self.progress.enter("replay", now)
        self.lacks_voters = bool(missing)

    def _is_voter(self, voters: tuple[Voter, ...]) -> bool:
        voter_id = (self._context.me.node, self._voter_slot.voter_slot)
        return any(voter.voter_id == voter_id for voter in voters)

    def _tick_resetting(self) -> None:
        lost = [
            node for node in self.value.plan.hosts if not self._context.can_reach(node) and node not in self._answered
        ]
        if lost:
            self._begin_attempt("a host was lost while the attempt was being entered", "lost")
        elif self._context.now >= self._deadline:
            for node in self.value.plan.hosts:
                if node not in self._answered and node not in self._refused:
                    self.next_attempt.on_silent(node)
            self._begin_attempt("hosts did not enter the attempt in time", "late")
        else:
            self._send_resets()

    def _tick_running(self) -> None:
        lost = [node for node in self.value.plan.hosts if not self._context.can_reach(node)]
        if self._need or lost:
            self._begin_attempt(self._need or "a host was lost", "lost" if lost else "broken")
            return
        self.commit_protocol.send_committed(self.value)
        need = self.commit_protocol.on_tick(self.value, self.proposer.ballot)
        if need:
            self._begin_attempt(need)
            return
        self._commit()
        self._write_pending_changes()

    def _write_pending_changes(self) -> None:
        """Write the pending or finished change to the register before anything depends on it."""
        with_pending_changes = self.commit_protocol.generation_change.with_pending_changes(self.value)
        if with_pending_changes != self.value and self.proposer.phase is Hold.LEADING:
            self.proposer.write(with_pending_changes)

    # ---- what the register says

    def _act_on_value(self) -> None:
        self.commit_protocol.enter(self.value)
        if self.value.state is not RunState.RUNNING:
            self._close()
        elif self.value.attempt == 0:
            self._begin_attempt("first attempt", "first")
        elif self.value.is_first_of_configuration:
            self._begin_attempt(self.value.reason or "the majority of its voters was lost", "quorum_recovered")
        else:
            self._reset(self._context.config.gather_ns)

    def _act_on_written(self) -> None:
        """Act on a value that the register has accepted; from now on it is true for all nodes."""
        value = self.value
        if value.state is not RunState.RUNNING:
            self._close()
        elif value.attempt != self.commit_protocol.attempt:
            self.next_attempt.restart_backoff.began(self._context.now)
            self.progress.restarts += 1
            self._reset()
        elif self.commit_protocol.written(value):
            self.progress.committed_at, self.progress.epoch_ns = self._context.now, self.commit_protocol.took_ns
            self.progress.pause_ns = self.commit_protocol.pause_ns
            self.next_attempt.restart_backoff.on_epoch_committed()
            self._has_recovered()
            self.commit_protocol.send_committed(value)

    def _has_recovered(self) -> None:
        """Report the end of a recovery: an epoch of this attempt is committed."""
        reason = self.progress.reason
        took = self.progress.end(self._context.now)
        if took:
            self._context.observe(RunRecovered(self.run, self.value.attempt, reason, took))

    def _close(self) -> None:
        self.phase = Phase.CLOSING
        self._has_recovered()
        self.commit_protocol.enter(self.value)
        self.commit_protocol.send_committed(self.value)

    def resend_committed(self, to: Peer) -> None:
        """Send the end of the run again to a host that says it knows; it may have been restarted since."""
        if self.phase is Phase.CLOSING:
            self._context.send(to, wire.Committed(self.run, self.value.attempt, self.value))

    # ---- entering a life

    def _reset(self, timeout_ns: int = 0) -> None:
        self.phase = Phase.RESETTING
        self._need = ""
        self._answered, self._refused = {}, {}
        self.next_attempt.on_attempt_started()
        self.progress.hosts = {}
        self.progress.enter("restore", self._context.now)
        self._deadline = self._context.now + (timeout_ns or self._context.config.reset_timeout_ns)
        self.commit_protocol.enter(self.value)
        self._send_resets()

    def _send_resets(self) -> None:
        """Send RESET to all hosts. Nodes that only hold old parts of sinks receive it too, but the coordinator does not wait
        for them.
        """
        message = wire.Reset(self.run, self.proposer.ballot, self.value)
        for node, peer in (self._evacuated | self.value.nodes).items():
            if node not in self._answered and node not in self._refused:
                self._context.send(peer, message)

    def on_reset_ok(self, sender: Peer, message: wire.ResetOk) -> None:
        """Note that a host is in the attempt."""
        if self.proposer.value is None or message.attempt != self.value.attempt:
            return
        self.commit_protocol.answered(sender, message)
        if self.phase is Phase.RESETTING:
            self._answered[sender.node] = None
            self._refused.pop(sender.node, None)
            self._look_at_answers()

    def on_reset_refused(self, sender: Peer, message: wire.ResetRefused) -> None:
        """Note that a host cannot enter the attempt, or has entered a later one."""
        if self.proposer.phase is not Hold.LEADING:
            return
        if self.phase is not Phase.RESETTING and not (self.phase is Phase.WAITING and message.lacks):
            return
        if sender.node not in self._evacuated and sender.node not in self.value.nodes:
            self._context.observe(MessageIgnored(sender.node, "host"))
        elif (first := first_ballot_of_configuration(message.attempt)).configuration > self.value.configuration:
            if self.configurations.is_proven(sender, first, message.signed_command):
                self._yield_to_configuration(sender, first, message.signed_command)
        elif message.attempt > self.value.attempt:
            # Another coordinator has begun a later attempt: the register knows more than this one.
            self.proposer.release()
            self._take_over()
        elif message.attempt == self.value.attempt and (planned := self.value.plan.hosts.get(sender.node)) is not None:
            self._refused[sender.node] = None
            if message.lacks:
                self.next_attempt.lacks(sender.node, message.lacks, message.reason)
            elif planned.incarnation == sender.incarnation:
                self.next_attempt.on_entry_failed(sender.node, message.reason)
            self._look_at_answers()

    def on_entering(self, sender: Peer, message: wire.AttemptProgress) -> None:
        """Note a host's progress in entering the attempt; a host that gets farther has more time."""
        is_asked = self.phase is Phase.RESETTING and sender.node in self.value.plan.hosts
        if is_asked and message.attempt == self.value.attempt and self.progress.answered(sender.node, message):
            self._deadline = self._context.now + self._context.config.reset_timeout_ns
            if self.progress.phase != self.progress.resetting():
                self.progress.enter(self.progress.resetting(), self._context.now)

    def _look_at_answers(self) -> None:
        hosts, refusal = self.value.plan.hosts, self.next_attempt.refusal
        if self.next_attempt.lacking:  # the others wait for the host that lacks state
            self._wait_for(self.next_attempt.replica_nodes, refusal, self._context.config.state_timeout_ns)
            self.progress.reason = (
                refusal  # rather than what the recovery began with: this reason says what people can do
            )
        elif all(node in self._answered or node in self._refused for node in hosts):
            if any(node in self._refused for node in hosts):
                self._begin_attempt(refusal or "a host was ended and restarted", "broken" if refusal else "restarted")
            else:
                self._start()

    def _wait_for(self, missing: tuple[NodeId, ...], reason: str, span_ns: int) -> None:
        """Keep the attempt until a missing node is back, or the time span (nanoseconds) is over."""
        if missing != self.progress.waits_for:
            peers = tuple(self._context.peer(Peer(node)) for node in missing)
            self._context.observe(RunWaits(self.run, self.value.attempt, peers, reason))
        self.progress.enter("waiting", self._context.now, reason)
        self.progress.waits_for = missing
        self.phase, self._retry_at = Phase.WAITING, self._context.now + span_ns

    def _try_again(self) -> None:
        """Try again for a run that waits; something may have changed."""
        if self.next_attempt.retry_lacking():
            self._begin_attempt(self.next_attempt.refusal or "its state may be available again")
        else:
            self._reset()

    def _start(self) -> None:
        self.phase = Phase.RUNNING
        self.next_attempt.on_all_entered()
        self.progress.enter("replay", self._context.now)
        for peer in self.value.plan.hosts.values():
            self._context.send(peer, wire.Start(self.run, self.value.attempt))
        self.commit_protocol.started(self.value)

    def _begin_attempt(self, reason: str, kind: str = "broken") -> None:
        """Plan the next attempt and write it; no node acts on it before the register has it."""
        context, value, restart_backoff = self._context, self.value, self.next_attempt.restart_backoff
        if value.attempt and self.progress.phase != "waiting":
            self.progress.enter("plan", context.now, reason)
        if self.proposer.phase is not Hold.LEADING or context.now < restart_backoff.due(context.now):
            self._need = self._need or reason
            self.phase = Phase.RUNNING if self.phase is Phase.READING else self.phase
            return
        value = self.commit_protocol.generation_change.in_next_attempt(value, reason)
        if restart_backoff.is_exhausted(context.now):
            self._fail(value, f"{reason[:300]}; {restart_backoff.exhausted_text()}")
            return
        decision = self.next_attempt.decide(value)
        if decision.ends:
            self._fail(value, decision.ends)
        elif decision.value is None:
            self._wait_for(decision.missing, reason, context.config.capacity_retry_ns)
        else:
            self._need = ""
            text = "; ".join(part for part in (reason, decision.note) if part)
            context.observe(AttemptBegan(self.run, decision.value.attempt, kind, text))
            self.proposer.write(decision.value)

    def _fail(self, value: RegisterValue, reason: str) -> None:
        self.proposer.write(msgspec.structs.replace(value, state=RunState.FAILED, reason=reason[:400], old_voters=()))

    # ---- what hosts say

    def is_voter(self, node: NodeId) -> bool:
        """Return whether a node was asked for its vote, or was excluded from the voters."""
        return self.proposer.has_asked(node) or (self.proposer.value is not None and node in self.value.left)

    def is_host(self, node: NodeId) -> bool:
        """Return whether a node hosts a part of this run."""
        return node in self.value.nodes or node in self._evacuated or self.commit_protocol.concerns(node)

    def on_prepared(self, sender: Peer, message: wire.Prepared) -> None:
        """Take an instance's answer for an epoch, and commit when the epoch is complete."""
        if self.phase is Phase.RUNNING and self.commit_protocol.prepared(sender, message):
            self._commit()

    def on_synced(self, sender: Peer, message: wire.Synced) -> None:
        """Note that a host's logs are on its disk."""
        if self.phase is Phase.RUNNING and self.commit_protocol.synced(sender, message):
            self._commit()

    def _commit(self) -> None:
        """Write the value that commits an epoch. This is the one place where an epoch is committed.

        The register is still in this attempt, below this epoch, and this node holds the ballot.
        """
        if self.proposer.phase is Hold.LEADING:
            value = self.commit_protocol.next_value(self.value)
            if value is not None:
                self.proposer.write(value)

    def on_new_attempt_needed(self, sender: Peer, message: wire.NewAttemptNeeded) -> None:
        """Begin a new attempt because a host says that this one cannot continue."""
        if self.phase is Phase.RUNNING and message.attempt == self.value.attempt and sender.node in self.value.nodes:
            self._need = message.reason or "a host requested a new attempt"
            self._begin_attempt(self._need)

    def on_remade(self, sender: Peer, message: wire.FragmentsReplaced) -> None:
        """Write new replica nodes of a host's fragments into the register, which then notifies the host."""
        value = self.value if self.proposer.value is not None else None
        if value is None or self.phase is not Phase.RUNNING or message.attempt != value.attempt:
            return
        mine = {assignment.instance: None for assignment in value.plan.at(sender.node)}
        after = value.with_replica_nodes(replaced for replaced in message.made if replaced.instance in mine)
        if after == value:
            self._context.send(sender, wire.Committed(self.run, value.attempt, value))
        elif self.proposer.phase is Hold.LEADING:  # else the host repeats it
            self.proposer.write(after)

    def on_host_lost(self, node: NodeId) -> None:
        """React to the loss of a host at once, whether it leads, the run flows or an attempt is being entered."""
        if self.phase is Phase.FOLLOWING and self.leader is not None and self.leader.node == node:
            self._watch_leader()
        if not self.leads or self.proposer.phase is not Hold.LEADING or node not in self.value.plan.hosts:
            return
        if self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.RESETTING and node not in self._answered:
            self._begin_attempt("a host was lost while a life was entered", "lost")

    def on_host_back(self, peer: Peer) -> None:
        """Note that a node is reachable again."""
        if self.leads and self.proposer.value is not None:
            self.configurations.is_back(peer, self.value)
        self.next_attempt.on_node_back()
        if self.phase is Phase.WAITING and self.proposer.phase is Hold.LEADING:
            self._try_again()

    def on_change(self, plan: Plan) -> str:
        """Start a change of stages to new generations. Return why not; empty: it is under way."""
        if self.voter_replacement.is_leaving or self.phase is not Phase.RUNNING or self.proposer.phase is Hold.IDLE:
            return self._why_not_now()
        if self.commit_protocol.is_held:
            return "the application is being stopped"
        why = self.commit_protocol.generation_change.want(self.value, plan)
        self._tick_running()
        return why

    def on_generation_ready(self, sender: Peer, message: wire.GenerationReady) -> None:
        """Note that a host is ready for a change, or cannot be."""
        self.commit_protocol.generation_change.on_ready(sender, message)
        self._hasten()

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """Note that a host has carried out a commit."""
        self.commit_protocol.on_committed_ok(sender, message)
        self._hasten()

    def _hasten(self) -> None:
        """Begin the epoch of a change without waiting for a tick once no host is missing. Input accumulates until then."""
        leads = self.phase is Phase.RUNNING and self.proposer.phase is Hold.LEADING
        if leads and self.commit_protocol.carries_next(self.value):
            self._tick_running()

    def on_evacuation(self, host: Peer) -> str:
        """Plan the next attempt without a host that is to be drained. Return why not; empty: it has started, or is done."""
        if not self.value.plan.at(host.node):
            if (
                self.is_coordinating and self.proposer.phase is Hold.LEADING
            ):  # the host may not know of the attempt without it
                self._context.send(host, wire.Reset(self.run, self.proposer.ballot, self.value))
            return ""
        if self.phase is not Phase.RUNNING or self.proposer.phase is not Hold.LEADING or self._need:
            return "the application is being restarted" if self.is_coordinating else "another node coordinates it"
        if self.commit_protocol.is_held:
            return "the application is being stopped"
        if not any(
            peer.node != host.node and self._context.can_reach(peer.node)
            for peer in (self._context.me, *self._context.candidates)
        ):
            return "there is no other node"
        self._evacuated[host.node] = host
        self.next_attempt.leaves(host.node)
        self._begin_attempt(f"{host.name or host.node.short} is drained", "drained")
        return ""

    def on_voter_evacuation(self, host: Peer) -> tuple[str, bool]:
        """Replace a voter that is about to leave.

        Returns why no node can take its slot (empty: one does), and whether the register already names the replacement.
        """
        value = self.value
        if all(voter.peer.node != host.node for voter in (*value.voters, *value.old_voters)):
            return "", True
        return self.voter_replacement.request_replacement(host.node, value), False

    # ---- ending with the state kept

    def _why_not_now(self) -> str:
        is_mine = self.is_coordinating and not self.voter_replacement.is_leaving
        return "the application is being restarted" if is_mine else "another node coordinates it"

    def on_hold(self) -> str:
        """Stop reading behind the next epoch. Return why not; empty: it is under way, see `CommitProtocol.held`."""
        if self.voter_replacement.is_leaving or self.phase is not Phase.RUNNING or self.proposer.phase is Hold.IDLE:
            return self._why_not_now()
        if not self.commit_protocol.is_held and self.commit_protocol.generation_change.plan.changes:
            return "a change of it is under way"
        self.commit_protocol.hold()
        return ""

    def on_end_held(self, at: CheckpointId, reason: str) -> str:
        """Write that the run has ended at the epoch behind which sources read nothing. Return why not; empty: it is under way."""
        if self.phase is not Phase.RUNNING or self.proposer.phase is not Hold.LEADING or self._need:
            return "the application is being restarted" if self.is_coordinating else "another node coordinates it"
        if self.commit_protocol.held != at or self.value.committed != at:
            return "it has committed more meanwhile"
        finished = msgspec.structs.replace(self.value, state=RunState.FINISHED, reason=reason[:400], old_voters=())
        self.proposer.write(finished)
        return ""

    def on_release(self, reason: str) -> None:
        """Continue a run that was held: sources read on from the committed epoch in the next attempt."""
        if self.phase is Phase.RUNNING and self.commit_protocol.is_held:
            self._need = reason
            self._begin_attempt(reason)

    def violations(self) -> list[str]:
        """Return violated invariants, for checkers."""
        violations = []
        if self.phase in (Phase.RUNNING, Phase.RESETTING) and self.commit_protocol.attempt > self.value.attempt:
            violations.append(
                f"{self.run.app}: coordinates attempt {self.commit_protocol.attempt} above the register's {self.value.attempt}"
            )
        if self.phase is Phase.FOLLOWING and self.proposer.phase is not Hold.IDLE:
            violations.append(f"{self.run.app}: follows and holds a ballot")
        return violations
