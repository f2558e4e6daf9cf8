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
from agiledart_recovery.desk import Desk
from agiledart_recovery.lives.changing import Changing, Step, with_gaps
from agiledart_recovery.lives.epochs import Complete, Epochs
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, Run, Snapshot
from agiledart_recovery.wire.observations import EpochCommitted, EpochPassedOver
from agiledart_recovery.wire.value import Plan, Role, SinkEnd, State, Value

SOONEST_NS: Final = SECOND
"""Between two epochs, however often somebody asks for one."""


MOST_DOUBLED: Final = 2
"""So often the time of an epoch is doubled, while none is committed."""

MOST_INTERVALS = 3
"""For so long no epoch begins while a change is made ready, at the most."""


class Committing:
    """What a coordinator knows of the life that it coordinates.

    Attributes:
        took_ns: from BEGIN to the commit of the last epoch.
        pause_ns: for so long rows of an instance had to wait at once for it, at the most.
        held: the committed epoch behind which nothing was read; None while there is none in this life.
        is_held: such an epoch is wanted, or there.
    """

    def __init__(self, desk: Desk, run: Run) -> None:
        self._desk, self._run = desk, run
        self.life = 0
        self.epochs = Epochs(0, Plan(()), 0)
        self._is_started = self._is_wanted = False
        self._began = desk.now
        self._open = self._passed = 0
        self.changing = Changing(desk, run)
        self._ready: dict[NodeId, None] = {}
        self._synced: dict[NodeId, None] = {}
        self._syncing = 0
        self._carried: Plan | None = None
        self._told: dict[NodeId, Snapshot] = {}
        self._former: dict[NodeId, tuple[Peer, int]] = {}
        self.took_ns = self.pause_ns = 0
        self._written: Complete | None = None
        self.held: Snapshot | None = None
        self.is_held, self._held_from = False, 0

    @property
    def has_request(self) -> bool:
        """Whether something is under way that another coordinator would not know of: a change, or a stop that keeps the state."""
        return self.is_held or self.changing.step is not Step.IDLE

    def enter(self, value: Value) -> None:
        """The register says so; answers of before are of no use."""
        self.life = value.life
        self.epochs = Epochs(value.life, value.plan, value.committed.epoch)
        self._is_started = False
        self._open = self._syncing = self._passed = 0
        self.changing.forget()
        self._ready, self._synced, self._told, self._former = {}, {}, {}, {}
        self.held, self.is_held, self._held_from = None, False, 0

    def started(self, value: Value) -> None:
        """Everybody has entered the life."""
        self._is_started, self._began = True, self._desk.now

    def heard(self, sender: Peer, message: wire.ResetOk) -> None:
        """A host is in the life, and has prepared this."""
        self.epochs.begun = max(self.epochs.begun, message.begun)
        self._ready[sender.node] = None
        for answer in message.prepared:
            self.prepared(sender, answer)

    # ---- time

    def on_tick(self, value: Value, ballot: Ballot) -> str:
        """Begin an epoch, or look after the open one; returns why a new life is needed, if it is."""
        if not self._is_started:
            return ""
        config, age = self._desk.config, self._desk.now - self._began
        if self.epochs.dead_end:
            return self.epochs.dead_end
        ended = self.epochs.ended_stage(self.changing.plan)
        self.changing.on_tick(value, ballot, self._ready, f"{ended} has come to its end" if ended else "")
        if self._open <= self.epochs.committed:
            if self.held is not None:
                return ""
            if self.carries_next(value):
                self._begin(value, self.changing.carry())
            elif self.is_held or self._hastens(value) or self._is_time():
                self._begin(value, None)
            return ""
        if self.changing.step is Step.CARRIED and age >= config.handover_timeout_ns:
            return f"the change at epoch {self._open} was not committed in time"
        if age >= config.epoch_timeout_ns << min(self._passed, MOST_DOUBLED):
            missing = tuple(each.party for each in self.epochs.missing(self._open))
            self._desk.observe(EpochPassedOver(self._run, self._open, missing))
            self._open, self._passed = 0, self._passed + 1
            return ""
        self._ask_again(value)
        return ""

    def carries_next(self, value: Value) -> bool:
        """Whether the next tick begins the epoch that carries a change."""
        alone = self.epochs.begun == self.epochs.committed and self.epochs.is_caught_up
        return alone and self._hastens(value) and self.changing.is_due(value, self.took_ns)

    def _hastens(self, value: Value) -> bool:
        """Whether a change begins an epoch with the next tick: none is open, what is committed is built, and everybody whom it
        concerns knows that it is, for what is handed over rests on it.
        """
        is_open = self._open > self.epochs.committed
        if is_open or not self._is_started or self.held is not None or not self.changing.wants_epoch:
            return False
        has_heard = all(self._told.get(node) == value.committed for node in self.changing.listeners)
        return has_heard or not value.committed.epoch

    def want_epoch(self) -> None:
        """Somebody does not want to wait for the next epoch."""
        self._is_wanted = True

    def hold(self) -> None:
        """From the next epoch on nothing more is to be read in this life."""
        self.is_held = True

    def _is_time(self) -> bool:
        """Whether an epoch is due by itself."""
        began = self._began
        if self.changing.step is Step.HASTENING:
            # The next epoch waits until the last one is built and known, however long that one took: another would begin it anew.
            began = max(began, self.changing.committed_at)
        return self._desk.now - began >= self.interval_ns()

    def interval_ns(self) -> int:
        """How long after one epoch the next begins by itself, as it is now."""
        usual = self._desk.config.checkpoint_interval_ns
        if self.changing.step is Step.HASTENING:
            usual *= MOST_INTERVALS
        return min(usual, SOONEST_NS) if self._is_wanted else usual

    def _begin(self, value: Value, change: Plan | None) -> None:
        self._carried, self._is_wanted = change, False
        self._open = self.epochs.begun = self.epochs.begun + 1
        if self.is_held:
            self._held_from = self._held_from or self._open
        self._began = self._desk.now
        self._send_begin(value)

    def _send_begin(self, value: Value) -> None:
        holds = 0 < self._held_from <= self._open
        message = wire.Begin(self._run, self.life, self._open, value.plan.digest, self._carried, holds)
        missing = self.epochs.missing(self._open)
        # Of a change everybody is told: a merge whose input stands at the barrier needs room for the rows of the others.
        told = {each.host.node: each.host for each in missing if each.role is Role.SOURCE or self._carried is not None}
        for peer in told.values():
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
            with_gaps(self.changing.in_commit(value, done.plan, is_last=done.is_last), done.answers.values()),
            plan=done.plan,
            committed=snapshot,
            parts=tuple(parts.values()),
            saved=tuple(value.with_known(answer.saved) for answer in done.answers.values()),
            before=value.saved,
            gone_back=None,
            earlier=self._way_back(value, done.plan),
            state=State.FINISHED if done.is_last else State.RUNNING,
            reason="" if done.is_last else value.reason,  # what a life could not bring back is no reason for an end
            outgoing=(),
        )

    def _way_back(self, value: Value, plan: Plan) -> Snapshot | None:
        """The epoch before, if the run may go on from there when the next one is committed.

        There is none behind a change: what was saved before it is of other instances, which did not stand at one frontier. Nor
        where a source may have moved since, with whose log it went. Nor to the beginning: a source may begin elsewhere each time.
        """
        has_moved = value.at.life != self.life and any(not each.is_pinned for each in plan.of(Role.SOURCE))
        if not plan.may_go_back or not value.committed.epoch or plan != value.plan or has_moved:
            return None
        return value.at

    def written(self, value: Value) -> bool:
        """The register says so; true when it is an epoch that was not known as committed."""
        if value.committed.epoch <= self.epochs.committed:
            return False
        done = self._written
        assert done is not None, value.committed
        assert done.epoch == value.committed.epoch, (done, value.committed)
        before = self.epochs.plan
        self.took_ns, self._passed = self._desk.now - self._began, 0
        self.pause_ns = max((each.pause_ns for each in done.answers.values() if not each.has_ended), default=0)
        self.epochs.settle(done)
        if 0 < self._held_from < done.epoch:
            self.held = value.committed
        if done.plan != before:
            # Who runs nothing any more hears on: holders of what it saved take only its word for what is not needed.
            self._former |= {node: (peer, done.epoch + 2) for node, peer in before.hosts.items()}
        self.changing.committed(value, is_change=done.plan != before)
        self._desk.observe(EpochCommitted(self._run, value.committed))
        return True

    def tell(self, value: Value) -> None:
        """COMMITTED to everybody who has not acknowledged it."""
        if not value.committed.epoch:
            return
        message = wire.Committed(self._run, value.life, value)
        former = {node: peer for node, (peer, until) in self._former.items() if value.committed.epoch <= until}
        coming = {node: peer for node, peer in self.changing.listeners.items() if node in self._ready}
        for node, peer in (former | coming | value.nodes).items():
            if self._told.get(node) != value.committed and self._desk.can_reach(node):
                self._desk.send(peer, message)

    def concerns(self, node: NodeId) -> bool:
        """Whether it hosts something of an epoch that is open, or of what was, or may come to be."""
        return node in self.epochs.plan.hosts or node in self.changing.hosts or node in self._former

    def all_told(self, value: Value) -> bool:
        """Whether everybody has acknowledged what is committed. Nobody waits for who cannot be reached when the run has failed, or
        when that one only has an old part of a sink.
        """
        hosts = {} if value.state is State.FAILED else value.plan.hosts
        waited_for = [node for node in value.nodes if node in hosts or self._desk.can_reach(node)]
        return not value.committed.epoch or all(self._told.get(node) == value.committed for node in waited_for)

    def on_committed_ok(self, sender: Peer, message: wire.CommittedOk) -> None:
        """Sinks have written COMMIT there."""
        if message.life == self.life:
            self._told[sender.node] = message.committed
