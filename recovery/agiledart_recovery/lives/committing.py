"""Epochs of one life, from BEGIN to COMMITTED: the coordinator's side.

| step | who moves it |
|---|---|
| 1 BEGIN(ℓ, e) to hosts of sources | `checkpoint_interval` after the last one, one at a time; a change: see below |
| 2 PREPARED(ℓ, e) of all parties | hosts; who does not answer is asked again |
| 3 SYNC(ℓ, e) to hosts of source logs, SYNCED | only where a merge by position has several sources, see below |
| 4 ACCEPT the value with (ℓ, e) | `Coordinator._commit`: here the epoch is committed |
| 5 COMMITTED(value), COMMITTED_OK | told until acknowledged |

A change is begun only when e - 1 is committed, nothing else is begun, and all had caught up. SYNC, because the snapshot of a merge
by position holds effects of rows behind a barrier: they must come again exactly alike.

Not complete within `epoch_timeout`: passed over. The awkward case: an epoch that carries a change must not be passed over, since
its senders use the new plan behind the barrier; not committed within `handover_timeout` it ends in a new life.
"""

import msgspec

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.desk import Desk
from agiledart_recovery.lives.epochs import Complete, Epochs
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, Run, Snapshot
from agiledart_recovery.wire.observations import EpochCommitted, EpochPassedOver
from agiledart_recovery.wire.value import Plan, Role, SinkEnd, State, Value


class Committing:
    """What a coordinator knows of the life that it coordinates.

    Attributes:
        took_ns: from BEGIN to the commit of the last epoch.
    """

    def __init__(self, desk: Desk, run: Run) -> None:
        self._desk, self._run = desk, run
        self.life = 0
        self.epochs = Epochs(0, Plan(()), 0)
        self._is_started = False
        self._began = desk.now
        self._open = 0
        self._carried: Plan | None = None
        self._wanted: Plan | None = None
        self._ready: dict[NodeId, None] = {}
        self._synced: dict[NodeId, None] = {}
        self._syncing = 0
        self._told: dict[NodeId, Snapshot] = {}
        self.took_ns = 0
        self._written: Complete | None = None

    def enter(self, value: Value) -> None:
        """The register says so; answers of before are of no use."""
        self.life = value.life
        self.epochs = Epochs(value.life, value.plan, value.committed.epoch)
        self._is_started = False
        self._open = self._syncing = 0
        self._carried = self._wanted = None
        self._ready, self._synced, self._told = {}, {}, {}

    def started(self, value: Value) -> None:
        """Everybody has entered the life."""
        self._is_started, self._began = True, self._desk.now

    def heard(self, sender: Peer, message: wire.ResetOk) -> None:
        """A host is in the life, and has prepared this."""
        self.epochs.begun = max(self.epochs.begun, message.begun)
        self._ready[sender.node] = None
        for answer in message.prepared:
            self.prepared(sender, answer)

    # ---- a change

    def want(self, value: Value, plan: Plan) -> None:
        """Instances are to move; their new hosts enter the life first, with nothing to do."""
        if self._is_move(value.plan, plan):
            self._wanted = plan

    def _is_move(self, old: Plan, new: Plan) -> bool:
        """The same parties, and who moves is of a later term: in one life no (stage, term, index) comes twice."""
        if len(old.assignments) != len(new.assignments):
            return False
        for before, after in zip(old.assignments, new.assignments, strict=True):
            same = (before.party.stage, before.party.index, before.role) == (
                after.party.stage,
                after.party.index,
                after.role,
            )
            if not same or (before != after and after.party.term <= before.party.term):
                return False
        return True

    def _prepare_change(self, value: Value, ballot: Ballot) -> None:
        if self._wanted is not None:
            for node, peer in self._wanted.hosts.items():
                if node not in value.plan.hosts and node not in self._ready:
                    self._desk.send(peer, wire.Reset(self._run, ballot, value))

    def _change_due(self) -> Plan | None:
        """The change that may be carried by the next barrier."""
        plan = self._wanted
        if plan is None or any(node not in self._ready for node in plan.hosts):
            return None
        alone = self.epochs.begun == self.epochs.committed
        return plan if alone and self.epochs.is_caught_up else None

    # ---- time

    def on_tick(self, value: Value, ballot: Ballot) -> str:
        """Begin an epoch, or look after the open one; returns why a new life is needed, if it is."""
        if not self._is_started:
            return ""
        config, age = self._desk.config, self._desk.now - self._began
        if self._open <= self.epochs.committed:
            self._prepare_change(value, ballot)
            change = self._change_due()
            if change is not None or age >= config.checkpoint_interval_ns:
                self._begin(value, change)
            return ""
        if self._carried is not None and age >= config.handover_timeout_ns:
            return f"the change at epoch {self._open} was not committed in time"
        if age >= config.epoch_timeout_ns:
            missing = tuple(each.party for each in self.epochs.missing(self._open))
            self._desk.observe(EpochPassedOver(self._run, self._open, missing))
            self._open = 0
            return ""
        self._ask_again(value)
        return ""

    def _begin(self, value: Value, change: Plan | None) -> None:
        self._open = self.epochs.begun = self.epochs.begun + 1
        self._began, self._carried, self._wanted = self._desk.now, change, None if change is not None else self._wanted
        self._send_begin(value)

    def _send_begin(self, value: Value) -> None:
        message = wire.Begin(self._run, self.life, self._open, value.plan.digest, self._carried)
        missing = {each.host.node: each.host for each in self.epochs.missing(self._open) if each.role is Role.SOURCE}
        for peer in missing.values():
            self._desk.send(peer, message)

    def _ask_again(self, value: Value) -> None:
        self._send_begin(value)
        # Everybody: a host all of whose parties have ended, and that was ended since, holds the others up and owes no answer.
        for peer in self.epochs.plan.hosts.values():
            self._desk.send(peer, wire.Ask(self._run, self.life, self.epochs.committed))
        if self._syncing:
            self._send_sync()

    # ---- answers

    def prepared(self, sender: Peer, message: wire.Prepared) -> bool:
        """A party's part of an epoch is safe; true when some epoch may be complete now."""
        parties = {each.party: each for each in self.epochs.plan.assignments}
        mine = parties.get(message.party)
        if mine is None or mine.host.node != sender.node or not self.epochs.take(message, parties):
            return False
        return self._is_started

    def synced(self, sender: Peer, message: wire.Synced) -> bool:
        """A host's logs are on its disk."""
        if message.life != self.life or message.epoch != self._syncing:
            return False
        self._synced[sender.node] = None
        return True

    def _must_sync(self, done: Complete) -> bool:
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
                self._desk.send(each.host, wire.Sync(self._run, self.life, self._syncing))

    # ---- the commit

    def next_value(self, value: Value) -> Value | None:
        """The value that commits the highest complete epoch, or None while there is none."""
        done = self.epochs.complete() if self._is_started else None
        if done is None or value.life != self.life or done.epoch <= value.committed.epoch or self._must_sync(done):
            return None
        self._written = done
        snapshot = Snapshot(self.life, done.epoch)
        parts = {end.part: end for end in value.parts}
        for each in self.epochs.plan.of(Role.SINK):
            answer = done.answers[each.party]
            end = SinkEnd(each.party.stage, each.party.index, each.host.node, snapshot, answer.offset)
            parts[end.part] = end
        return msgspec.structs.replace(
            value,
            plan=done.plan,
            committed=snapshot,
            parts=tuple(parts.values()),
            saved=tuple(answer.saved for answer in done.answers.values()),
            before=value.saved,
            state=State.FINISHED if done.is_last else State.RUNNING,
            outgoing=(),
        )

    def written(self, value: Value) -> bool:
        """The register says so; true when it is an epoch that was not known as committed."""
        if value.committed.epoch <= self.epochs.committed:
            return False
        done = self._written
        assert done is not None, value.committed
        assert done.epoch == value.committed.epoch, (done, value.committed)
        before = self.epochs.plan
        self.took_ns = self._desk.now - self._began
        self.epochs.settle(done)
        self._carried = None
        # A change that was asked for under another plan would undo this one.
        self._wanted = None if done.plan != before else self._wanted
        self._desk.observe(EpochCommitted(self._run, value.committed))
        return True

    def tell(self, value: Value) -> None:
        """COMMITTED to everybody who has not acknowledged it."""
        if not value.committed.epoch:
            return
        message = wire.Committed(self._run, value.life, value)
        for node, peer in value.nodes.items():
            if self._told.get(node) != value.committed and self._desk.can_reach(node):
                self._desk.send(peer, message)

    def all_told(self, value: Value) -> bool:
        """Whether everybody has acknowledged what is committed."""
        return not value.committed.epoch or all(self._told.get(node) == value.committed for node in value.nodes)

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """Sinks have written COMMIT there."""
        if message.life == self.life:
            self._told[sender.node] = message.committed
