"""Preparation on one host for a generation that may come: capacity, executors, code, links and preloaded state.

The committed state that new instances will take over is built before it is needed. An instance begins when it is handed over,
not before.

    made     capacity, executors, code and links are there; a host that preloads nothing is ready
    built    the committed epoch's state of the old instances is built: ready, as of that epoch
    behind   a later epoch is committed: its snapshots are built, too, and the host reports ready again

The coordinator repeats its proposal until the barrier is sent. A host that no longer receives it drops the preparation by
itself: the coordinator may have died, and its message that the change was dropped may be lost. What has begun is not ended
here: a commit or a new attempt decides.
"""

from collections.abc import Callable
from typing import Protocol

from agiledart_kernel.peer import Peer
from agiledart_recovery.limits import MAX_REASON
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import InstanceId, RunId, Stamp
from agiledart_recovery.wire.observations import MessageIgnored
from agiledart_recovery.wire.register_value import Plan, RegisterValue, SavedState


class AttemptState(Protocol):
    """The part of a participant that a preparation needs."""

    attempt: int
    value: RegisterValue | None

    @property
    def is_in_attempt(self) -> bool:
        """Return whether this host has entered the attempt and it continues."""
        ...

    def on_broken(self, attempt: int, reason: str) -> None:
        """Report that the attempt cannot continue here."""
        ...


class GenerationPreparation:
    """The plan that this host prepares for, if there is one."""

    def __init__(self, context: RecoveryContext, run: RunId, part: AttemptState) -> None:
        self._context, self._run, self._part = context, run, part
        self._plan: Plan | None = None
        self._digest = b""
        self._before: Plan | None = None
        self._is_made = self._is_building = self._is_committed = False
        self._built: int | None = None
        self._coordinator: Peer | None = None
        self._taken: dict[InstanceId, bool] = {}
        self._stamp = Stamp()
        self._known: dict[InstanceId, None] = {}
        self._last_received_at = context.now

    @property
    def plan(self) -> Plan | None:
        """Return the plan that this host prepares for."""
        return self._plan

    # ---- before the barrier

    def on_prepare(self, sender: Peer, message: wire.ProposeGeneration) -> None:
        """Prepare for a plan, or report that all is ready."""
        if message.attempt != self._part.attempt or not self._part.is_in_attempt:
            return  # the coordinator repeats it
        if message.stamp < self._stamp:
            return  # a later change has been proposed since
        self._stamp, self._last_received_at = message.stamp, self._context.now
        if self._is_made and message.after.digest == self._digest:
            self._coordinator = sender
            self._report_ready()
        elif message.before.digest == self._digest:
            return  # the last plan is committed, but an old instance has not handed over here yet: finish that
        elif message.after.digest != self._digest:
            self.drop()
            self._make_ready(sender, message)

    def _make_ready(self, sender: Peer, message: wire.ProposeGeneration) -> None:
        me, after, attempt = self._context.me, message.after, message.attempt
        self._plan, self._digest, self._before, self._coordinator = after, after.digest, message.before, sender
        planned = after.hosts.get(me.node)
        if planned is not None and planned.incarnation != me.incarnation:
            self._refuse(f"{me.name or me.node.short} was restarted since the change was planned")
            return
        mine = tuple(assignment for assignment in after.at(me.node) if assignment.instance.stage in self._new_stages)
        self._context.set_timer((self._run, "term", self._digest), self._timeout_ns)
        self._context.ask(
            self._run,
            lambda request: asked.MakeGenerationReady(request, self._run, attempt, message.before, after, mine),
            self._if_current(attempt, self._made),
        )

    def _made(self, reason: str) -> None:
        if reason:
            self._refuse(reason)
            return
        self._is_made = True
        self._build()
        self._report_ready()

    def _refuse(self, reason: str) -> None:
        if self._coordinator is not None:
            answer = wire.GenerationReady(self._run, self._part.attempt, self._digest, reason[:MAX_REASON])
            self._context.send(self._coordinator, answer)
        self.drop()

    def _report_ready(self) -> None:
        """Report ready; stay silent while the state that was committed at that time is still being built."""
        builds = bool(self._new_stages)
        if self._coordinator is not None and (not builds or self._built is not None):
            about = (self._run, self._part.attempt, self._digest)
            self._context.send(self._coordinator, wire.GenerationReady(*about, builds=builds, epoch=self._built or 0))

    @property
    def _new_stages(self) -> list[str]:
        """Return the stages that take a new generation and will have instances here."""
        if self._plan is None:
            return []
        here = [assignment.instance.stage for assignment in self._plan.at(self._context.me.node)]
        return [change.stage for change in self._plan.changes if change.stage in here]

    def _build(self) -> None:
        """Preload the last committed epoch's state of the old instances; do nothing while a preload is running."""
        value, before, after = self._part.value, self._before, self._plan
        if value is None or before is None or after is None or not self._is_made or self._is_committed:
            return
        epoch, attempt = value.committed.epoch, self._part.attempt
        if self._is_building or self._built == epoch or not self._new_stages:
            return
        old = {
            assignment.instance: None
            for assignment in before.assignments
            if assignment.instance.stage in self._new_stages
        }
        saved = tuple(saved_state for saved_state in value.saved if saved_state.instance in old and saved_state.chain)
        if not saved:
            self._built = epoch
            return
        self._is_building = True
        self._context.ask(
            self._run,
            lambda request: asked.PreloadState(request, self._run, attempt, before, after, saved),
            self._if_current(attempt, lambda reason: self._have_built(epoch, reason)),
        )

    def _have_built(self, epoch: int, reason: str) -> None:
        self._is_building = False
        value = self._part.value
        if reason and (value is None or value.committed.epoch == epoch):
            self._refuse(reason)
            return
        if not reason:  # else the snapshots of that epoch may be gone: there are later ones
            self._built = epoch
        self._build()
        self._report_ready()

    def report_progress(self, digest: bytes, got: int, of: int) -> None:
        """Report to the coordinator how many bytes of the preload are here."""
        if digest == self._digest and self._is_building and self._coordinator is not None:
            message = wire.GenerationProgress(self._run, self._part.attempt, digest, got, of)
            self._context.send(self._coordinator, message)

    def _if_current(self, attempt: int, then: Callable[[str], None]) -> Callable[[object, str], None]:
        """Return a callback that passes a request's outcome on if this plan and attempt are still current."""
        digest = self._digest

        def outcome(_: object, reason: str) -> None:
            if digest == self._digest and attempt == self._part.attempt:
                then(reason)

        return outcome

    @property
    def _timeout_ns(self) -> int:
        """Timeout without a proposal. Proposals come with every tick until the barrier, which a hand-over timeout limits."""
        return 2 * self._context.config.handover_timeout_ns

    def on_dropped(self, message: wire.GenerationDropped) -> None:
        """Drop the preparation because the coordinator has dropped the change."""
        if message.attempt == self._part.attempt and message.digest == self._digest:
            self.drop()

    def on_timer(self, digest: bytes) -> None:
        """Drop the preparation when no proposal has arrived for too long."""
        if digest != self._digest:
            return
        left = self._last_received_at + self._timeout_ns - self._context.now
        if left > 0 and not self._is_committed:
            self._context.set_timer((self._run, "term", digest), left)
        elif not self._is_committed:
            self.drop()

    # ---- behind the barrier

    def on_state_handed_over(self, sender: Peer, message: wire.StateHandedOver) -> None:
        """Take an old instance's state over; ignore one of another attempt or another plan."""
        is_current = (
            message.attempt == self._part.attempt and message.digest == self._digest and self._part.is_in_attempt
        )
        if is_current and not self._is_host(sender):
            self._context.observe(MessageIgnored(sender.node, "host"))
        elif is_current and message.saved.chain:
            self._take(message.epoch, message.saved, sender)
            if self._taken.get(message.saved.instance):
                answer = wire.StateHandedOverOk(self._run, message.attempt, message.epoch, message.saved.instance)
                self._context.send(sender, answer)

    def _is_host(self, sender: Peer) -> bool:
        """Return whether a node hosts an instance of the old plan. Other nodes have nothing to hand over."""
        return self._before is not None and sender.node in self._before.hosts

    def _take(self, epoch: int, saved: SavedState, origin: Peer | None = None) -> None:
        """Take over from each old instance once, however often its message arrives."""
        instance, attempt, digest = saved.instance, self._part.attempt, self._digest
        if instance in self._taken:
            return
        self._taken[instance] = False

        def taken(reason: str) -> None:
            if reason and not saved.chain[-1].replica_nodes:
                del self._taken[instance]  # the sender repeats it once it is replicated
                return
            if reason:
                self._part.on_broken(attempt, f"{instance} could not be taken over: {reason}")
                return
            self._taken[instance] = True
            self._look_at_end()

        self._context.ask(
            self._run,
            lambda request: asked.TakeOver(request, self._run, attempt, epoch, digest, saved, origin),
            self._if_current(attempt, taken),
        )

    # ---- its end

    def committed(self, value: RegisterValue) -> None:
        """Note the committed plan. If it is this one, all old instances have handed over: take over from those whose message is
        missing.
        """
        planned = [assignment.instance for assignment in value.plan.at(self._context.me.node)]
        if self._plan is None or value.plan.digest != self._digest:
            if any(instance not in self._known for instance in planned):
                # This host had dropped a change that the others completed: a message that it was dropped, or a long silence,
                # came in between.
                self._part.on_broken(
                    value.attempt, f"{self._context.me.name} was not ready for the plan that was committed"
                )
            self._build()
            return
        self._known = dict.fromkeys(planned)
        self._is_committed = True
        generations = {change.stage: change.generation for change in self._plan.changes}
        mine = [assignment.instance.stage for assignment in self._plan.at(self._context.me.node)]
        for saved in value.saved:
            if saved.instance.stage in mine and saved.instance.generation < generations.get(saved.instance.stage, 0):
                self._take(value.committed.epoch, saved)
        self._look_at_end()

    def _look_at_end(self) -> None:
        if self._is_committed and all(self._taken.values()):
            self.forget()

    def enter(self, value: RegisterValue) -> None:
        """Drop everything that was prepared in another attempt."""
        self.forget()
        self._stamp = Stamp()
        self._known = {assignment.instance: None for assignment in value.plan.at(self._context.me.node)}

    def drop(self) -> None:
        """End the preparation, and discard what was prepared."""
        if self._plan is not None:
            self._context.do(asked.DiscardGeneration(self._run, self._part.attempt, self._digest))
        self.forget()

    def forget(self) -> None:
        """Forget the plan: it runs, or is not wanted any more."""
        self._plan, self._digest, self._taken = None, b"", {}
        self._before, self._coordinator, self._built = None, None, None
        self._is_made = self._is_building = self._is_committed = False
