"""Participant: a host's side of one run.

| state | trigger |
|---|---|
| OUT | no attempt, or one that an earlier process entered. RESET of a later attempt → STORING, if its plan names this process |
| STORING | the attempt is being written; messages of older attempts are ignored. Written → ENTERING |
| ENTERING | the driver ends what ran, truncates sinks, restores. Done → READY, RESET_OK; failed → OUT, RESET_REFUSED |
| READY | START or BEGIN → RUNNING |
| RUNNING | barriers pass, instances prepare. A failure → BROKEN |
| BROKEN | the coordinator's messages are answered by NEW_ATTEMPT_NEEDED, a RESET of this attempt by RESET_REFUSED |
| CLOSED | the run has ended |
| any | RESET of a later attempt → STORING |

The awkward case: RESET of the attempt that is on the disk. In the process that entered it, it is a question: what have you
prepared? A later process refuses it: it has forgotten what was taken, and an old RESET would truncate what was committed since.
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.committed_fragments import CommittedFragments
from agiledart_recovery.attempts.generation_preparation import GenerationPreparation
from agiledart_recovery.attempts.run_key import RunKey
from agiledart_recovery.attempts.snapshot_preparation import SnapshotPreparation
from agiledart_recovery.attempts.standby_holding import StandbyHolding
from agiledart_recovery.fragments.fragment_repair import FragmentRepair
from agiledart_recovery.limits import (
    ATTEMPTS_PER_CONFIGURATION,
    MAX_CONFIGURATIONS,
    MAX_FRAGMENTS,
    MAX_OPEN_EPOCHS,
)
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.register.proposer import electors_of
from agiledart_recovery.register.voter_trust import KnownVoters, NamedVoters
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import CheckpointId, RunId
from agiledart_recovery.wire.observations import AttemptEntered, MessageIgnored
from agiledart_recovery.wire.register_value import (
    InstanceRole,
    Plan,
    RegisterValue,
    RunState,
)


class Phase(Enum):
    """State of a participant; the module's head has the table."""

    OUT = "out"
    STORING = "storing"
    ENTERING = "entering"
    READY = "ready"
    RUNNING = "running"
    BROKEN = "broken"
    CLOSED = "closed"


class Participant:
    """State of a run on one node that hosts it, or stores a part of one of its sinks.

    Attributes:
        attempt: the last attempt that was entered; on the disk before anything was answered.
        begun: the highest barrier that this host's sources were asked for in this attempt.
        committed_at: when this host last received a commit, or entered the attempt; None: neither.
        preparation: answers of this host's instances for barriers.
    """

    def __init__(self, context: RecoveryContext, run: RunId, stored: asked.AttemptFile | None = None) -> None:
        self._context, self.run, self._file = context, run, stored or asked.AttemptFile(run, 0)
        self.attempt, self._signed_command = self._file.attempt, self._file.signed_command
        self.phase = Phase.OUT
        self.begun = 0
        self.value: RegisterValue | None = None
        self.committed_at: Instant | None = None
        self._plan = Plan(())
        self._leader: Peer | None = None
        self._committed = CheckpointId(0, 0)
        self._committing = CheckpointId(0, 0)
        self._begins: dict[int, bytes] = {}
        self._rows_reported, self._has_unreported_rows = -1, False
        self._rows_reported_at = context.now
        self._reason = ""
        self.generation_preparation = GenerationPreparation(context, run, self)
        self.preparation = SnapshotPreparation(context, run, self)
        self.fragment_repair = FragmentRepair(context, run, self.report)
        self._fragments = CommittedFragments(context, run, self.fragment_repair)
        self._standby_holding = StandbyHolding(context, run)
        self._lacks: tuple[NodeId, ...] = ()
        self.run_key = RunKey(context, run, self._file.key, self._key_found, lambda: self.is_closed)

    # ---- the run's key

    def key_for(self, node: NodeId) -> bytes:
        """Return the run's key for a host that asks for it; empty when the node is none, or this host has no key."""
        pending = self.generation_preparation.plan
        return self.run_key.key_for(node, pending is not None and node in pending.hosts)

    def _ask(self, make: Callable[[int], Effect], done: Callable[[str], None]) -> None:
        self._context.ask(self.run, make, lambda _, reason: done(reason))

    def _key_found(self) -> None:
        """Store the key, so that a restart of all hosts does not depend on the voters."""
        if self.phase is not Phase.OUT:
            self._ask(lambda request: asked.StoreAttempt(request, self._attempt_file), lambda reason: None)
        self._context.do(asked.RunKeyFound(self.run))

    @property
    def _attempt_file(self) -> asked.AttemptFile:
        assert self.value is not None, "an attempt is entered with a value"
        return asked.AttemptFile(
            self.run, self.attempt, self._signed_command, electors_of(self.value), self.run_key.key
        )

    # ---- entering an attempt

    def on_reset(self, sender: Peer, message: wire.Reset) -> None:
        """Enter an attempt, or report what was prepared in it."""
        value = message.value
        is_ballots = message.ballot.node == sender.node
        if value.run != self.run or value.faults() or not value.may_be_sent_by(sender.node) or not is_ballots:
            self._context.observe(MessageIgnored(sender.node, "reset"))
        elif value.attempt > self.attempt and self._was_planned_for_another(value):
            self._context.send(
                sender, wire.ResetRefused(self.run, value.attempt, "this host was restarted since the plan was made")
            )
        elif value.attempt > self.attempt:
            self._enter(sender, value)
        elif value.attempt < self.attempt:
            refusal = "this host has entered a later attempt"
            self._context.send(
                sender, wire.ResetRefused(self.run, self.attempt, refusal, signed_command=self._signed_command)
            )
        elif self.phase in (Phase.READY, Phase.RUNNING):
            self._leader = sender
            self._answer_reset()
        elif self.phase in (Phase.STORING, Phase.ENTERING):
            self._leader = sender
        else:
            reason = self._reason or "the process that entered this attempt has ended"
            self._context.send(sender, wire.ResetRefused(self.run, self.attempt, reason, self._lacks))

    def is_unproven(self, value: RegisterValue) -> bool:
        """Return whether a value belongs to an unknown configuration that no admin has begun by a signed command since the last
        one.
        """
        configuration = self.attempt // ATTEMPTS_PER_CONFIGURATION
        return value.configuration > configuration and not (
            value.configuration <= MAX_CONFIGURATIONS
            and self._context.is_command_authorised(self.run, value.signed_command, self._signed_command)
        )

    def may_be_commanded_by(self, node: NodeId) -> bool:
        """Return whether a node may command the known attempt. A node that takes over sends RESET first."""
        is_leader = self._leader is not None and self._leader.node == node
        return self.value is None or is_leader or self.value.may_be_sent_by(node)

    @property
    def held(self) -> KnownVoters | None:
        """Return what names the voters that this host believes: its value, else the file of an earlier process; None: nothing."""
        if self.value is not None or not self._file.voters:
            return self.value
        return NamedVoters(self._file.voters, self._file.attempt)

    @property
    def is_blank(self) -> bool:
        """Return whether nothing is known of the run."""
        return self.value is None and not self.attempt

    def _was_planned_for_another(self, value: RegisterValue) -> bool:
        """Return whether a plan names an earlier incarnation of this host, so that a host with a lost disk cannot enter twice."""
        planned = value.plan.hosts.get(self._context.me.node)
        return planned is not None and planned.incarnation < self._context.me.incarnation

    def _enter(self, sender: Peer, value: RegisterValue) -> None:
        if value.configuration > self.attempt // ATTEMPTS_PER_CONFIGURATION:
            self._signed_command = value.signed_command
        self.attempt, self.value, self._plan, self._leader = value.attempt, value, value.plan, sender
        self.phase, self._reason, self._lacks = Phase.STORING, "", ()
        self.begun = value.committed.epoch
        self._committed = self._committing = value.committed
        self.committed_at = self._context.now
        self._begins = {}
        self._rows_reported, self._has_unreported_rows = -1, False
        self.generation_preparation.enter(value)
        self.preparation.enter()
        self.fragment_repair.forget()
        self._ask(lambda request: asked.StoreAttempt(request, self._attempt_file), partial(self._stored, value))
        self.run_key.follow(value)

    def _stored(self, value: RegisterValue, reason: str) -> None:
        if value.attempt != self.attempt or self.phase is not Phase.STORING:
            return
        if reason:
            self._refuse(reason)
            return
        self.phase = Phase.ENTERING
        self._ask(
            lambda request: _entry(request, self.run, value, self._context.me.node), partial(self._entered, value)
        )

    def _entered(self, value: RegisterValue, reason: str) -> None:
        if value.attempt != self.attempt or self.phase is not Phase.ENTERING:
            return
        if reason:
            self._refuse(reason)
            return
        self.phase = Phase.READY
        self._context.observe(AttemptEntered(self.run, self.attempt))
        self._answer_reset()

    def lacks(self, attempt: int, replica_nodes: tuple[NodeId, ...]) -> None:
        """Note the replica nodes without whose fragments a state cannot be rebuilt; the refusal of the attempt names them."""
        if attempt == self.attempt and self.phase is Phase.ENTERING:
            self._lacks = replica_nodes[:MAX_FRAGMENTS]

    def report_entering(self, attempt: int, phase: str, got: int, of: int) -> None:
        """Report to the coordinator how far this host is in entering the attempt."""
        if attempt == self.attempt and self.phase is Phase.ENTERING:
            self.report(wire.AttemptProgress(self.run, attempt, phase, got, of))

    def _refuse(self, reason: str) -> None:
        self.phase, self._reason = Phase.OUT, reason[:400]
        self.report(wire.ResetRefused(self.run, self.attempt, self._reason, self._lacks))

    def _answer_reset(self) -> None:
        self.report(wire.ResetOk(self.run, self.attempt, self.begun, self.preparation.answers))

    def _is_mine(self, sender: Peer, attempt: int) -> bool:
        """Return whether a coordinator's message is about the current attempt; answer with NEW_ATTEMPT_NEEDED if it is broken
        here.
        """
        if attempt > self.attempt:
            # The coordinator relies on this host's RESET_OK, of which nothing is left here: its disk was lost.
            self._context.send(
                sender, wire.NewAttemptNeeded(self.run, attempt, "this host has never entered that attempt")
            )
            return False
        if attempt != self.attempt or self.phase in (Phase.STORING, Phase.ENTERING):
            return False
        if self.phase in (Phase.OUT, Phase.BROKEN):
            reason = self._reason or "the process that entered this attempt has ended"
            self._context.send(sender, wire.NewAttemptNeeded(self.run, self.attempt, reason))
            return False
        return self.phase is not Phase.CLOSED

    def on_other(self, sender: Peer, message: wire.RunMessage) -> None:
        """Answer a message about an attempt on a host that does not know the run."""
        if isinstance(message, wire.Start | wire.Begin | wire.QueryPrepared | wire.Sync):
            self._is_mine(sender, message.attempt)

    def on_start(self, sender: Peer, message: wire.Start) -> None:
        """Start the sources: all hosts are in the attempt."""
        if self._is_mine(sender, message.attempt):
            self._start()

    def _start(self) -> None:
        if self.phase is Phase.READY:
            self.phase = Phase.RUNNING
            self._context.do(asked.BeginSources(self.run, self.attempt))
            self._update_repair()

    @property
    def is_in_attempt(self) -> bool:
        """Return whether this host has entered the attempt and it continues."""
        return self.phase in (Phase.READY, Phase.RUNNING)

    def on_broken(self, attempt: int, reason: str, *, is_crash: bool = False) -> None:
        """Report that the attempt cannot continue here."""
        if attempt == self.attempt and self.phase in (Phase.READY, Phase.RUNNING):
            self.phase, self._reason = Phase.BROKEN, reason[:400]
            self.report(wire.NewAttemptNeeded(self.run, self.attempt, self._reason, is_crash))

    def report(self, message: wire.RunMessage) -> None:
        """Send a message to the coordinator, if one is known."""
        if self._leader is not None:
            self._context.send(self._leader, message)

    # ---- epochs

    def on_begin(self, sender: Peer, message: wire.Begin) -> None:
        """Send a barrier. BEGIN implies START: all hosts are in the attempt."""
        if not self._is_mine(sender, message.attempt):
            return
        self._leader = sender
        self._start()
        request = message.after.digest if message.after is not None else b""
        known = self._begins.get(message.epoch)
        if known is not None and known != request:
            self.on_broken(self.attempt, f"two requests under epoch {message.epoch}")
        elif known is not None or message.epoch <= self.begun:
            self.preparation.report_again(sender, message.epoch - 1)
        elif message.before != self._plan.digest and self._has_source:
            self.on_broken(self.attempt, f"epoch {message.epoch} was begun under a plan that is no longer valid here")
        elif message.epoch <= self._committed.epoch + MAX_OPEN_EPOCHS * MAX_OPEN_EPOCHS:
            self._begins[message.epoch], self.begun = request, message.epoch
            if message.after is not None:
                self._plan = message.after
            self._context.do(
                asked.EmitBarrier(self.run, self.attempt, message.epoch, message.before, message.after, message.holds)
            )
        else:  # so many aborted epochs are not remembered: in a new attempt all start behind the committed one
            self.on_broken(
                self.attempt, f"epoch {message.epoch} was begun, and none behind {self._committed.epoch} was committed"
            )

    @property
    def is_closed(self) -> bool:
        """Return whether the register has said that the run has ended, and this host has carried that out."""
        return self.phase is Phase.CLOSED

    @property
    def _has_source(self) -> bool:
        """Return whether barriers begin here. To other hosts BEGIN only announces a change."""
        value = self.value
        return value is not None and any(
            assignment.role is InstanceRole.SOURCE for assignment in value.plan.at(self._context.me.node)
        )

    def on_rows_passed(self) -> None:
        """Report to the coordinator, once for each epoch, that there is something to save again.

        A report can be lost with its link or its coordinator, so it is repeated at later rows after half an interval.
        """
        value, now = self.value, self._context.now
        if value is None or not value.saves_less or self.phase is not Phase.RUNNING:
            return
        epoch = max(self.begun, self._committed.epoch)
        is_due = now - self._rows_reported_at >= self._context.config.checkpoint_interval_ns // 2
        self._has_unreported_rows = epoch <= self._rows_reported and not is_due
        if not self._has_unreported_rows:
            self._rows_reported, self._rows_reported_at = epoch, now
            self.report(wire.RowsPassed(self.run, self.attempt))

    def on_ask(self, sender: Peer, message: wire.QueryPrepared) -> None:
        """Report again what was prepared."""
        if self._is_mine(sender, message.attempt):
            self._leader = sender
            self.preparation.report_again(sender, message.epoch)
            self.preparation.handover_sender.repeat()

    def on_switched(self, plan: Plan) -> None:
        """Note that an instance has passed the barrier of a change to this plan."""
        self._plan = plan

    # ---- what is committed

    def on_sync(self, sender: Peer, message: wire.Sync) -> None:
        """Write logs to the disk."""
        if self._is_mine(sender, message.attempt):
            answer = wire.Synced(self.run, message.attempt, message.epoch)
            self._ask(
                lambda request: asked.SyncRunLogs(request, self.run, message.attempt),
                lambda reason: None if reason else self._context.send(sender, answer),
            )

    def on_committed(self, sender: Peer, message: wire.Committed) -> None:
        """Carry out a commit. A node that only stores an old part of a sink learns of attempts in this way."""
        value = message.value
        if (
            value.run != self.run
            or value.faults()
            or value.attempt != message.attempt
            or not value.may_be_sent_by(sender.node)
        ):
            self._context.observe(MessageIgnored(sender.node, "committed"))
        elif value.attempt > self.attempt and self._context.me.node not in value.plan.hosts:
            self._enter(sender, value)
        elif (
            value.attempt == self.attempt and self.phase is Phase.OUT and _only_stands_by(value, self._context.me.node)
        ):
            self._follow(sender, value)
        elif self._is_over(value) or self._is_mine(sender, message.attempt):
            self._commit(sender, value)

    def _follow(self, sender: Peer, value: RegisterValue) -> None:
        """Continue as a standby in the attempt that an earlier process entered, or that could not be entered here."""
        self.value, self._plan, self._leader, self.phase = value, value.plan, sender, Phase.READY
        self._committed = self._committing = value.committed
        self.committed_at = self._context.now
        self._context.send(sender, wire.CommittedOk(self.run, value.attempt, value.committed))
        self.run_key.follow(value)
        self._standby_holding.update(value)

    def _is_over(self, value: RegisterValue) -> bool:
        """Return whether a value ends the run. An end needs no attempt: what a sink has to emit is on its disk."""
        is_entering = self.phase in (Phase.STORING, Phase.ENTERING)
        return value.state is not RunState.RUNNING and value.attempt >= self.attempt and not is_entering

    def _commit(self, sender: Peer, value: RegisterValue) -> None:
        answer = wire.CommittedOk(self.run, value.attempt, value.committed)
        if value.committed <= self._committed:
            if value.state is RunState.FAILED:
                if self.value is not None or self.phase is Phase.OUT:
                    self.value = value  # nothing more is committed with it; the voters announce the end
                if self.phase is Phase.OUT:
                    self.phase = Phase.CLOSED  # a later process: nothing of it runs here
            elif value.state is RunState.FINISHED and self.phase is not Phase.CLOSED:
                if self._committing > self._committed:
                    return  # the coordinator repeats it
                self.value = value  # the run ended behind an epoch that is committed here
                self._fragments.notify_replica_nodes(value)
                self._close()
            elif (value.attempt, value.committed) == (self.attempt, self._committed) and self.is_in_attempt:
                self.value = value  # it may name other replica nodes, other voters, and other standby hosts
                self._update_repair()
                self.run_key.follow(value)
                self._standby_holding.update(value)
            self._context.send(sender, answer)
        elif value.committed > self._committing:
            self.value, self._committing = value, value.committed
            self._ask(
                lambda request: asked.CommitCheckpoint(request, self.run, value.attempt, value),
                partial(self._done, sender, value, answer),
            )

    def _done(self, sender: Peer, value: RegisterValue, answer: wire.CommittedOk, reason: str) -> None:
        if value.attempt < self.attempt:
            return
        if reason:
            self._committing = self._committed
            return
        self._committed, self.committed_at = max(self._committed, value.committed), self._context.now
        self.generation_preparation.committed(value)
        epoch = self._committed.epoch
        self.preparation.committed(epoch)
        self._begins = {begun: digest for begun, digest in self._begins.items() if begun > epoch}
        if self._has_unreported_rows:
            self.on_rows_passed()  # they may have passed behind the barrier of this epoch
        self._context.send(sender, answer)
        self._fragments.notify_replica_nodes(value)
        self._update_repair()
        self.run_key.follow(value)
        if value.state is not RunState.RUNNING and self.phase is not Phase.CLOSED:
            self._close()
        elif self.is_in_attempt:
            self._standby_holding.update(value)

    def _close(self) -> None:
        assert self.value is not None, "a value says that it has ended"
        self.phase = Phase.CLOSED
        self.fragment_repair.forget()
        self._standby_holding.release()
        self._context.do(asked.CloseRun(self.run, self.value.state.value))

    # ---- fragments between epochs

    def _update_repair(self) -> None:
        if self.value is not None and self.phase is Phase.RUNNING:
            self._fragments.update_repair(self.attempt, self.value)

    def ask_held(self, replica_node: Peer) -> None:
        """Ask a replica node which fragments it still has: it may be another process than before."""
        if self.value is not None and self.phase is Phase.RUNNING:
            self._fragments.ask_held(replica_node, self.value)

    def violations(self) -> list[str]:
        """Return violated invariants, for checkers."""
        violations = self.preparation.violations()
        if (
            self._committed.attempt > self.attempt and not self.is_closed
        ):  # the end needs no attempt, also on a new disk
            violations.append(f"committed {self._committed} above attempt {self.attempt}")
        return violations


def _only_stands_by(value: RegisterValue, me: NodeId) -> bool:
    """Return whether a node is a standby and has nothing else of the run, so that a restart there disturbs no attempt."""
    return value.state is RunState.RUNNING and me in value.informed and me not in value.nodes


def _entry(request: int, run: RunId, value: RegisterValue, me: NodeId) -> asked.EnterAttempt:
    """Return the request to enter an attempt on a node: its instances, and all that they continue from."""
    mine = value.plan.at(me)
    saved = tuple(
        {saved.instance: saved for assignment in mine for saved in value.saved_for(assignment.instance)}.values()
    )
    ends = tuple(end for end in value.parts if end.host == me)
    sinks = {
        assignment.instance: None
        for assignment in mine
        if assignment.role is InstanceRole.SINK and value.rolled_back_to is not None
    }
    emitted = tuple(saved for saved in value.emitted if saved.instance in sinks)
    return asked.EnterAttempt(
        request, run, value.attempt, value.committed.epoch, value.plan, mine, saved, ends, emitted
    )
