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

`leadership`, `attempt_writer`, `attempt_entry` and `run_requests` are its parts; they share `coordinator_state`.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.attempt_writer import AttemptWriter
from agiledart_recovery.attempts.coordinated_entry import CoordinatedEntry
from agiledart_recovery.attempts.coordinator_state import CoordinatorState
from agiledart_recovery.attempts.coordinator_state import Phase as Phase
from agiledart_recovery.attempts.generation_change import ChangeStep
from agiledart_recovery.attempts.leadership import Leadership
from agiledart_recovery.attempts.recovery_progress import RecoveryProgress
from agiledart_recovery.attempts.run_requests import RunRequests
from agiledart_recovery.attempts.standby_choice import with_standbys
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.proposer import RegisterOutcome
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.observations import CoordinationBegan, RunRecovered
from agiledart_recovery.wire.register_value import RegisterValue, RunState


class Coordinator:
    """Role of a voter that coordinates, or would if no other voter did.

    Attributes:
        leadership: which voter coordinates.
        entry: hosts that enter the attempt.
        requests: requests of this node for the run.
    """

    def __init__(self, context: RecoveryContext, voter_slot: VoterSlot) -> None:
        self._context, self.run = context, voter_slot.run
        self._state = state = CoordinatorState(context, voter_slot)
        self.proposer, self.commit_protocol, self.next_attempt = (
            state.proposer,
            state.commit_protocol,
            state.next_attempt,
        )
        self.voter_replacement = state.voter_replacement
        self.leadership = Leadership(context, voter_slot, state)
        self._writer = AttemptWriter(context, state)
        self.entry = CoordinatedEntry(context, state, self.leadership, self._writer)
        self.requests = RunRequests(context, state, self._writer, self._tick_running)
        self._before: RegisterValue | None = None
        self._heartbeat()

    @property
    def phase(self) -> Phase:
        """Return the phase; the module's head has the table."""
        return self._state.phase

    @property
    def progress(self) -> RecoveryProgress:
        """Return how far a recovery is, for people."""
        return self._state.progress

    @property
    def value(self) -> RegisterValue:
        """The newest acknowledged value that this coordinator knows of."""
        return self._state.value

    @property
    def node(self) -> NodeId:
        """Return the node of this coordinator."""
        return self._context.me.node

    @property
    def known(self) -> RegisterValue | None:
        """The newest value that this node knows of, acknowledged or not; for people."""
        return self.proposer.value or self.leadership.known()

    @property
    def leader(self) -> Peer | None:
        """Return the voter that announced last that it coordinates."""
        return self.leadership.leader

    @property
    def lacks_voters(self) -> bool:
        """Return whether the voters that answer are no majority, so that nothing can be committed."""
        return self.leadership.lacks_voters

    @property
    def leads(self) -> bool:
        """Return whether this coordinator believes that it holds the highest ballot."""
        return self.phase is not Phase.FOLLOWING

    @property
    def is_coordinating(self) -> bool:
        """Return whether this coordinator leads a run that has not ended."""
        return self._state.is_coordinating

    @property
    def is_idle(self) -> bool:
        """Return whether the run has nothing to save now."""
        return self.phase is Phase.RUNNING and self.commit_protocol.is_idle(self.value)

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended and all its nodes know."""
        return self.leadership.is_over

    # ---- what the register says

    def on_accepted(self, sender: Peer, message: wire.Accepted) -> None:
        """Act on the register's value once a majority of voters has it on the disk."""
        self.voter_replacement.answered(sender, message.voter_slot)
        outcome = self.proposer.on_accepted(sender, message)
        if outcome is RegisterOutcome.READ:
            self._on_read()
        elif outcome is RegisterOutcome.WRITTEN:
            self._on_written()

    def _on_read(self) -> None:
        if self.leadership.leave_if_replaced(self.value.voters):
            # This voter's slot was given to another node while it was away. It has read that, and leaves the run alone.
            self._state.phase = Phase.FOLLOWING
            return
        self._context.observe(CoordinationBegan(self.run, self.proposer.ballot))
        self.voter_replacement.began(self.value)
        self.next_attempt.clear_silent()
        self._before = self.value
        self._act_on_value()

    def _on_written(self) -> None:
        self.voter_replacement.written(self.value)
        self.commit_protocol.generation_change.written(self._before, self.value)
        if self._before is not None and self._before.old_voters and not self.value.old_voters:
            self.commit_protocol.send_voters(self.value)
        if self._before is not None and self._before.standbys != self.value.standbys:
            self._announce_standbys(self._before)
        self._before = self.value
        if self.leadership.leave_if_replaced((*self.value.voters, *self.value.old_voters)):
            self._state.follow()  # it has given its voter slot away: hosts accept nothing from it any more
        else:
            self._act_on_written()

    def _act_on_value(self) -> None:
        self.commit_protocol.enter(self.value)
        if self.value.state is not RunState.RUNNING:
            self._close()
        elif self.value.attempt == 0:
            self._writer.begin("first attempt", "first")
        elif self.value.is_first_of_configuration:
            self._writer.begin(self.value.reason or "the majority of its voters was lost", "quorum_recovered")
        else:
            self.entry.reset(self._context.config.gather_ns)

    def _act_on_written(self) -> None:
        """Act on a value that the register has accepted; from now on it is true for all nodes."""
        value = self.value
        if value.state is not RunState.RUNNING:
            self._close()
        elif value.attempt != self.commit_protocol.attempt:
            self.next_attempt.restart_backoff.began(self._context.now)
            self.progress.restarts += 1
            self.entry.reset()
        elif self.commit_protocol.written(value):
            self.progress.committed_at, self.progress.epoch_ns = self._context.now, self.commit_protocol.took_ns
            self.progress.pause_ns = self.commit_protocol.pause_ns
            self.next_attempt.restart_backoff.on_epoch_committed()
            self._has_recovered()
            self.commit_protocol.send_committed(value)
            if self.commit_protocol.begins_held_epoch:
                self._tick_running()

    def _has_recovered(self) -> None:
        """Report the end of a recovery: an epoch of this attempt is committed."""
        reason = self.progress.reason
        took = self.progress.end(self._context.now)
        if took:
            self._context.observe(RunRecovered(self.run, self.value.attempt, reason, took))

    def _close(self) -> None:
        self._state.phase = Phase.CLOSING
        self._has_recovered()
        self.commit_protocol.enter(self.value)
        self.commit_protocol.send_committed(self.value)

    def resend_committed(self, to: Peer) -> None:
        """Send the end of the run again to a host that says it knows; it may have been restarted since."""
        if self.phase is Phase.CLOSING:
            self._context.send(to, wire.Committed(self.run, self.value.attempt, self.value))

    # ---- time

    def _heartbeat(self) -> None:
        self._context.set_timer((self.run, "tick"), self._context.config.tick_ns)

    def on_tick(self) -> None:
        """Repeat unanswered messages and check deadlines; stay silent once a run is over and all nodes know it."""
        if self.leadership.is_silent:
            return
        self._heartbeat()
        if self.phase is Phase.FOLLOWING:
            self.leadership.watch_leader()
            return
        self.proposer.repeat()
        self.leadership.announce_leader()
        self.leadership.look_for_voters()
        if self.phase is Phase.READING:
            self.leadership.retry_reading()
            return
        self.voter_replacement.on_tick(
            self.proposer,
            is_free=self.phase is Phase.RUNNING and not self._state.need and not self.commit_protocol.has_request,
        )
        if self._state.holds_ballot:
            self._tick_as_coordinator()

    def _tick_as_coordinator(self) -> None:
        if self.phase is Phase.RESETTING:
            self.entry.on_tick()
        elif self.phase is Phase.WAITING and self._writer.is_retry_due:
            self.entry.try_again()
        elif self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.CLOSING:
            self.commit_protocol.send_committed(self.value)
            self._end_if_acknowledged()

    def _end_if_acknowledged(self) -> None:
        """End the coordination of a closing run whose hosts all know the end."""
        if self.commit_protocol.all_acknowledged(self.value):
            self.leadership.end()

    def _tick_running(self) -> None:
        lost = [node for node in self.value.plan.hosts if not self._context.can_reach(node)]
        if self._state.need or lost:
            self._writer.begin(self._state.need or "a host was lost", "lost" if lost else "broken")
            return
        self.commit_protocol.send_committed(self.value)
        need = self.commit_protocol.on_tick(self.value, self.proposer.ballot)
        if need:
            self._writer.begin(need)
            return
        self._commit()
        self._write_pending_changes()

    def _write_pending_changes(self) -> None:
        """Write the pending or finished change, and new standby hosts, to the register before anything depends on it."""
        with_pending_changes = self.commit_protocol.generation_change.with_pending_changes(self.value)
        if with_pending_changes == self.value and self.commit_protocol.generation_change.step is ChangeStep.IDLE:
            context = self._context
            candidates = (*context.candidates, context.me)
            with_pending_changes = with_standbys(
                self.value, self.next_attempt.is_there, candidates, context.peer, context.host_rules
            )
        if with_pending_changes != self.value and self._state.holds_ballot:
            self.proposer.write(with_pending_changes)

    def _announce_standbys(self, before: RegisterValue) -> None:
        """Send the value to nodes that have become standby hosts, and to those that are none any more."""
        old = {standby.host: None for standby in before.standbys}
        new = {standby.host: None for standby in self.value.standbys}
        self.commit_protocol.announce({peer.node: peer for peer in (*old, *new) if (peer in old) != (peer in new)})

    # ---- what hosts say

    def is_voter(self, node: NodeId) -> bool:
        """Return whether a node was asked for its vote, or was excluded from the voters."""
        return self.proposer.has_asked(node) or (self.proposer.value is not None and node in self.value.left)

    def is_host(self, node: NodeId) -> bool:
        """Return whether a node hosts a part of this run."""
        return node in self.value.informed or node in self._state.evacuated or self.commit_protocol.concerns(node)

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
        if self._state.holds_ballot:
            value = self.commit_protocol.next_value(self.value)
            if value is not None:
                self.proposer.write(value)

    def on_new_attempt_needed(self, sender: Peer, message: wire.NewAttemptNeeded) -> None:
        """Begin a new attempt because a host says that this one cannot continue."""
        if self.phase is Phase.RUNNING and message.attempt == self.value.attempt and sender.node in self.value.nodes:
            self._state.need = message.reason or "a host requested a new attempt"
            if message.is_crash:
                self.next_attempt.restart_backoff.crashed(message.attempt, message.reason)
            self._writer.begin(self._state.need)

    def on_remade(self, sender: Peer, message: wire.FragmentsReplaced) -> None:
        """Write new replica nodes of a host's fragments into the register, which then notifies the host."""
        value = self.value if self.proposer.value is not None else None
        if value is None or self.phase is not Phase.RUNNING or message.attempt != value.attempt:
            return
        mine = {assignment.instance: None for assignment in value.plan.at(sender.node)}
        after = value.with_replica_nodes(replaced for replaced in message.made if replaced.instance in mine)
        if after == value:
            self._context.send(sender, wire.Committed(self.run, value.attempt, value))
        elif self._state.holds_ballot:  # else the host repeats it
            self.proposer.write(after)

    def on_host_lost(self, node: NodeId) -> None:
        """React to the loss of a host at once, whether it leads, the run flows or an attempt is being entered."""
        if self.phase is Phase.FOLLOWING and (leader := self.leader) is not None and leader.node == node:
            self.leadership.watch_leader()
        if not self.leads or not self._state.holds_ballot or node not in self.value.plan.hosts:
            return
        if self.phase is Phase.RUNNING:
            self._tick_running()
        elif self.phase is Phase.RESETTING:
            self.entry.on_host_lost(node)

    def on_host_back(self, peer: Peer) -> None:
        """Note that a node is reachable again."""
        if self.leads and self.proposer.value is not None:
            self.leadership.configurations.is_back(peer, self.value)
        self.next_attempt.on_node_back()
        if self.phase is Phase.WAITING and self._state.holds_ballot:
            self.entry.try_again()

    def on_generation_ready(self, sender: Peer, message: wire.GenerationReady) -> None:
        """Note that a host is ready for a change, or cannot be."""
        self.commit_protocol.generation_change.on_ready(sender, message)
        self._hasten()

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """Note that a host has carried out a commit; the last host's answer to the run's end lets the end be recorded at once."""
        self.commit_protocol.on_committed_ok(sender, message)
        if self.phase is Phase.CLOSING and self._state.holds_ballot:
            self._end_if_acknowledged()
        self._hasten()

    def _hasten(self) -> None:
        """Begin the epoch of a change without waiting for a tick once no host is missing. Input accumulates until then."""
        leads = self.phase is Phase.RUNNING and self._state.holds_ballot
        if leads and self.commit_protocol.carries_next(self.value):
            self._tick_running()

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
