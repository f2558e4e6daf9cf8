"""Preparation of epochs on a host: each instance's part of a barrier becomes durable, and the coordinator receives PREPARED.

| what an instance has done | what follows |
|---|---|
| a pinned source or sink has its part on the disk | PREPARED |
| a movable one has written a snapshot to the local disk | its fragments go to replica nodes |
| it is so small that the register holds it | PREPARED, with the content |
| enough replica nodes have acknowledged | PREPARED, with the names of the replica nodes |
| too few have, and no further one will | its fragments go to replica nodes again, after `ack_timeout` |

The awkward case: a snapshot that is late. No later barrier comes until its epoch is complete or times out, so its replication is
tried until it succeeds, or a later epoch is committed. The last snapshot of an instance that has ended is tried until it succeeds.
"""

from typing import Protocol

from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.handover_sender import HandoverSender
from agiledart_recovery.fragments.placement import spread
from agiledart_recovery.fragments.snapshot_replication import ReplicationOutcome, SnapshotReplication
from agiledart_recovery.limits import MAX_CHAIN
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.events import PinnedInstancePrepared, SnapshotTaken
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.observations import SnapshotDegraded
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, RegisterValue, SavedState


class PreparedAttempt(Protocol):
    """The attempt that a preparation belongs to."""

    attempt: int
    value: RegisterValue | None

    @property
    def is_in_attempt(self) -> bool:
        """Return whether this host has entered the attempt and it continues."""
        ...

    def on_switched(self, plan: Plan) -> None:
        """Note that an instance has passed the barrier of a change to this plan."""
        ...

    def report(self, message: wire.RunMessage) -> None:
        """Send a message to the coordinator, if one is known."""
        ...


class SnapshotPreparation:
    """Answers of this host's instances for the barriers of the current attempt."""

    def __init__(self, context: RecoveryContext, run: RunId, part: PreparedAttempt) -> None:
        self._context, self._run, self._part = context, run, part
        self.handover_sender = HandoverSender(context, run)
        self._prepared: dict[tuple[int, InstanceId], wire.Prepared] = {}
        self._ended: dict[InstanceId, wire.Prepared] = {}
        self._saving: dict[tuple[InstanceId, CheckpointId], SnapshotReplication] = {}
        self._again: dict[tuple[InstanceId, CheckpointId], SnapshotTaken] = {}

    def enter(self) -> None:
        """Drop everything that was prepared in another attempt."""
        self._prepared, self._ended, self._saving, self._again = {}, {}, {}, {}
        self.handover_sender.forget()

    def committed(self, epoch: int) -> None:
        """Drop what was prepared for epochs up to the committed one."""
        self.handover_sender.forget()  # from now on the value says it
        self._prepared = {key: prepared for key, prepared in self._prepared.items() if key[0] > epoch}
        self._again = {key: event for key, event in self._again.items() if event.has_ended or key[1].epoch > epoch}

    @property
    def answers(self) -> tuple[wire.Prepared, ...]:
        """Return what is prepared and not committed yet."""
        return (*self._prepared.values(), *self._ended.values())

    def report_again(self, to: Peer, above: int) -> None:
        """Report again what was prepared for epochs above this one."""
        for (epoch, _), answer in self._prepared.items():
            if epoch > above:
                self._context.send(to, answer)
        for answer in self._ended.values():
            self._context.send(to, answer)

    # ---- what instances have done

    def on_prepared(self, event: PinnedInstancePrepared) -> None:
        """Report a pinned source or sink that has its part of a barrier on the disk."""
        if self._takes(event.checkpoint):
            self._prepare(event, event.saved, event.offset)

    def on_snapped(self, event: SnapshotTaken) -> None:
        """Replicate the snapshot of a movable instance, now that it is on the local disk."""
        chain = self._chain_to(event)
        if not self._takes(event.checkpoint) or chain is None:
            return  # the snapshot that it builds on is deleted: the epoch was aborted
        if event.content:
            whole = InstanceSnapshot(event.checkpoint, event.digest, event.length, 1, (), event.content)
            self._prepare(event, SavedState(event.instance, (whole,)), event.offset)
            return
        config = self._context.config
        reachable = [peer for peer in self._context.candidates if self._context.can_reach(peer.node)]
        where = spread(self._context.me, reachable, event.length, config.m, config.k)
        snapshot = InstanceSnapshot(event.checkpoint, event.digest, event.length, where.m, where.replica_nodes)
        if event.after is not None and not event.has_ended:
            here = InstanceSnapshot(event.checkpoint, event.digest, event.length, where.m, ())
            self.handover_sender.hand_over(
                self._part.attempt, event.checkpoint.epoch, SavedState(event.instance, (*chain, here)), event.after
            )
        timeout_ns = config.ack_timeout_ns + event.length * config.slowest_ns
        self._context.set_timer((self._run, "save", event.instance, event.checkpoint), timeout_ns)

        def on_replicated(saving: SnapshotReplication) -> None:
            self._on_replicated(event, saving, where.wanted)

        saving = SnapshotReplication(self._context, self._run, event.instance, snapshot, where, on_replicated)
        if saving.outcome is ReplicationOutcome.SENDING:
            self._saving[event.instance, event.checkpoint] = saving

    def on_save_timeout(self, instance: InstanceId, checkpoint: CheckpointId) -> None:
        """Handle that `ack_timeout` has passed for a snapshot: finish its replication, or try it again."""
        saving = self._saving.get((instance, checkpoint))
        again = self._again.pop((instance, checkpoint), None)
        if saving is not None:
            saving.on_timeout()
        elif again is not None:
            self.on_snapped(again)

    def _on_replicated(self, event: SnapshotTaken, saving: SnapshotReplication, wanted: int) -> None:
        self._saving.pop((event.instance, event.checkpoint), None)
        before = self._chain_to(event)
        if not self._takes(event.checkpoint) or before is None:
            return
        if saving.outcome is not ReplicationOutcome.SAFE:
            self._again[event.instance, event.checkpoint] = event
            name = (self._run, "save", event.instance, event.checkpoint)
            self._context.set_timer(name, self._context.config.ack_timeout_ns)
            return
        snapshot = saving.snapshot
        if sum(1 for replica_node in snapshot.replica_nodes if replica_node) < wanted:
            self._context.observe(SnapshotDegraded(self._run, event.instance, snapshot.survives))
        self._prepare(event, SavedState(event.instance, (*before, snapshot)), event.offset)

    def _chain_to(self, event: SnapshotTaken) -> tuple[InstanceSnapshot, ...] | None:
        """Return the snapshots that a snapshot builds on; None when they are not kept, or the chain would be too long."""
        if not event.onto:
            return ()
        value = self._part.value
        chain = () if value is None else value.chain_to(event.instance, event.onto)
        return chain if 0 < len(chain) < MAX_CHAIN else None

    def _takes(self, checkpoint: CheckpointId) -> bool:
        """Return whether a checkpoint belongs to the current attempt."""
        return checkpoint.attempt == self._part.attempt and self._part.is_in_attempt

    def _prepare(self, event: PinnedInstancePrepared | SnapshotTaken, saved: SavedState, offset: int) -> None:
        # An end is named by the epoch above the last barrier: its snapshot must not replace that barrier's.
        epoch, attempt = event.checkpoint.epoch - event.has_ended, self._part.attempt
        answer = wire.Prepared(
            self._run,
            attempt,
            epoch,
            event.instance,
            saved,
            offset,
            event.after,
            event.is_caught_up,
            event.has_ended,
            event.changeover_pauses,
            event.pause_ns,
        )
        if event.has_ended:
            self._ended[event.instance] = answer
        else:
            self._prepared[epoch, event.instance] = answer
        if event.after is not None:
            self._part.on_switched(event.after)
            if not event.has_ended:
                self.handover_sender.hand_over(attempt, epoch, saved, event.after)
        self._part.report(answer)

    def violations(self) -> list[str]:
        """Return violated invariants, for checkers."""
        return [
            f"prepared in attempt {answer.attempt}, not {self._part.attempt}"
            for answer in self._prepared.values()
            if answer.attempt != self._part.attempt
        ]
