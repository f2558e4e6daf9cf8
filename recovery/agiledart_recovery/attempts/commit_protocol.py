"""Epochs of one life, from BEGIN to COMMITTED: the coordinator's side.

| step | who moves it |
|---|---|
| 1 BEGIN(ℓ, e) to hosts of sources, a change's to all | `checkpoint_interval` after the last one, one at a time; a change: below |
| 2 PREPARED(ℓ, e) of all parties | hosts; who does not answer is asked again |
| 3 SYNC(ℓ, e) to hosts of source logs, SYNCED | only where a merge by position has several sources, see below |
| 4 ACCEPT the value with (ℓ, e) | `Coordinator._commit`: here the epoch is committed |
| 5 COMMITTED(value), COMMITTED_OK | told until acknowledged |

A change (`changing`) is begun only when e - 1 is committed in this life, nothing else is begun, and all had caught up.
A run that is to end with its state kept is *held*: from some epoch on sources send nothing behind the barrier. That one tells all
marks, so what waited for them is worked off by the next one; when this is committed no other begins in this life. So nothing is
read whose effects would be lost with the run, and nothing waits but what cannot go on without more input.
SYNC, because the snapshot of a merge by position holds effects of rows behind a barrier: they must come again exactly alike.

Not complete within `epoch_timeout`: passed over, and the next has twice as long, at most four times: what is large and slow to save
is rather committed late than begun again for ever. The awkward case: an epoch that carries a change must not be passed over, since
its senders use the new plan behind the barrier; not committed within `handover_timeout` it ends in a new life.
"""

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
"""Between two epochs, however often somebody asks for one."""


MAX_TIMEOUT_DOUBLINGS: Final = 2
"""So often the time of an epoch is doubled, while none is committed."""

MAX_PREPARATION_INTERVALS = 3
"""For so long no epoch begins while a change is made ready, at the most."""


class CommitProtocol:
    """What a coordinator knows of the life that it coordinates.

    Attributes:
        took_ns: from BEGIN to the commit of the last epoch.
        pause_ns: for so long rows of an instance had to wait at once for it, at the most.
        held: the committed epoch behind which nothing was read; None while there is none in this life.
        is_held: such an epoch is wanted, or there.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self.attempt = 0
        self.epochs = EpochTracker(0, Plan(()), 0)
        self._is_started = self._is_wanted = False
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
        """Whether something is under way that another coordinator would not know of: a change, or a stop that keeps the state."""
        return self.is_held or self.generation_change.step is not ChangeStep.IDLE

    def enter(self, value: RegisterValue) -> None:
        """The register says so; answers of before are of no use."""
        self.attempt = value.attempt
        self.epochs = EpochTracker(value.attempt, value.plan, value.committed.epoch)
        self._is_started = False
        self._open = self._syncing = self._passed = 0
        self.generation_change.forget()
        self._ready, self._synced, self._acknowledged, self._former = {}, {}, {}, {}
        self.held, self.is_held, self._held_from = None, False, 0

    def started(self, value: RegisterValue) -> None:
        """Everybody has entered the life."""
        self._is_started, self._began = True, self._context.now

    def answered(self, sender: Peer, message: wire.ResetOk) -> None:
        """A host is in the life, and has prepared this."""
        self.epochs.begun = max(self.epochs.begun, message.begun)
        self._ready[sender.node] = None
        for answer in message.prepared:
            self.prepared(sender, answer)

    # ---- time

    def on_tick(self, value: RegisterValue, ballot: Ballot) -> str:
        """Begin an epoch, or look after the open one; returns why a new life is needed, if it is."""
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
            elif self.is_held or self._hastens(value) or self._is_time():
                self._begin(value, None)
            return ""
        if self.generation_change.step is ChangeStep.CARRIED and age >= config.handover_timeout_ns:
            return f"the change at epoch {self._open} was not committed in time"
        if age >= config.epoch_timeout_ns << min(self._passed, MAX_TIMEOUT_DOUBLINGS):
            missing = tuple(each.instance for each in self.epochs.missing(self._open))
            self._context.observe(EpochPassedOver(self._run, self._open, missing))
            self._open, self._passed = 0, self._passed + 1
            return ""
        self._ask_again(value)
        return ""

    def carries_next(self, value: RegisterValue) -> bool:
        """Whether the next tick begins the epoch that carries a change."""
        alone = self.epochs.begun == self.epochs.committed and self.epochs.is_caught_up
        return alone and self._hastens(value) and self.generation_change.is_due(value, self.took_ns)

    def _hastens(self, value: RegisterValue) -> bool:
        """Whether a change begins an epoch with the next tick: none is open, what is committed is built, and everybody whom it
        concerns knows that it is, for what is handed over rests on it.
        """
        is_open = self._open > self.epochs.committed
        if is_open or not self._is_started or self.held is not None or not self.generation_change.wants_epoch:
            return False
        on_acknowledged = all(
            self._acknowledged.get(node) == value.committed for node in self.generation_change.listeners
        )
        return on_acknowledged or not value.committed.epoch

    def want_epoch(self) -> None:
        """Somebody does not want to wait for the next epoch."""
        self._is_wanted = True

    def hold(self) -> None:
        """From the next epoch on nothing more is to be read in this life."""
        self.is_held = True

    def _is_time(self) -> bool:
        """Whether an epoch is due by itself."""
        began = self._began
        if self.generation_change.step is ChangeStep.CHECKPOINTING_FASTER:
            # The next epoch waits until the last one is built and known, however long that one took: another would begin it anew.
            began = max(began, self.generation_change.committed_at)
        return self._context.now - began >= self.interval_ns()

    def interval_ns(self) -> int:
        """How long after one epoch the next begins by itself, as it is now."""
        usual = self._context.config.checkpoint_interval_ns
        if self.generation_change.step is ChangeStep.CHECKPOINTING_FASTER:
            usual *= MAX_PREPARATION_INTERVALS
        return min(usual, MIN_EPOCH_INTERVAL_NS) if self._is_wanted else usual

    def _begin(self, value: RegisterValue, change: Plan | None) -> None:
        self._carried, self._is_wanted = change, False
        self._open = self.epochs.begun = self.epochs.begun + 1
        if self.is_held:
            self._held_from = self._held_from or self._open
        self._began = self._context.now
        self._send_begin(value)

    def _send_begin(self, value: RegisterValue) -> None:
        holds = 0 < self._held_from <= self._open
        message = wire.Begin(self._run, self.attempt, self._open, value.plan.digest, self._carried, holds)
        missing = self.epochs.missing(self._open)
        # Of a change everybody is told: a merge whose input stands at the barrier needs room for the rows of the others.
        told = {
            each.host.node: each.host
            for each in missing
            if each.role is InstanceRole.SOURCE or self._carried is not None
        }
        for peer in told.values():
            self._context.send(peer, message)

    def _ask_again(self, value: RegisterValue) -> None:
        self._send_begin(value)
        # Everybody: a host all of whose parties have ended, and that was ended since, holds the others up and owes no answer.
        for peer in self.epochs.plan.hosts.values():
            self._context.send(peer, wire.QueryPrepared(self._run, self.attempt, self.epochs.committed))
        if self._syncing:
            self._send_sync()

    # ---- answers

    def prepared(self, sender: Peer, message: wire.Prepared) -> bool:
        """A party's part of an epoch is safe; true when some epoch may be complete now."""
        instances = {each.instance: each for each in self.epochs.plan.assignments}
        mine = instances.get(message.instance)
        if mine is None or mine.host.node != sender.node or not self.epochs.take(message, instances):
            return False
        return self._is_started

    def synced(self, sender: Peer, message: wire.Synced) -> bool:
        """A host's logs are on its disk."""
        if message.attempt != self.attempt or message.epoch != self._syncing:
            return False
        self._synced[sender.node] = None
        return True

    def _must_sync(self, done: CompleteEpoch) -> bool:
        """Whether logs are still to be put on disks before this epoch may be committed."""
        logs = {each.host.node: each.host for each in self.epochs.plan.assignments if each.has_log}
        if not self.epochs.plan.syncs or not logs:
            return False
        if self._syncing != done.epoch:
            self._syncing, self._synced = done.epoch, {}
            self._send_sync()
        return any(node not in self._synced for node in logs)

    def _send_sync(self) -> None:
        for each in self.epochs.plan.assignments:
            if each.has_log and each.host.node not in self._synced:
                self._context.send(each.host, wire.Sync(self._run, self.attempt, self._syncing))

    # ---- the commit

    def next_value(self, value: RegisterValue) -> RegisterValue | None:
        """The value that commits the highest complete epoch, or None while there is none."""
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
        for each in self.epochs.plan.of(InstanceRole.SINK):
            answer = done.answers[each.instance]
            end = SinkEnd(each.instance.stage, each.instance.index, each.host.node, checkpoint, answer.offset)
            parts[end.part] = end
        return msgspec.structs.replace(
            with_changeover_pauses(
                self.generation_change.in_commit(value, done.plan, is_last=done.is_last), done.answers.values()
            ),
            plan=done.plan,
            committed=checkpoint,
            parts=tuple(parts.values()),
            saved=tuple(value.with_known(answer.saved) for answer in done.answers.values()),
            before=value.saved,
            rolled_back_to=None,
            fallback_checkpoint=self._fallback_checkpoint(value, done.plan),
            state=RunState.FINISHED if done.is_last else RunState.RUNNING,
            reason="" if done.is_last else value.reason,  # what a life could not bring back is no reason for an end
            old_voters=(),
        )

    def _fallback_checkpoint(self, value: RegisterValue, plan: Plan) -> CheckpointId | None:
        """The epoch before, if the run may go on from there when the next one is committed.

        There is none behind a change: what was saved before it is of other instances, which did not stand at one frontier. Nor
        where a source may have moved since, with whose log it went. Nor to the beginning: a source may begin elsewhere each time.
        """
        has_moved = value.at.attempt != self.attempt and any(
            not each.is_pinned for each in plan.of(InstanceRole.SOURCE)
        )
        if not plan.may_roll_back or not value.committed.epoch or plan != value.plan or has_moved:
            return None
        return value.at

    def written(self, value: RegisterValue) -> bool:
        """The register says so; true when it is an epoch that was not known as committed."""
        if value.committed.epoch <= self.epochs.committed:
            return False
        done = self._written
        assert done is not None, value.committed
        assert done.epoch == value.committed.epoch, (done, value.committed)
        before = self.epochs.plan
        self.took_ns, self._passed = self._context.now - self._began, 0
        self.pause_ns = max((each.pause_ns for each in done.answers.values() if not each.has_ended), default=0)
        self.epochs.finalise(done)
        if 0 < self._held_from < done.epoch:
            self.held = value.committed
        if done.plan != before:
            # Who runs nothing any more hears on: holders of what it saved take only its word for what is not needed.
            self._former |= {node: (peer, done.epoch + 2) for node, peer in before.hosts.items()}
        self.generation_change.committed(value, is_change=done.plan != before)
        self._context.observe(EpochCommitted(self._run, value.committed))
        return True

    def send_committed(self, value: RegisterValue) -> None:
        """COMMITTED to everybody who has not acknowledged it."""
        if not value.committed.epoch:
            return
        message = wire.Committed(self._run, value.attempt, value)
        former = {node: peer for node, (peer, until) in self._former.items() if value.committed.epoch <= until}
        coming = {node: peer for node, peer in self.generation_change.listeners.items() if node in self._ready}
        for node, peer in (former | coming | value.nodes).items():
            if self._acknowledged.get(node) != value.committed and self._context.can_reach(node):
                self._context.send(peer, message)

    def concerns(self, node: NodeId) -> bool:
        """Whether it hosts something of an epoch that is open, or of what was, or may come to be."""
        return node in self.epochs.plan.hosts or node in self.generation_change.hosts or node in self._former

    def all_acknowledged(self, value: RegisterValue) -> bool:
        """Whether everybody has acknowledged what is committed. Nobody waits for who cannot be reached when the run has failed, or
        when that one only has an old part of a sink.
        """
        hosts = {} if value.state is RunState.FAILED else value.plan.hosts
        waited_for = [node for node in value.nodes if node in hosts or self._context.can_reach(node)]
        return not value.committed.epoch or all(self._acknowledged.get(node) == value.committed for node in waited_for)

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """Sinks have written COMMIT there."""
        if message.attempt == self.attempt:
            self._acknowledged[sender.node] = message.committed
