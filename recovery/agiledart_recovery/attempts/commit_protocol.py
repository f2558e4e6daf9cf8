"""Commit protocol of the epochs of one attempt, from BEGIN to COMMITTED: the coordinator's side.

| step | trigger |
|---|---|
| 1 BEGIN(ℓ, e) to hosts of sources; with a change, to all hosts | `checkpoint_interval` after the last one, one at a time |
| 2 PREPARED(ℓ, e) of all instances | hosts answer; the coordinator asks again where an answer is missing |
| 3 SYNC(ℓ, e) to hosts of source logs, SYNCED | only where a merge by position has several sources, see below |
| 4 ACCEPT the value with (ℓ, e) | `Coordinator._commit`: here the epoch is committed |
| 5 COMMITTED(value), COMMITTED_OK | repeated until acknowledged |

A change (`generation_change`) begins only when e - 1 is committed in this attempt, no other epoch is open, and all instances had
caught up.

A run that is to end with its state kept is *held*: from some epoch on, sources send nothing behind the barrier. That barrier
carries
all watermarks, so the next epoch processes the rows that waited for them. When that one is committed, no other begins in this
attempt. So no source reads a row whose effects would be lost with the run, and only work that needs more input is left waiting.

SYNC is needed because the snapshot of a merge by position holds effects of rows behind a barrier. Those rows must come again in
exactly the same order.

A run that saves as little as it may (`RegisterValue.saves_less`) begins no epoch while no rows come: hosts report the first rows
behind each epoch (ROWS_PASSED).

An epoch that is not complete within `epoch_timeout` is aborted. The next one has twice as long, at most four times: a large state
that is slow to save is better committed late than begun again for ever. The awkward case: an epoch that carries a change must not
be aborted, since its senders use the new plan behind the barrier. If it is not committed within `handover_timeout`, a new attempt
begins.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.epoch_tracker import CompleteEpoch, EpochTracker
from agiledart_recovery.attempts.generation_change import ChangeStep, GenerationChange, with_changeover_pauses
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, CheckpointId, RunId
from agiledart_recovery.wire.observations import EpochCommitted, EpochPassedOver
from agiledart_recovery.wire.register_value import InstanceRole, Plan, RegisterValue, RunState, SinkEnd

MIN_EPOCH_INTERVAL_NS: Final = SECOND
"""Shortest time between two epochs, however often a caller requests one."""


MAX_TIMEOUT_DOUBLINGS: Final = 2
"""Number of times that the timeout of an epoch is doubled while none is committed."""

MAX_PREPARATION_INTERVALS = 3
"""Intervals for which a change in preparation may delay the next epoch, at most."""


class CommitProtocol:
    """Epochs of the current attempt, as its coordinator sees them.

    Attributes:
        took_ns: from BEGIN to the commit of the last epoch.
        pause_ns: the longest time for which rows of an instance had to wait for the last epoch.
        held: the committed epoch behind which sources read nothing; None while there is none in this attempt.
        is_held: whether such an epoch is requested or exists.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self.attempt = 0
        self.epochs = EpochTracker(0, Plan(()), 0)
        self._is_started = self._is_wanted = False
        self._has_rows = True
        self._began = context.now
        self._open = self._passed = 0
        self.generation_change = GenerationChange(context, run)
        self._ready: dict[NodeId, None] = {}
        self._synced: dict[NodeId, None] = {}
        self._syncing = 0
        self._carried: Plan | None = None
        self._acknowledged: dict[NodeId, CheckpointId] = {}
        self._former: dict[NodeId, tuple[Peer, int]] = {}
        self.took_ns = self.pause_ns = 0
        self._written: CompleteEpoch | None = None
        self.held: CheckpointId | None = None
        self.is_held, self._held_from = False, 0

    @property
    def has_request(self) -> bool:
        """Return whether a request is under way that another coordinator would not know of: a change, or a stop that keeps the
        state.
        """
        return self.is_held or self.generation_change.step is not ChangeStep.IDLE

    def enter(self, value: RegisterValue) -> None:
        """Begin a new attempt that the register names; drop all answers of the previous one."""
        self.attempt = value.attempt
        self.epochs = EpochTracker(value.attempt, value.plan, value.committed.epoch)
        self._is_started = False
        self._open = self._syncing = self._passed = 0
        self._has_rows = True  # the first epoch of an attempt shows that it goes on, whether rows come or not
        self.generation_change.forget()
        self._ready, self._synced, self._acknowledged, self._former = {}, {}, {}, {}
        self.held, self.is_held, self._held_from = None, False, 0

    def started(self, value: RegisterValue) -> None:
        """Note that all hosts have entered the attempt."""
        self._is_started, self._began = True, self._context.now

    def answered(self, sender: Peer, message: wire.ResetOk) -> None:
        """Note that a host is in the attempt, and what it has prepared."""
        self.epochs.begun = max(self.epochs.begun, message.begun)
        self._ready[sender.node] = None
        for answer in message.prepared:
            self.prepared(sender, answer)

    # ---- time

    def on_tick(self, value: RegisterValue, ballot: Ballot) -> str:
        """Begin an epoch, or look after the open one; return why a new attempt is needed, or an empty string."""
        if not self._is_started:
            return ""
        config, age = self._context.config, self._context.now - self._began
        if self.epochs.dead_end:
            return self.epochs.dead_end
        ended = self.epochs.ended_stage(self.generation_change.plan)
        self.generation_change.on_tick(value, ballot, self._ready, f"{ended} has come to its end" if ended else "")
        if self._open <= self.epochs.committed:
            if self.held is not None:
                return ""
            if self.carries_next(value):
                self._begin(value, self.generation_change.carry())
            elif self.is_held or self._hastens(value) or (self._has_work(value) and self._is_time()):
                self._begin(value, None)
            return ""
        if self.generation_change.step is ChangeStep.CARRIED and age >= config.handover_timeout_ns:
            return f"the change at epoch {self._open} was not committed in time"
        if age >= config.epoch_timeout_ns << min(self._passed, MAX_TIMEOUT_DOUBLINGS):
            missing = tuple(assignment.instance for assignment in self.epochs.missing(self._open))
            self._context.observe(EpochPassedOver(self._run, self._open, missing))
            self._open, self._passed = 0, self._passed + 1
            return ""
        self._ask_again(value)
        return ""

    def carries_next(self, value: RegisterValue) -> bool:
        """Return whether the next tick begins the epoch that carries a change."""
        alone = self.epochs.begun == self.epochs.committed and self.epochs.is_caught_up
        return alone and self._hastens(value) and self.generation_change.is_due(value, self.took_ns)

    def _hastens(self, value: RegisterValue) -> bool:
        """Return whether a change begins an epoch with the next tick.

        True when no epoch is open, the committed state is preloaded, and all hosts of the change know that it is committed. The
        hand-over
        rests on that epoch.
        """
        is_open = self._open > self.epochs.committed
        if is_open or not self._is_started or self.held is not None or not self.generation_change.wants_epoch:
            return False
        on_acknowledged = all(
            self._acknowledged.get(node) == value.committed for node in self.generation_change.listeners
        )
        return on_acknowledged or not value.committed.epoch

    def want_epoch(self) -> None:
        """Begin the next epoch soon, instead of after the usual interval."""
        self._is_wanted = True

    def hold(self) -> None:
        """Let sources read nothing behind the barrier of the next epoch."""
        self.is_held = True

    @property
    def begins_held_epoch(self) -> bool:
        """Return whether the next tick begins the epoch behind which sources read nothing."""
        return self.is_held and self.held is None and self._is_started and self._open <= self.epochs.committed

    def on_rows_passed(self, message: wire.RowsPassed) -> None:
        """Note that a host has something to save."""
        self._has_rows |= message.attempt == self.attempt

    def is_idle(self, value: RegisterValue) -> bool:
        """Return whether all that has passed is saved, so that no epoch is due."""
        return self._is_started and self._open <= self.epochs.committed and not self._has_work(value)

    def _has_work(self, value: RegisterValue) -> bool:
        """Return whether the next epoch saves anything: rows have passed since the last one, a request asks for it, or an aborted
        epoch is to be made up for. A change that is being prepared asks by `_hastens`: hosts preload what is committed already.
        """
        return self._has_rows or self._is_wanted or self._passed > 0 or not value.saves_less

    def _is_time(self) -> bool:
        """Return whether the interval since the last epoch has passed."""
        began = self._began
        if self.generation_change.step is ChangeStep.CHECKPOINTING_FASTER:
            # The next epoch waits until the last one is preloaded and known, however long that one took. Another would start
            # the preload anew.
            began = max(began, self.generation_change.committed_at)
        return self._context.now - began >= self.interval_ns()

    def interval_ns(self) -> int:
        """Return the current interval between the starts of two epochs, in nanoseconds."""
        usual = self._context.config.checkpoint_interval_ns
        if self.generation_change.step is ChangeStep.CHECKPOINTING_FASTER:
            usual *= MAX_PREPARATION_INTERVALS
        return min(usual, MIN_EPOCH_INTERVAL_NS) if self._is_wanted else usual

    def _begin(self, value: RegisterValue, change: Plan | None) -> None:
        self._carried, self._is_wanted, self._has_rows = change, False, False
        self._open = self.epochs.begun = self.epochs.begun + 1
        if self.is_held:
            self._held_from = self._held_from or self._open
        self._began = self._context.now
        self._send_begin(value)

    def _send_begin(self, value: RegisterValue, *, again: bool = False) -> None:
        holds = 0 < self._held_from <= self._open
        message = wire.Begin(self._run, self.attempt, self._open, value.plan.digest, self._carried, holds)
        missing = self.epochs.missing(self._open)
        # All hosts receive BEGIN of a change: a merge whose input stands at the barrier needs capacity for the rows of the
        # others. All that owe an answer receive it again: an instance whose inputs have ended begins the barrier itself.
        receivers = {
            assignment.host.node: assignment.host
            for assignment in missing
            if assignment.role is InstanceRole.SOURCE or self._carried is not None or again
        }
        for peer in receivers.values():
            self._context.send(peer, message)

    def _ask_again(self, value: RegisterValue) -> None:
        self._send_begin(value, again=True)
        # Ask all hosts: a host all of whose instances have ended, and that was ended since, owes no answer but holds the
        # others up.
        for peer in self.epochs.plan.hosts.values():
            self._context.send(peer, wire.QueryPrepared(self._run, self.attempt, self.epochs.committed))
        if self._syncing:
            self._send_sync()

    # ---- answers

    def prepared(self, sender: Peer, message: wire.Prepared) -> bool:
        """Take an instance's answer for an epoch; return true when some epoch may be complete now."""
        instances = {assignment.instance: assignment for assignment in self.epochs.plan.assignments}
        mine = instances.get(message.instance)
        if mine is None or mine.host.node != sender.node or not self.epochs.take(message, instances):
            return False
        return self._is_started

    def synced(self, sender: Peer, message: wire.Synced) -> bool:
        """Note that a host's logs are on its disk."""
        if message.attempt != self.attempt or message.epoch != self._syncing:
            return False
        self._synced[sender.node] = None
        return True

    def _must_sync(self, done: CompleteEpoch) -> bool:
        """Return whether some hosts must still write their logs to disk before this epoch may be committed."""
        logs = {
            assignment.host.node: assignment.host for assignment in self.epochs.plan.assignments if assignment.has_log
        }
        if not self.epochs.plan.syncs or not logs:
            return False
        if self._syncing != done.epoch:
            self._syncing, self._synced = done.epoch, {}
            self._send_sync()
        return any(node not in self._synced for node in logs)

    def _send_sync(self) -> None:
        for assignment in self.epochs.plan.assignments:
            if assignment.has_log and assignment.host.node not in self._synced:
                self._context.send(assignment.host, wire.Sync(self._run, self.attempt, self._syncing))

    # ---- the commit

    def next_value(self, value: RegisterValue) -> RegisterValue | None:
        """Return the value that commits the highest complete epoch, or None while there is none."""
        done = self.epochs.complete() if self._is_started else None
        if (
            done is None
            or value.attempt != self.attempt
            or done.epoch <= value.committed.epoch
            or self._must_sync(done)
        ):
            return None
        self._written = done
        checkpoint = CheckpointId(self.attempt, done.epoch)
        parts = {end.part: end for end in value.parts}
        for assignment in self.epochs.plan.of(InstanceRole.SINK):
            answer = done.answers[assignment.instance]
            end = SinkEnd(
                assignment.instance.stage, assignment.instance.index, assignment.host.node, checkpoint, answer.offset
            )
            parts[end.part] = end
        fallback = self._fallback_checkpoint(value, done.plan)
        return msgspec.structs.replace(
            with_changeover_pauses(
                self.generation_change.in_commit(value, done.plan, is_last=done.is_last), done.answers.values()
            ),
            plan=done.plan,
            committed=checkpoint,
            parts=tuple(parts.values()),
            saved=tuple(value.with_known(answer.saved) for answer in done.answers.values()),
            before=value.saved if fallback is not None else value.saved_outside,
            rolled_back_to=None,
            fallback_checkpoint=fallback,
            state=RunState.FINISHED if done.is_last else RunState.RUNNING,
            reason="" if done.is_last else value.reason,  # a note on the last restart is not why the run ended
            old_voters=(),
        )

    def _fallback_checkpoint(self, value: RegisterValue, plan: Plan) -> CheckpointId | None:
        """Return the previous epoch, if the run may roll back to it after the next commit.

        There is none behind a change: the state saved before it belongs to other instances, which did not stop at one barrier.
        There is
        none when a source may have moved since, because its log stayed behind. And there is none at the beginning, because a
        source may
        start elsewhere each time.
        """
        has_moved = value.at.attempt != self.attempt and any(
            not assignment.is_pinned for assignment in plan.of(InstanceRole.SOURCE)
        )
        if not plan.may_roll_back or not value.committed.epoch or plan != value.plan or has_moved:
            return None
        return value.at

    def written(self, value: RegisterValue) -> bool:
        """Note that the register holds this value; return true when it commits an epoch that was not known as committed."""
        if value.committed.epoch <= self.epochs.committed:
            return False
        done = self._written
        assert done is not None, value.committed
        assert done.epoch == value.committed.epoch, (done, value.committed)
        before = self.epochs.plan
        self.took_ns, self._passed = self._context.now - self._began, 0
        self.pause_ns = max((answer.pause_ns for answer in done.answers.values() if not answer.has_ended), default=0)
        self.epochs.finalise(done)
        if 0 < self._held_from < done.epoch:
            self.held = value.committed
        if done.plan != before:
            # Hosts that run nothing any more still receive commits: replica nodes of their snapshots delete fragments only at
            # their word.
            self._former |= {node: (peer, done.epoch + 2) for node, peer in before.hosts.items()}
        self.generation_change.committed(value, is_change=done.plan != before)
        self._context.observe(EpochCommitted(self._run, value.committed))
        return True

    def send_committed(self, value: RegisterValue) -> None:
        """Send COMMITTED to all nodes that have not acknowledged it."""
        if not value.committed.epoch:
            return
        message = wire.Committed(self._run, value.attempt, value)
        former = {node: peer for node, (peer, until) in self._former.items() if value.committed.epoch <= until}
        coming = {node: peer for node, peer in self.generation_change.listeners.items() if node in self._ready}
        for node, peer in (former | coming | value.informed).items():
            if self._acknowledged.get(node) != value.committed and self._context.can_reach(node):
                self._context.send(peer, message)

    def send_voters(self, value: RegisterValue) -> None:
        """Send a value with new voters to all hosts, also to those that have its epoch.

        They deal the run's key, and believe the former voters no more.
        """
        if value.attempt == self.attempt:
            for peer in value.plan.hosts.values():
                self._context.send(peer, wire.Committed(self._run, value.attempt, value))

    def announce(self, standbys: Mapping[NodeId, Peer]) -> None:
        """Send the register's value again to these nodes: they have become standby hosts, or are none any more."""
        for node, peer in standbys.items():
            self._acknowledged.pop(node, None)
            self._former[node] = peer, self.epochs.committed + 2

    def concerns(self, node: NodeId) -> bool:
        """Return whether a node hosts an instance of an open epoch, of an earlier plan, or of a planned change."""
        return node in self.epochs.plan.hosts or node in self.generation_change.hosts or node in self._former

    def all_acknowledged(self, value: RegisterValue) -> bool:
        """Return whether all nodes that matter have acknowledged the committed epoch.

        An unreachable node does not matter when the run has failed, or when the node only holds an old part of a sink.
        """
        hosts = {} if value.state is RunState.FAILED else value.plan.hosts
        waited_for = [node for node in value.informed if node in hosts or self._context.can_reach(node)]
        return not value.committed.epoch or all(self._acknowledged.get(node) == value.committed for node in waited_for)

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """Note that a host has carried out the commit: its sinks have written COMMIT."""
        if message.attempt == self.attempt:
            self._acknowledged[sender.node] = message.committed
