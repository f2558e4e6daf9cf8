"""A host's side of one run.

| state | who moves it |
|---|---|
| OUT | no life, or one that was entered by an earlier process. RESET of a later life → STORING, if its plan knows of this process |
| STORING | the life is being written; nothing of an older life is taken any more. Written → ENTERING |
| ENTERING | the driver ends what ran, cuts sinks, restores. Done → READY, RESET_OK; failed → OUT, RESET_REFUSED |
| READY | START or BEGIN → RUNNING |
| RUNNING | barriers pass, parties prepare. Something breaks → BROKEN |
| BROKEN | every word of the coordinator is answered by NEED_LIFE, a RESET of this life by RESET_REFUSED |
| CLOSED | the run has ended |
| any | RESET of a later life → STORING |

The awkward case: RESET of the life that is on the disk. In the process that entered it, it is a question: what have you prepared?
In a later process it is refused: the part has forgotten what it had taken, and an old RESET would cut off what was committed
since.
"""

from enum import Enum

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.attempts.generation_preparation import GenerationPreparation
from agiledart_recovery.attempts.handover_sender import HandoverSender
from agiledart_recovery.fragments.fragment_repair import FragmentRepair
from agiledart_recovery.fragments.placement import spread
from agiledart_recovery.fragments.snapshot_replication import ReplicationOutcome, SnapshotReplication
from agiledart_recovery.limits import (
    ATTEMPTS_PER_CONFIGURATION,
    MAX_CHAIN,
    MAX_CONFIGURATIONS,
    MAX_FRAGMENTS,
    MAX_OPEN_EPOCHS,
)
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.events import PinnedInstancePrepared, SnapshotTaken
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.observations import AttemptEntered, MessageIgnored, SnapshotDegraded
from agiledart_recovery.wire.register_value import (
    InstanceRole,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    RunState,
    SavedState,
)


class Phase(Enum):
    """See the module."""

    OUT = "out"
    STORING = "storing"
    ENTERING = "entering"
    READY = "ready"
    RUNNING = "running"
    BROKEN = "broken"
    CLOSED = "closed"


class Participant:
    """What one node knows of a run that it hosts, or has a part of a sink of.

    Attributes:
        life: the last life that was entered; on the disk before anything was answered.
        begun: the highest barrier that this host's sources were told of in this life.
        committed_at: when this host last heard of a commit, or entered the life; None: neither.
    """

    def __init__(self, context: RecoveryContext, run: RunId, attempt: int = 0, signed_command: bytes = b"") -> None:
        self._context, self.run, self.attempt, self._signed_command = context, run, attempt, signed_command
        self.phase = Phase.OUT
        self.begun = 0
        self.value: RegisterValue | None = None
        self.committed_at: Instant | None = None
        self._plan = Plan(())
        self._leader: Peer | None = None
        self._committed = CheckpointId(0, 0)
        self._committing = CheckpointId(0, 0)
        self._prepared: dict[tuple[int, InstanceId], wire.Prepared] = {}
        self._ended: dict[InstanceId, wire.Prepared] = {}
        self._saving: dict[tuple[InstanceId, CheckpointId], SnapshotReplication] = {}
        self._again: dict[tuple[InstanceId, CheckpointId], SnapshotTaken] = {}
        self._begins: dict[int, bytes] = {}
        self._replica_nodes: dict[InstanceId, dict[NodeId, None]] = {}
        self._reason = ""
        self.generation_preparation = GenerationPreparation(context, run, self)
        self.handover_sender = HandoverSender(context, run)
        self.fragment_repair = FragmentRepair(context, run, self._report_replaced)
        self._lacks: tuple[NodeId, ...] = ()

    # ---- lives

    def on_reset(self, sender: Peer, message: wire.Reset) -> None:
        """Enter a life, or say what was prepared in it."""
        value = message.value
        is_ballots = message.ballot.node == sender.node
        if value.run != self.run or value.faults() or not value.may_be_sent_by(sender.node) or not is_ballots:
            self._context.observe(MessageIgnored(sender.node, "reset"))
        elif value.attempt > self.attempt and self._was_planned_for_another(value):
            self._context.send(
                sender, wire.ResetRefused(self.run, value.attempt, "this host was ended since the plan was made")
            )
        elif value.attempt > self.attempt:
            self._enter(sender, value)
        elif value.attempt < self.attempt:
            why = "a later life was entered"
            self._context.send(
                sender, wire.ResetRefused(self.run, self.attempt, why, signed_command=self._signed_command)
            )
        elif self.phase in (Phase.READY, Phase.RUNNING):
            self._leader = sender
            self._answer_reset()
        elif self.phase in (Phase.STORING, Phase.ENTERING):
            self._leader = sender
        else:
            reason = self._reason or "it was entered by a process that has ended"
            self._context.send(sender, wire.ResetRefused(self.run, self.attempt, reason, self._lacks))

    def is_unproven(self, value: RegisterValue) -> bool:
        """Whether a value is of an era that is not known here, and that no admin has ordered since the last one."""
        configuration = self.attempt // ATTEMPTS_PER_CONFIGURATION
        return value.configuration > configuration and not (
            value.configuration <= MAX_CONFIGURATIONS
            and self._context.is_command_authorised(self.run, value.signed_command, self._signed_command)
        )

    def may_be_commanded_by(self, node: NodeId) -> bool:
        """Whether a node may say what is to be done in the life that is known here. Who takes over says RESET first."""
        is_leader = self._leader is not None and self._leader.node == node
        return self.value is None or is_leader or self.value.may_be_sent_by(node)

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the run."""
        return self.value is None and not self.attempt

    def _was_planned_for_another(self, value: RegisterValue) -> bool:
        """A plan names lives of hosts, so that one that lost its disk can't enter a life a second time."""
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
        self._prepared, self._ended, self._begins, self._saving, self._again = {}, {}, {}, {}, {}
        self.generation_preparation.enter(value)
        self.handover_sender.forget()
        self.fragment_repair.forget()
        file = asked.AttemptFile(self.run, value.attempt, self._signed_command)
        self._context.ask(
            lambda request: asked.StoreAttempt(request, file), lambda _, reason: self._stored(value, reason)
        )

    def _stored(self, value: RegisterValue, reason: str) -> None:
        if value.attempt != self.attempt or self.phase is not Phase.STORING:
            return
        if reason:
            self._refuse(reason)
            return
        self.phase = Phase.ENTERING
        me = self._context.me.node
        mine = value.plan.at(me)
        saved = tuple({saved.instance: saved for each in mine for saved in value.saved_for(each.instance)}.values())
        ends = tuple(end for end in value.parts if end.host == me)
        sinks = {
            each.instance: None for each in mine if each.role is InstanceRole.SINK and value.rolled_back_to is not None
        }
        emitted = tuple(saved for saved in value.emitted if saved.instance in sinks)
        self._context.ask(
            lambda request: asked.EnterAttempt(
                request, self.run, value.attempt, value.committed.epoch, value.plan, mine, saved, ends, emitted
            ),
            lambda _, reason: self._entered(value, reason),
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
        """A state cannot be rebuilt without fragments of these; the life cannot be entered, which is told with the reason."""
        if attempt == self.attempt and self.phase is Phase.ENTERING:
            self._lacks = replica_nodes[:MAX_FRAGMENTS]

    def report_entering(self, attempt: int, phase: str, got: int, of: int) -> None:
        """The coordinator is to know how far this host is."""
        if attempt == self.attempt and self.phase is Phase.ENTERING and self._leader is not None:
            self._context.send(self._leader, wire.AttemptProgress(self.run, attempt, phase, got, of))

    def _refuse(self, reason: str) -> None:
        self.phase, self._reason = Phase.OUT, reason[:400]
        if self._leader is not None:
            self._context.send(self._leader, wire.ResetRefused(self.run, self.attempt, self._reason, self._lacks))

    def _answer_reset(self) -> None:
        if self._leader is not None:
            answers = (*self._prepared.values(), *self._ended.values())
            self._context.send(self._leader, wire.ResetOk(self.run, self.attempt, self.begun, answers))

    def _is_mine(self, sender: Peer, attempt: int) -> bool:
        """Whether a coordinator's word is about the life that this host is in. One that is broken answers what it needs."""
        if attempt > self.attempt:
            # The coordinator goes by this host's RESET_OK, of which nothing is left here: its disk was lost.
            self._context.send(
                sender, wire.NewAttemptNeeded(self.run, attempt, "this host has never been in that life")
            )
            return False
        if attempt != self.attempt or self.phase in (Phase.STORING, Phase.ENTERING):
            return False
        if self.phase in (Phase.OUT, Phase.BROKEN):
            reason = self._reason or "it was entered by a process that has ended"
            self._context.send(sender, wire.NewAttemptNeeded(self.run, self.attempt, reason))
            return False
        return self.phase is not Phase.CLOSED

    def on_other(self, sender: Peer, message: wire.RunMessage) -> None:
        """A word about a life came to a host that knows nothing of the run."""
        if isinstance(message, wire.Start | wire.Begin | wire.QueryPrepared | wire.Sync):
            self._is_mine(sender, message.attempt)

    def on_start(self, sender: Peer, message: wire.Start) -> None:
        """Everybody is in the life."""
        if self._is_mine(sender, message.attempt):
            self._start()

    def _start(self) -> None:
        if self.phase is Phase.READY:
            self.phase = Phase.RUNNING
            self._context.do(asked.BeginSources(self.run, self.attempt))
            self._update_repair()

    @property
    def is_in_attempt(self) -> bool:
        """Whether the life has been entered here, and goes on."""
        return self.phase in (Phase.READY, Phase.RUNNING)

    def on_broken(self, attempt: int, reason: str) -> None:
        """Something of this life cannot go on here."""
        if attempt == self.attempt and self.phase in (Phase.READY, Phase.RUNNING):
            self.phase, self._reason = Phase.BROKEN, reason[:400]
            if self._leader is not None:
                self._context.send(self._leader, wire.NewAttemptNeeded(self.run, self.attempt, self._reason))

    # ---- epochs

    def on_begin(self, sender: Peer, message: wire.Begin) -> None:
        """Send a barrier. BEGIN implies START: everybody is in the life."""
        if not self._is_mine(sender, message.attempt):
            return
        self._leader = sender
        self._start()
        request = message.after.digest if message.after is not None else b""
        known = self._begins.get(message.epoch)
        if known is not None and known != request:
            self.on_broken(self.attempt, f"two requests under epoch {message.epoch}")
        elif known is not None or message.epoch <= self.begun:
            self._report_prepared(sender, message.epoch - 1)
        elif message.before != self._plan.digest and self._has_source:
            self.on_broken(self.attempt, f"epoch {message.epoch} is begun under a plan that no longer holds here")
        elif message.epoch <= self._committed.epoch + MAX_OPEN_EPOCHS * MAX_OPEN_EPOCHS:
            self._begins[message.epoch], self.begun = request, message.epoch
            if message.after is not None:
                self._plan = message.after
            self._context.do(
                asked.EmitBarrier(self.run, self.attempt, message.epoch, message.before, message.after, message.holds)
            )
        else:  # so many were passed over that nothing here may remember them: a life later all begin behind the committed one
            self.on_broken(
                self.attempt, f"epoch {message.epoch} is begun, and none behind {self._committed.epoch} was committed"
            )

    @property
    def is_closed(self) -> bool:
        """Whether the register has said that the run has ended, and that was carried out here."""
        return self.phase is Phase.CLOSED

    @property
    def _has_source(self) -> bool:
        """Whether barriers begin here; to all others BEGIN only says that a change comes."""
        value = self.value
        return value is not None and any(
            each.role is InstanceRole.SOURCE for each in value.plan.at(self._context.me.node)
        )

    def on_ask(self, sender: Peer, message: wire.QueryPrepared) -> None:
        """Tell again what was prepared."""
        if self._is_mine(sender, message.attempt):
            self._leader = sender
            self._report_prepared(sender, message.epoch)
            self.handover_sender.repeat()

    def _report_prepared(self, to: Peer, above: int) -> None:
        for (epoch, _), answer in self._prepared.items():
            if epoch > above:
                self._context.send(to, answer)
        for answer in self._ended.values():
            self._context.send(to, answer)

    def on_prepared(self, event: PinnedInstancePrepared) -> None:
        """A source or sink that stays here has its part of a barrier on the disk."""
        if self._takes(event.checkpoint):
            self._prepare(event, event.saved, event.offset)

    def on_snapped(self, event: SnapshotTaken) -> None:
        """The element of a party that may move is on the local disk: now to its holders."""
        chain = self._chain_to(event)
        if not self._takes(event.checkpoint) or chain is None:
            return  # what it rests on is needed by nobody any more: the epoch is passed over
        config = self._context.config
        reachable = [peer for peer in self._context.candidates if self._context.can_reach(peer.node)]
        where = spread(self._context.me, reachable, event.length, config.m, config.k)
        snapshot = InstanceSnapshot(event.checkpoint, event.digest, event.length, where.m, where.replica_nodes)
        if event.after is not None and not event.has_ended:
            here = InstanceSnapshot(event.checkpoint, event.digest, event.length, where.m, ())
            self.handover_sender.hand_over(
                self.attempt, event.checkpoint.epoch, SavedState(event.instance, (*chain, here)), event.after
            )
        patience = config.ack_timeout_ns + event.length * config.slowest_ns
        self._context.set_timer((self.run, "save", event.instance, event.checkpoint), patience)

        def settled(saving: SnapshotReplication) -> None:
            self._on_replicated(event, saving, where.wanted)

        saving = SnapshotReplication(self._context, self.run, event.instance, snapshot, where, settled)
        if saving.outcome is ReplicationOutcome.SENDING:
            self._saving[event.instance, event.checkpoint] = saving

    def on_save_timeout(self, instance: InstanceId, checkpoint: CheckpointId) -> None:
        """`ack_timeout` has passed for an element."""
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
            if event.has_ended:
                # No later barrier will save it once more.
                self._again[event.instance, event.checkpoint] = event
                name = (self.run, "save", event.instance, event.checkpoint)
                self._context.set_timer(name, self._context.config.ack_timeout_ns)
            return
        snapshot = saving.snapshot
        if sum(1 for replica_node in snapshot.replica_nodes if replica_node) < wanted:
            self._context.observe(SnapshotDegraded(self.run, event.instance, snapshot.survives))
        self._prepare(event, SavedState(event.instance, (*before, snapshot)), event.offset)

    def _chain_to(self, event: SnapshotTaken) -> tuple[InstanceSnapshot, ...] | None:
        """What an element rests on; None when that is not kept, or the chain would be too long."""
        if not event.onto:
            return ()
        chain = () if self.value is None else self.value.chain_to(event.instance, event.onto)
        return chain if 0 < len(chain) < MAX_CHAIN else None

    def _takes(self, checkpoint: CheckpointId) -> bool:
        """Nothing of another life counts."""
        return checkpoint.attempt == self.attempt and self.phase in (Phase.READY, Phase.RUNNING)

    def _prepare(self, event: PinnedInstancePrepared | SnapshotTaken, saved: SavedState, offset: int) -> None:
        # An end is named by the epoch above the last barrier: its element must not replace that barrier's.
        epoch = event.checkpoint.epoch - event.has_ended
        answer = wire.Prepared(
            self.run,
            self.attempt,
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
            self._plan = event.after
            if not event.has_ended:
                self.handover_sender.hand_over(self.attempt, epoch, saved, event.after)
        if self._leader is not None:
            self._context.send(self._leader, answer)

    # ---- what is committed

    def on_sync(self, sender: Peer, message: wire.Sync) -> None:
        """Put logs on the disk."""
        if self._is_mine(sender, message.attempt):
            answer = wire.Synced(self.run, message.attempt, message.epoch)
            self._context.ask(
                lambda request: asked.SyncRunLogs(request, self.run, message.attempt),
                lambda _, reason: None if reason else self._context.send(sender, answer),
            )

    def on_committed(self, sender: Peer, message: wire.Committed) -> None:
        """The register has an epoch. A node that has only an old part of a sink hears of lives in this way."""
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
        elif self._is_over(value) or self._is_mine(sender, message.attempt):
            self._commit(sender, value)

    def _is_over(self, value: RegisterValue) -> bool:
        """The end needs no life: what a sink has to show is on its disk."""
        is_entering = self.phase in (Phase.STORING, Phase.ENTERING)
        return value.state is not RunState.RUNNING and value.attempt >= self.attempt and not is_entering

    def _commit(self, sender: Peer, value: RegisterValue) -> None:
        answer = wire.CommittedOk(self.run, value.attempt, value.committed)
        if value.committed <= self._committed:
            if value.state is RunState.FAILED:
                if self.value is not None or self.phase is Phase.OUT:
                    self.value = value  # nothing more is committed with it; who votes says the end
                if self.phase is Phase.OUT:
                    self.phase = Phase.CLOSED  # a later process: nothing of it runs here
            elif value.state is RunState.FINISHED and self.phase is not Phase.CLOSED:
                if self._committing > self._committed:
                    return  # it is said again
                self.value = value  # it was ended behind an epoch that is committed here
                self._notify_replica_nodes(value)
                self._close()
            elif (value.attempt, value.committed) == (self.attempt, self._committed) and self.phase is Phase.RUNNING:
                self.value = value  # it may name other holders
                self._update_repair()
            self._context.send(sender, answer)
        elif value.committed > self._committing:
            self.value, self._committing = value, value.committed
            self._context.ask(
                lambda request: asked.CommitCheckpoint(request, self.run, value.attempt, value),
                lambda _, reason: self._done(sender, value, answer, reason),
            )

    def _done(self, sender: Peer, value: RegisterValue, answer: wire.CommittedOk, reason: str) -> None:
        if value.attempt < self.attempt:
            return
        if reason:
            self._committing = self._committed
            return
        self._committed, self.committed_at = max(self._committed, value.committed), self._context.now
        self.generation_preparation.committed(value)
        self.handover_sender.forget()  # the value says it from now on
        epoch = self._committed.epoch
        self._prepared = {key: each for key, each in self._prepared.items() if key[0] > epoch}
        self._begins = {begun: each for begun, each in self._begins.items() if begun > epoch}
        self._context.send(sender, answer)
        self._notify_replica_nodes(value)
        self._update_repair()
        if value.state is not RunState.RUNNING and self.phase is not Phase.CLOSED:
            self._close()

    def _close(self) -> None:
        assert self.value is not None, "a value says that it has ended"
        self.phase = Phase.CLOSED
        self.fragment_repair.forget()
        self._context.do(asked.CloseRun(self.run, self.value.state.value))

    def _notify_replica_nodes(self, value: RegisterValue) -> None:
        """Holders of what was saved here hear what is needed of it; one that does not hear it hears the next word."""
        needed = value.needed
        mine = [each.instance for each in value.plan.at(self._context.me.node)]
        for instance in dict.fromkeys((*mine, *self._replica_nodes)):
            about = {at: snapshot for (whose, at), snapshot in needed.items() if whose == instance}
            now = {
                replica_node: None
                for snapshot in about.values()
                for replica_node in snapshot.replica_nodes
                if replica_node
            }
            is_over = value.state is not RunState.RUNNING
            message = wire.NeededFragments(self.run, value.attempt, instance, value.committed, tuple(about), is_over)
            for replica_node in {**self._replica_nodes.get(instance, {}), **now}:
                self._context.send(Peer(replica_node), message)
            self._replica_nodes[instance] = now
            if not now and instance not in mine:
                del self._replica_nodes[instance]

    # ---- fragments between epochs

    def _update_repair(self) -> None:
        """What is committed of what was saved here, and may need fragments that nobody has any more."""
        if self.value is None or self.phase is not Phase.RUNNING or self.value.state is not RunState.RUNNING:
            return
        mine = {each.instance: None for each in self.value.plan.at(self._context.me.node) if not each.is_pinned}
        snapshots = {
            (saved.instance, snapshot.checkpoint): snapshot
            for saved in self.value.saved
            if saved.instance in mine
            for snapshot in saved.chain
        }
        self.fragment_repair.update(self.attempt, snapshots)

    def _report_replaced(self, message: wire.FragmentsReplaced) -> None:
        if self._leader is not None:
            self._context.send(self._leader, message)

    def ask_held(self, replica_node: Peer) -> None:
        """A holder may be another process than before: what does it still have?"""
        value = self.value
        if value is None or self.phase is not Phase.RUNNING:
            return
        for instance in self.fragment_repair.instances(replica_node.node):
            needed = tuple(at for whose, at in value.needed if whose == instance)
            message = wire.NeededFragments(self.run, value.attempt, instance, value.committed, needed, asks=True)
            self._context.send(replica_node, message)
        self.fragment_repair.look()

    def violations(self) -> list[str]:
        """What must never be so."""
        found = [
            f"prepared in life {each.attempt}, not {self.attempt}"
            for each in self._prepared.values()
            if each.attempt != self.attempt
        ]
        if self._committed.attempt > self.attempt and not self.is_closed:  # the end needs no life, also on a new disk
            found.append(f"committed {self._committed} above life {self.attempt}")
        return found
