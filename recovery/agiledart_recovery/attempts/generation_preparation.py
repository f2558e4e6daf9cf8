"""What a host makes ready for a term that may come: room, executors, code, links, and what is committed of the state that it will
take over, built before it is wanted. It begins when it is handed over, not before.

    made     room, executors, code, links are there; whoever builds nothing is ready
    built    what the committed epoch has of the old instances is built: ready, as of that epoch
    behind   a later epoch is committed: its elements are built, too, and it is said again

The coordinator repeats its word until the barrier is sent, so a host that does not hear it any more lets go by itself: of a change
whose coordinator died, and whose word that it was let go was lost. What has begun is not ended here: a commit or a new life
settles it.
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
    """What it needs of the host's part of the run."""

    attempt: int
    value: RegisterValue | None

    @property
    def is_in_attempt(self) -> bool:
        """Whether the life has been entered here, and goes on."""
        ...

    def on_broken(self, attempt: int, reason: str) -> None:
        """Something of this life cannot go on here."""
        ...


class GenerationPreparation:
    """The plan that something is made ready for here, if any."""

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
        self._last_heard_at = context.now

    @property
    def plan(self) -> Plan | None:
        """What something is made ready for."""
        return self._plan

    # ---- before the barrier

    def on_prepare(self, sender: Peer, message: wire.ProposeGeneration) -> None:
        """Make ready, or say that all is there."""
        if message.attempt != self._part.attempt or not self._part.is_in_attempt:
            return  # it is said again
        if message.stamp < self._stamp:
            return  # another change has been wanted since
        self._stamp, self._last_heard_at = message.stamp, self._context.now
        if self._is_made and message.after.digest == self._digest:
            self._coordinator = sender
            self._report_ready()
        elif message.before.digest == self._digest:
            return  # what was made ready last is committed, and not everybody has handed over here: first that
        elif message.after.digest != self._digest:
            self.drop()
            self._make_ready(sender, message)

    def _make_ready(self, sender: Peer, message: wire.ProposeGeneration) -> None:
        me, after, attempt = self._context.me, message.after, message.attempt
        self._plan, self._digest, self._before, self._coordinator = after, after.digest, message.before, sender
        planned = after.hosts.get(me.node)
        if planned is not None and planned.incarnation != me.incarnation:
            self._refuse(f"{me.name or me.node.short} was ended since the change was planned")
            return
        mine = tuple(each for each in after.at(me.node) if each.instance.stage in self._new_stages)
        self._context.set_timer((self._run, "term", self._digest), self._timeout_ns)
        self._context.ask(
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
        """Nothing, while what was committed when it was made is still being built."""
        builds = bool(self._new_stages)
        if self._coordinator is not None and (not builds or self._built is not None):
            about = (self._run, self._part.attempt, self._digest)
            self._context.send(self._coordinator, wire.GenerationReady(*about, builds=builds, epoch=self._built or 0))

    @property
    def _new_stages(self) -> list[str]:
        """Stages that take a new term, of which instances will be here."""
        if self._plan is None:
            return []
        here = [each.instance.stage for each in self._plan.at(self._context.me.node)]
        return [change.stage for change in self._plan.changes if change.stage in here]

    def _build(self) -> None:
        """Have what the last committed epoch has of the old instances built; nothing while that is under way."""
        value, before, after = self._part.value, self._before, self._plan
        if value is None or before is None or after is None or not self._is_made or self._is_committed:
            return
        epoch, attempt = value.committed.epoch, self._part.attempt
        if self._is_building or self._built == epoch or not self._new_stages:
            return
        old = {each.instance: None for each in before.assignments if each.instance.stage in self._new_stages}
        saved = tuple(each for each in value.saved if each.instance in old and each.chain)
        if not saved:
            self._built = epoch
            return
        self._is_building = True
        self._context.ask(
            lambda request: asked.PreloadState(request, self._run, attempt, before, after, saved),
            self._if_current(attempt, lambda reason: self._have_built(epoch, reason)),
        )

    def _have_built(self, epoch: int, reason: str) -> None:
        self._is_building = False
        value = self._part.value
        if reason and (value is None or value.committed.epoch == epoch):
            self._refuse(reason)
            return
        if not reason:  # else the elements of that epoch may be gone: there are later ones
            self._built = epoch
        self._build()
        self._report_ready()

    def report_progress(self, digest: bytes, got: int, of: int) -> None:
        """So much of what is to be built is here."""
        if digest == self._digest and self._is_building and self._coordinator is not None:
            message = wire.GenerationProgress(self._run, self._part.attempt, digest, got, of)
            self._context.send(self._coordinator, message)

    def _if_current(self, attempt: int, then: Callable[[str], None]) -> Callable[[object, str], None]:
        """The outcome of something that was asked for this plan, in this life."""
        digest = self._digest

        def outcome(_: object, reason: str) -> None:
            if digest == self._digest and attempt == self._part.attempt:
                then(reason)

        return outcome

    @property
    def _timeout_ns(self) -> int:
        """The word comes with every tick until the barrier is sent; that is committed or rolled back in the time of a hand-over."""
        return 2 * self._context.config.handover_timeout_ns

    def on_dropped(self, message: wire.GenerationDropped) -> None:
        """It will not be."""
        if message.attempt == self._part.attempt and message.digest == self._digest:
            self.drop()

    def on_timer(self, digest: bytes) -> None:
        """Is it still wanted?"""
        if digest != self._digest:
            return
        left = self._last_heard_at + self._timeout_ns - self._context.now
        if left > 0 and not self._is_committed:
            self._context.set_timer((self._run, "term", digest), left)
        elif not self._is_committed:
            self.drop()

    # ---- behind the barrier

    def on_state_handed_over(self, sender: Peer, message: wire.StateHandedOver) -> None:
        """An old instance has stopped. Of another life, or of a plan that is not the one of here, it is nothing."""
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
        """Whether a node hosts something of what was before: who does not has nothing to hand over."""
        return self._before is not None and sender.node in self._before.hosts

    def _take(self, epoch: int, saved: SavedState, origin: Peer | None = None) -> None:
        """Once from each old instance, whatever comes again."""
        instance, attempt, digest = saved.instance, self._part.attempt, self._digest
        if instance in self._taken:
            return
        self._taken[instance] = False

        def taken(reason: str) -> None:
            if reason and not saved.chain[-1].replica_nodes:
                del self._taken[instance]  # it is told again when it is safe
                return
            if reason:
                self._part.on_broken(attempt, f"{instance} could not be taken over: {reason}")
                return
            self._taken[instance] = True
            self._look_at_end()

        self._context.ask(
            lambda request: asked.TakeOver(request, self._run, attempt, epoch, digest, saved, origin),
            self._if_current(attempt, taken),
        )

    # ---- its end

    def committed(self, value: RegisterValue) -> None:
        """The register names a plan. When it is this one, all old instances have handed over, whoever is left to say so."""
        planned = [each.instance for each in value.plan.at(self._context.me.node)]
        if self._plan is None or value.plan.digest != self._digest:
            if any(instance not in self._known for instance in planned):
                # It had let go of what others went on with: a word that it was let go, or a long silence, came in between.
                self._part.on_broken(
                    value.attempt, f"{self._context.me.name} was not ready for the plan that was committed"
                )
            self._build()
            return
        self._known = dict.fromkeys(planned)
        self._is_committed = True
        generations = {change.stage: change.generation for change in self._plan.changes}
        mine = [each.instance.stage for each in self._plan.at(self._context.me.node)]
        for saved in value.saved:
            if saved.instance.stage in mine and saved.instance.generation < generations.get(saved.instance.stage, 0):
                self._take(value.committed.epoch, saved)
        self._look_at_end()

    def _look_at_end(self) -> None:
        if self._is_committed and all(self._taken.values()):
            self.forget()

    def enter(self, value: RegisterValue) -> None:
        """A life begins: nothing of what was made ready in another one is left."""
        self.forget()
        self._stamp = Stamp()
        self._known = {each.instance: None for each in value.plan.at(self._context.me.node)}

    def drop(self) -> None:
        """Nothing will come of it."""
        if self._plan is not None:
            self._context.do(asked.DiscardGeneration(self._run, self._part.attempt, self._digest))
        self.forget()

    def forget(self) -> None:
        """It runs, or is not wanted any more."""
        self._plan, self._digest, self._taken = None, b"", {}
        self._before, self._coordinator, self._built = None, None, None
        self._is_made = self._is_building = self._is_committed = False
