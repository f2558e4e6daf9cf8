"""Change of stages to new generations: the coordinator's side of one change.

| step | trigger |
|---|---|
| IDLE | `want` → PREPARING, if the plan is valid and no other change is under way |
| PREPARING | new hosts enter the attempt; all hosts get PROPOSE_GENERATION, outside any epoch. All ready → CHECKPOINTING_FASTER |
| CHECKPOINTING_FASTER | ordinary epochs in a row. One took at most `quick_epoch`, or it was the third → the next may carry it |
| CARRIED | the next barrier carried it. Committed → done |
| PREPARING, CHECKPOINTING_FASTER | a host refuses or is lost, a timeout, a new attempt → *dropped*: nothing has changed |
| CARRIED | not committed in time, or any other failure → a new attempt: *rolled back* |

The register says that a change is running before its barrier is sent. So a coordinator that takes over refuses a second change,
and records the outcome of the first. The awkward case: after a take-over in the same attempt, no node knows whether the barrier
was sent. If it was, all instances name the new plan and the epoch commits it. Else the next epoch commits the old plan, and
with it that the change was dropped.

A host is ready when it has preloaded the committed state that it will take over. Each further epoch waits until all hosts have
preloaded the last one. An old instance hands over only what has changed since its last committed snapshot. So a key group
pauses for the rows since the last extra epoch, however large its state is. A host that makes progress has more time.

Source: scaling specification §8, steps 1 to 3 and 8.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import MAX_CHANGES, MAX_EXTRA_EPOCHS, MAX_REASON
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, RunId, Stamp
from agiledart_recovery.wire.observations import ChangeFinalised, ChangeMeasured
from agiledart_recovery.wire.register_value import ChangeOutcome, InstanceRole, Plan, RegisterValue, StageChange


class ChangeStep(Enum):
    """Step of a change; the module's head has the table."""

    IDLE = "idle"
    PREPARING = "preparing"
    CHECKPOINTING_FASTER = "checkpointing-faster"
    CARRIED = "carried"


def plan_fault(value: RegisterValue, after: Plan) -> str:
    """Return why a plan may not follow the one that the register names; empty when it may."""
    before = value.plan
    changed = [change.stage for change in after.changes]
    if not changed or len(dict.fromkeys(changed)) != len(changed):
        return "the new plan changes no stage, or changes one stage twice"
    if (before.edges, before.syncs) != (after.edges, after.syncs):
        return "the new plan connects the stages differently"
    if [assignment for assignment in before.assignments if assignment.instance.stage not in changed] != [
        assignment for assignment in after.assignments if assignment.instance.stage not in changed
    ]:
        return "the new plan changes a stage that it does not list as changed"
    for change in after.changes:
        old, new = before.stage(change.stage), after.stage(change.stage)
        generations = {assignment.instance.generation: None for assignment in old} | {
            earlier_change.generation: None
            for earlier_change in value.changes
            if earlier_change.name[0] == change.stage
        }
        fresh = all(
            assignment.instance.generation == change.generation for assignment in new
        ) and change.generation > max(generations, default=0)
        whole = [assignment.instance.index for assignment in new] == list(range(len(new))) and (len(old), len(new)) == (
            change.before,
            change.after,
        )
        if (
            not old
            or not new
            or not fresh
            or not whole
            or any(assignment.role is not InstanceRole.STAGE for assignment in (*old, *new))
        ):
            return f"{change.stage} can't take the generation {change.generation}"
    return ""


def with_changeover_pauses(value: RegisterValue, answers: Iterable[wire.Prepared]) -> RegisterValue:
    """Return the value with the longest pause of each finished change, as far as senders have reported it."""
    longest: dict[tuple[str, int], int] = {}
    for pause in (pause for answer in answers for pause in answer.changeover_pauses):
        longest[pause.stage, pause.generation] = max(
            pause.changeover_pause_ns, longest.get((pause.stage, pause.generation), 0)
        )
    if not longest:
        return value
    changes = tuple(
        msgspec.structs.replace(
            change, changeover_pause_ns=max(change.changeover_pause_ns, longest.get(change.name, 0))
        )
        if change.fate is ChangeOutcome.DONE
        else change
        for change in value.changes
    )
    return msgspec.structs.replace(value, changes=changes)


def next_generation(value: RegisterValue, stage: str) -> int:
    """Return a generation that no instance of a stage has had or was planned to have."""
    generations = [assignment.instance.generation for assignment in value.plan.stage(stage)]
    return 1 + max([*generations, *(change.generation for change in value.changes if change.stage == stage)])


def running(value: RegisterValue) -> tuple[StageChange, ...]:
    """Return the changes that the register names as running."""
    return tuple(change for change in value.changes if change.fate is ChangeOutcome.RUNNING)


class GenerationChange:
    """The one change of a run that may be under way.

    Attributes:
        plan: the plan that is valid when the change is done; empty: no change is under way.
        committed_at: when the last epoch was committed.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self.step, self.plan = ChangeStep.IDLE, _NO_PLAN
        self._attempt = 0
        self._since = self._deadline = self.committed_at = context.now
        self._before = _NO_PLAN
        self._ready: dict[NodeId, int | None] = {}  # the epoch that is preloaded; None: no preload there
        self._got: dict[NodeId, int] = {}
        self._extra = self._number = self._committed = self._bytes = 0
        self._pending_changes: dict[tuple[str, int], StageChange] = {}

    # ---- the request

    @property
    def age_ns(self) -> int:
        """Return for how long this coordinator's change has been under way, in nanoseconds; 0: there is none."""
        return self._context.now - self._since if self.step is not ChangeStep.IDLE else 0

    def want(self, value: RegisterValue, plan: Plan) -> str:
        """Start a change of stages to new generations. Return why not; empty: it is under way."""
        if self.step is not ChangeStep.IDLE or running(value):
            seconds = (self._context.now - self._since) / SECOND
            return f"{_describe(self.plan.changes or running(value))} is under way" + (
                f" since {seconds:.0f} s" if self.step is not ChangeStep.IDLE else ""
            )
        fault = plan_fault(value, plan)
        if fault:
            return fault
        self.step, self.plan, self._before, self._attempt = ChangeStep.PREPARING, plan, value.plan, value.attempt
        self._bytes = _bytes_of(value, plan)
        self._since, self._deadline = self._context.now, self._late()
        self._ready, self._got, self._extra, self._number = {}, {}, 0, self._number + 1
        self._committed = value.committed.epoch
        self._pending_changes |= {change.name: change for change in plan.changes}
        return ""

    @property
    def hosts(self) -> dict[NodeId, Peer]:
        """Return the hosts of both plans: senders, old hosts, new hosts, and those downstream."""
        return self._before.hosts | self.plan.hosts

    # ---- before the barrier

    def on_tick(self, value: RegisterValue, ballot: Ballot, entered: Iterable[NodeId], vain: str) -> None:
        """Send the proposal to hosts, and drop the change when it is late or pointless."""
        if self.step not in (ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER):
            return
        if vain:
            self.drop(vain)
            return
        if self._context.now >= self._deadline:
            names = [peer.name or node.short for node, peer in self.hosts.items() if self._is_late(node)]
            late = f"{', '.join(names)} were not ready" if names else "the stage did not catch up with its input"
            self.drop(f"{late} in {self._timeout_ns // SECOND} s")
            return
        stamp = Stamp(ballot, self._number)
        for node, peer in self.hosts.items():
            if not self._context.can_reach(node):
                self.drop(f"{peer.name or node.short} was lost")
                return
            if node not in entered:
                self._context.send(peer, wire.Reset(self._run, ballot, value))
            else:
                # Hosts that are ready get it, too: a host that no longer receives it drops its preparation.
                self._context.send(
                    peer, wire.ProposeGeneration(self._run, value.attempt, stamp, self._before, self.plan)
                )

    def on_ready(self, sender: Peer, message: wire.GenerationReady) -> None:
        """Note that a host is ready, or cannot be."""
        if not self._is_about_this(sender, message.attempt, message.digest):
            return
        if message.reason:
            self.drop(message.reason)
            return
        self._ready[sender.node] = message.epoch if message.builds else None
        if self.step is ChangeStep.PREPARING and all(node in self._ready for node in self.hosts):
            self.step, self._deadline = ChangeStep.CHECKPOINTING_FASTER, self._late()

    def on_progress(self, sender: Peer, message: wire.GenerationProgress) -> None:
        """Note a host's progress; a host that makes progress has more time."""
        is_farther = message.got > self._got.get(sender.node, 0)  # a later preload of the same bytes is no progress
        if is_farther and self._is_about_this(sender, message.attempt, message.digest):
            self._got[sender.node], self._deadline = message.got, self._late()

    def _is_about_this(self, sender: Peer, attempt: int, digest: bytes) -> bool:
        is_asked = self.step in (ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER) and sender.node in self.hosts
        return is_asked and (attempt, digest) == (self._attempt, self.plan.digest)

    def _is_late(self, node: NodeId) -> bool:
        """Return whether a host is not ready, or has not preloaded what is committed."""
        built = self._ready.get(node, 0)
        return node not in self._ready or (built is not None and built < self._committed)

    def _late(self) -> Instant:
        return Instant(self._context.now + self._timeout_ns)

    @property
    def _timeout_ns(self) -> int:
        """Timeout for hosts without progress. It grows with the state's size, because hosts do not report how far they have
        built it.
        """
        return self._context.config.prepare_timeout_ns + self._bytes * self._context.config.slowest_ns

    @property
    def wants_epoch(self) -> bool:
        """Return whether an epoch is to begin at once, because all hosts have preloaded the last one; `is_due` says whether it
        may carry the change.
        """
        return self.step is ChangeStep.CHECKPOINTING_FASTER and not any(self._is_late(node) for node in self.hosts)

    @property
    def listeners(self) -> dict[NodeId, Peer]:
        """Return the nodes that must receive commits, also where nothing of the run runs yet."""
        return self.hosts if self.step in (ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER) else {}

    def is_due(self, value: RegisterValue, took_ns: int) -> bool:
        """Return whether the next barrier may carry the change: the last epoch was short enough, and the register names the
        change.
        """
        enough = self._extra and (took_ns <= self._context.config.quick_epoch_ns or self._extra >= MAX_EXTRA_EPOCHS)
        return self.wants_epoch and bool(enough) and self.with_pending_changes(value) == value

    def carry(self) -> Plan:
        """Return the plan for the barrier that goes out now; from here the change is done or rolled back."""
        self.step = ChangeStep.CARRIED
        return self.plan

    # ---- what becomes of it

    def drop(self, why: str) -> None:
        """Drop the change. Nothing has changed; hosts may release what they prepared."""
        for peer in self.hosts.values():
            self._context.send(peer, wire.GenerationDropped(self._run, self._attempt, self.plan.digest))
        self._end(ChangeOutcome.DROPPED, why)

    def broken(self, why: str) -> None:
        """End the change because its attempt ends, for a reason of its own or because the change was not committed."""
        if self.step is ChangeStep.CARRIED:
            self._end(ChangeOutcome.ROLLED_BACK, why)
        elif self.step is not ChangeStep.IDLE:
            self.drop(why)

    def forget(self) -> None:
        """Forget the change. Another node coordinates and finds in the register what was under way."""
        self.step, self.plan, self._pending_changes = ChangeStep.IDLE, _NO_PLAN, {}

    def _end(self, fate: ChangeOutcome, why: str = "") -> None:
        took = self._context.now - self._since
        for change in self.plan.changes:
            self._pending_changes[change.name] = msgspec.structs.replace(
                change, fate=fate, why=why[:MAX_REASON], took_ns=took
            )
        self.step, self.plan = ChangeStep.IDLE, _NO_PLAN

    # ---- what the register is to say

    def with_pending_changes(self, value: RegisterValue) -> RegisterValue:
        """Return the value with the changes that this coordinator has still to record."""
        changes = {change.name: change for change in value.changes} | self._pending_changes
        return msgspec.structs.replace(value, changes=tuple(changes.values())[-MAX_CHANGES:])

    def in_next_attempt(self, value: RegisterValue, why: str) -> RegisterValue:
        """Return the value for a new attempt, in which every running change is ended, whichever coordinator began it."""
        self.broken(why)
        for change in running(self.with_pending_changes(value)):
            self._pending_changes[change.name] = msgspec.structs.replace(
                change, fate=ChangeOutcome.ROLLED_BACK, why=why[:MAX_REASON]
            )
        return self.with_pending_changes(value)

    def in_commit(self, value: RegisterValue, plan: Plan, *, is_last: bool) -> RegisterValue:
        """Return the value for a commit under a plan: the plan's changes are done, other running changes are dropped."""
        changes = {change.name: change for change in self.with_pending_changes(value).changes}
        done = {change.name: change for change in plan.changes}
        took = self._context.now - self._since if self.plan == plan else 0
        mine = [change.name for change in self.plan.changes]
        for name, change in changes.items():
            if change.fate is not ChangeOutcome.RUNNING:
                continue
            if name in done:
                changes[name] = msgspec.structs.replace(change, fate=ChangeOutcome.DONE, took_ns=took)
            elif is_last or (name in mine and self.step is ChangeStep.CARRIED):
                changes[name] = msgspec.structs.replace(change, fate=ChangeOutcome.DROPPED, why="its input had ended")
            elif name not in mine:
                changes[name] = msgspec.structs.replace(
                    change, fate=ChangeOutcome.DROPPED, why="its coordinator was lost"
                )
        return msgspec.structs.replace(value, changes=tuple(changes.values())[-MAX_CHANGES:])

    def written(self, before: RegisterValue | None, value: RegisterValue) -> None:
        """Note that the register holds this value, and report finished changes."""
        known = {change.name: change for change in before.changes} if before is not None else {}
        for change in value.changes:
            was = known.get(change.name)
            if change.fate is not ChangeOutcome.RUNNING and (was is None or was.fate is ChangeOutcome.RUNNING):
                self._context.observe(ChangeFinalised(self._run, change))
            if was is not None and change.changeover_pause_ns > was.changeover_pause_ns:
                self._context.observe(ChangeMeasured(self._run, change))
            if self._pending_changes.get(change.name, change) == change or change.fate is not ChangeOutcome.RUNNING:
                self._pending_changes.pop(change.name, None)

    def committed(self, value: RegisterValue, *, is_change: bool) -> None:
        """Note that an epoch is committed."""
        self._committed, self.committed_at = value.committed.epoch, self._context.now
        if self.step is not ChangeStep.IDLE and value.plan == self.plan:
            self.step, self.plan = ChangeStep.IDLE, _NO_PLAN
        elif self.step is not ChangeStep.IDLE and is_change:
            self.drop("another change was committed")
        elif self.step is ChangeStep.CARRIED:
            self.drop("its input had ended")
        elif self.step is ChangeStep.CHECKPOINTING_FASTER:
            self._extra += 1
            self._bytes = _bytes_of(value, self.plan)
            if (
                self._extra <= MAX_EXTRA_EPOCHS
            ):  # it makes progress; behind the last extra epoch only the preload is waited for
                self._deadline, self._got = self._late(), {}


_NO_PLAN = Plan(())


def _describe(changes: Iterable[StageChange]) -> str:
    return " and ".join(f"{change.kind or 'a change'} of {change.stage}" for change in changes)


def _bytes_of(value: RegisterValue, plan: Plan) -> int:
    """Return the bytes of saved state of the stages that a plan changes."""
    stages = [change.stage for change in plan.changes]
    return sum(snapshot.length for saved in value.saved if saved.instance.stage in stages for snapshot in saved.chain)
