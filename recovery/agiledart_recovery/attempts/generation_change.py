"""A stage takes a new term: the coordinator's side of one change.

| step | who moves it |
|---|---|
| IDLE | `want` → PREPARING, if the plan is sound and nothing else is under way |
| PREPARING | new hosts enter the life; all are told PREPARE_TERM, outside any epoch. All are ready → HASTENING |
| HASTENING | ordinary epochs, one after the other. One took at most `quick_epoch`, or it was the third → the next may carry it |
| CARRIED | the next barrier carried it. Committed → done |
| PREPARING, HASTENING | a host refuses or is lost, the time is over, a new life → *let go*: nothing has changed |
| CARRIED | not committed in time, or anything wrong → a new life: *rolled back* |

The register says that a change runs before its barrier is sent, so a coordinator that takes over tells who comes second, and
notes what became of it. The awkward case: after a take-over in the same life nobody knows whether the barrier was sent. If it was,
all name the new plan and the epoch commits it; else the next epoch commits the old one, and with it that the change was let go.

Ready is who has built what is committed of the state that it will take over; each further epoch waits until the last one is, too.
What an old instance hands over says what has changed since its last committed element, which the new ones have built. So a group
stands still for what came since the last extra epoch, whatever its state weighs. A host that gets farther has more time.

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
    """See the module."""

    IDLE = "idle"
    PREPARING = "preparing"
    CHECKPOINTING_FASTER = "hastening"
    CARRIED = "carried"


def plan_fault(value: RegisterValue, after: Plan) -> str:
    """Why a plan may not follow the one that the register names; empty when it may."""
    before = value.plan
    changed = [change.stage for change in after.changes]
    if not changed or len(dict.fromkeys(changed)) != len(changed):
        return "it changes nothing, or a stage twice"
    if (before.edges, before.syncs) != (after.edges, after.syncs):
        return "its stages are joined in another way"
    if [each for each in before.assignments if each.instance.stage not in changed] != [
        each for each in after.assignments if each.instance.stage not in changed
    ]:
        return "it changes a stage without a word"
    for change in after.changes:
        old, new = before.stage(change.stage), after.stage(change.stage)
        generations = {each.instance.generation: None for each in old} | {
            one.generation: None for one in value.changes if one.name[0] == change.stage
        }
        fresh = all(each.instance.generation == change.generation for each in new) and change.generation > max(
            generations, default=0
        )
        whole = [each.instance.index for each in new] == list(range(len(new))) and (len(old), len(new)) == (
            change.before,
            change.after,
        )
        if (
            not old
            or not new
            or not fresh
            or not whole
            or any(each.role is not InstanceRole.STAGE for each in (*old, *new))
        ):
            return f"{change.stage} can't take the term {change.generation}"
    return ""


def with_changeover_pauses(value: RegisterValue, answers: Iterable[wire.Prepared]) -> RegisterValue:
    """The value with what senders say of changes that are done: the longest gap of each, as far as they have told."""
    longest: dict[tuple[str, int], int] = {}
    for one in (gap for answer in answers for gap in answer.changeover_pauses):
        longest[one.stage, one.generation] = max(one.changeover_pause_ns, longest.get((one.stage, one.generation), 0))
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
    """A term that no instance of a stage has had, and none was to have."""
    generations = [each.instance.generation for each in value.plan.stage(stage)]
    return 1 + max([*generations, *(change.generation for change in value.changes if change.stage == stage)])


def running(value: RegisterValue) -> tuple[StageChange, ...]:
    """What the register says is under way."""
    return tuple(change for change in value.changes if change.fate is ChangeOutcome.RUNNING)


class GenerationChange:
    """The one change of a run that may be under way.

    Attributes:
        plan: what holds when it is done; empty: nothing is under way.
        committed_at: when the last epoch was.
    """

    def __init__(self, context: RecoveryContext, run: RunId) -> None:
        self._context, self._run = context, run
        self.step, self.plan = ChangeStep.IDLE, _NO_PLAN
        self._attempt = 0
        self._since = self._deadline = self.committed_at = context.now
        self._before = _NO_PLAN
        self._ready: dict[NodeId, int | None] = {}  # the epoch that is built there; None: nothing is to be built
        self._got: dict[NodeId, int] = {}
        self._extra = self._number = self._committed = self._bytes = 0
        self._pending_changes: dict[tuple[str, int], StageChange] = {}

    # ---- the request

    @property
    def age_ns(self) -> int:
        """For how long the change of this coordinator has been under way; 0: there is none."""
        return self._context.now - self._since if self.step is not ChangeStep.IDLE else 0

    def want(self, value: RegisterValue, plan: Plan) -> str:
        """Stages are to take new terms. Returns why not; empty: it is under way."""
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
        """Whom it concerns: senders, old places, new places, and who is downstream of them."""
        return self._before.hosts | self.plan.hosts

    # ---- before the barrier

    def on_tick(self, value: RegisterValue, ballot: Ballot, entered: Iterable[NodeId], vain: str) -> None:
        """Tell whoever is not ready yet, and look at what is late, or in vain."""
        if self.step not in (ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER):
            return
        if vain:
            self.drop(vain)
            return
        if self._context.now >= self._deadline:
            names = [peer.name or node.short for node, peer in self.hosts.items() if self._is_late(node)]
            late = f"{', '.join(names)} did not get ready" if names else "the stage did not catch up with its input"
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
                # Also whoever is ready: a host that does not hear of it any more lets go.
                self._context.send(
                    peer, wire.ProposeGeneration(self._run, value.attempt, stamp, self._before, self.plan)
                )

    def on_ready(self, sender: Peer, message: wire.GenerationReady) -> None:
        """A host has what it needs, or can't have it."""
        if not self._is_about_this(sender, message.attempt, message.digest):
            return
        if message.reason:
            self.drop(message.reason)
            return
        self._ready[sender.node] = message.epoch if message.builds else None
        if self.step is ChangeStep.PREPARING and all(node in self._ready for node in self.hosts):
            self.step, self._deadline = ChangeStep.CHECKPOINTING_FASTER, self._late()

    def on_progress(self, sender: Peer, message: wire.GenerationProgress) -> None:
        """A host is on its way: who gets farther has more time."""
        is_farther = message.got > self._got.get(sender.node, 0)  # the same bytes of a later build are no way farther
        if is_farther and self._is_about_this(sender, message.attempt, message.digest):
            self._got[sender.node], self._deadline = message.got, self._late()

    def _is_about_this(self, sender: Peer, attempt: int, digest: bytes) -> bool:
        is_asked = self.step in (ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER) and sender.node in self.hosts
        return is_asked and (attempt, digest) == (self._attempt, self.plan.digest)

    def _is_late(self, node: NodeId) -> bool:
        """Is somebody not ready, or has not built what is committed?"""
        built = self._ready.get(node, 0)
        return node not in self._ready or (built is not None and built < self._committed)

    def _late(self) -> Instant:
        return Instant(self._context.now + self._timeout_ns)

    @property
    def _timeout_ns(self) -> int:
        """For who stands still; the longer, the more is to be built of what was fetched, since nobody tells how far that is."""
        return self._context.config.prepare_timeout_ns + self._bytes * self._context.config.slowest_ns

    @property
    def wants_epoch(self) -> bool:
        """Whether an epoch is to begin at once; with `is_due`, the one that carries the change. The last one must be built."""
        return self.step is ChangeStep.CHECKPOINTING_FASTER and not any(self._is_late(node) for node in self.hosts)

    @property
    def listeners(self) -> dict[NodeId, Peer]:
        """Who is to hear what is committed, also where nothing of the run is yet."""
        return self.hosts if self.step in (ChangeStep.PREPARING, ChangeStep.CHECKPOINTING_FASTER) else {}

    def is_due(self, value: RegisterValue, took_ns: int) -> bool:
        """Whether the next barrier may carry it, as far as the last epoch was short enough, and the register knows."""
        enough = self._extra and (took_ns <= self._context.config.quick_epoch_ns or self._extra >= MAX_EXTRA_EPOCHS)
        return self.wants_epoch and bool(enough) and self.with_pending_changes(value) == value

    def carry(self) -> Plan:
        """Its barrier goes out: from now on it is done or rolled back."""
        self.step = ChangeStep.CARRIED
        return self.plan

    # ---- what becomes of it

    def drop(self, why: str) -> None:
        """Nothing has changed; what was made ready may go."""
        for peer in self.hosts.values():
            self._context.send(peer, wire.GenerationDropped(self._run, self._attempt, self.plan.digest))
        self._end(ChangeOutcome.DROPPED, why)

    def broken(self, why: str) -> None:
        """The life ends, for a reason of its own or because the change was not committed."""
        if self.step is ChangeStep.CARRIED:
            self._end(ChangeOutcome.ROLLED_BACK, why)
        elif self.step is not ChangeStep.IDLE:
            self.drop(why)

    def forget(self) -> None:
        """Somebody else coordinates: it finds in the register what was under way."""
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
        """The value with what this coordinator has to say of changes."""
        changes = {change.name: change for change in value.changes} | self._pending_changes
        return msgspec.structs.replace(value, changes=tuple(changes.values())[-MAX_CHANGES:])

    def in_next_attempt(self, value: RegisterValue, why: str) -> RegisterValue:
        """A new life ends what is under way, whoever began it."""
        self.broken(why)
        for change in running(self.with_pending_changes(value)):
            self._pending_changes[change.name] = msgspec.structs.replace(
                change, fate=ChangeOutcome.ROLLED_BACK, why=why[:MAX_REASON]
            )
        return self.with_pending_changes(value)

    def in_commit(self, value: RegisterValue, plan: Plan, *, is_last: bool) -> RegisterValue:
        """An epoch is to be committed, behind which a plan holds: what it changes is done, what it should have changed is not."""
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
        """The register says so."""
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
        """An epoch is committed."""
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
            ):  # it gets on; behind the last of them nothing but what is built is waited for
                self._deadline, self._got = self._late(), {}


_NO_PLAN = Plan(())


def _describe(changes: Iterable[StageChange]) -> str:
    return " and ".join(f"{change.kind or 'a change'} of {change.stage}" for change in changes)


def _bytes_of(value: RegisterValue, plan: Plan) -> int:
    """What the register has of the stages that a plan changes."""
    stages = [change.stage for change in plan.changes]
    return sum(snapshot.length for saved in value.saved if saved.instance.stage in stages for snapshot in saved.chain)
