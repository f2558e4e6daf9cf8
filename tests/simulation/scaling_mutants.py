"""Bugs to plant in a change of stages, each a rule of the scaling specification's §8 broken.

Those that a stage with one instance shows are in `recovery_mutants`; those of timers and open snapshots are the executors'.
"""

from typing import Any

import msgspec
import pytest

from agiledart_kernel.machine import Completed
from agiledart_recovery.attempts.attempt_writer import AttemptWriter
from agiledart_recovery.attempts.epoch_tracker import EpochTracker
from agiledart_recovery.attempts.generation_change import ChangeStep, GenerationChange
from agiledart_recovery.attempts.generation_preparation import GenerationPreparation
from agiledart_recovery.register.proposer import Proposer
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Plan, RegisterValue
from agiledart_simulation.pipeline.instances import VirtualSource, VirtualStage, joined
from agiledart_simulation.pipeline.pipeline_engine import PipelineEngine, PreparedGeneration
from agiledart_simulation.pipeline.pipeline_messages import END, START, InputPosition, InstanceState, PipelineRow
from agiledart_simulation.pipeline.recovery_host import RecoveryHost
from agiledart_simulation.pipeline.tables import SHARED, owner_of, sources_of
from tests.simulation.mutants import Mutant

CHANGES = ("grow", "shrink", "rebalance", "both")
CALM = {"kinds": (*CHANGES, "silence", "weather", "heal"), "steps": 20, "step_ms": 1_000}
ENDS = {"kinds": ("silence", "grow", "rebalance"), "steps": 30, "step_ms": 1_500}
DEATHS = {"kinds": (*CHANGES, "strike", "kill", "restart", "heal"), "steps": 25, "step_ms": 1_000}


def begins_at_the_first_handed(patch: pytest.MonkeyPatch) -> None:
    """A new instance does not wait for the other owners of its groups."""
    take_over = PipelineEngine.take_over

    def hasty(self: PipelineEngine, effect: Any, memory: InstanceState) -> None:
        waiting = self.waiting.get(effect.digest)
        if waiting is not None:
            for each in waiting.before.stage(effect.saved.instance.stage):
                if each.instance not in waiting.previous_state:
                    waiting.previous_state[each.instance] = msgspec.structs.replace(memory, counts={}, held=())
            waiting.previous_state[effect.saved.instance] = memory
        take_over(self, effect, memory)

    patch.setattr(PipelineEngine, "take_over", hasty)


def begins_by_request(patch: pytest.MonkeyPatch) -> None:
    """A new instance begins when it is notified of the change."""
    make_ready = PipelineEngine.make_ready

    def at_once(self: PipelineEngine, effect: Any) -> None:
        make_ready(self, effect)
        waiting: PreparedGeneration = self.waiting[effect.after.digest]
        for mine in list(waiting.instances.values()):
            sources = sources_of(effect.after, mine.instance.stage)
            inlets = tuple(InputPosition(source, START, 0, False) for source in sources)
            self._begin(waiting, mine, InstanceState({}, START, (), inlets))

    patch.setattr(PipelineEngine, "make_ready", at_once)


def rows_of_a_new_channel_are_in_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The downstream snapshot at the change's barrier holds rows that came over a new channel."""
    end_channel = VirtualStage._end_channel

    def open_cut(self: VirtualStage, source: InstanceId, barrier: Any, after: Plan) -> None:
        known = list(self.inputs)
        end_channel(self, source, barrier, after)
        for instance, inlet in self.inputs.items():
            if instance not in known:
                inlet.cuts = {}

    patch.setattr(VirtualStage, "_end_channel", open_cut)


def ends_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """A new instance is not notified of ended inputs."""
    previous_state = VirtualStage.previous_state

    def forgetful(self: VirtualStage) -> InstanceState:
        memory = previous_state(self)
        inlets = tuple(msgspec.structs.replace(inlet, ended=False) for inlet in memory.inlets)
        return msgspec.structs.replace(memory, inlets=inlets)

    patch.setattr(VirtualStage, "previous_state", forgetful)


def ended_counts_for_what_it_passed(patch: pytest.MonkeyPatch) -> None:
    """An ended instance counts for barriers that it passed, with its end."""

    def any_end(self: EpochTracker, instance: InstanceId, epoch: int) -> wire.Prepared | None:
        return self._ended.get(instance) or self._prepared.get(epoch, {}).get(instance)

    patch.setattr(EpochTracker, "answer", any_end)


def a_closed_input_counts_as_ended(patch: pytest.MonkeyPatch) -> None:
    """An old instance goes beyond the first barrier, because the watermarks of its other inputs advance."""
    work = VirtualStage.work

    def run_ahead(self: VirtualStage) -> None:
        watermarks = {instance: each.watermark for instance, each in self.inputs.items() if each.closed}
        if len(watermarks) < len(self.inputs):
            for instance in watermarks:
                self.inputs[instance].watermark = END
        work(self)
        for instance, watermark in watermarks.items():
            self.inputs[instance].watermark = watermark

    patch.setattr(VirtualStage, "work", run_ahead)


def a_sender_switches_early(patch: pytest.MonkeyPatch) -> None:
    """A row before the barrier goes by the new table."""
    barrier = VirtualSource.barrier

    def early(self: VirtualSource, epoch: int, after: Plan | None) -> None:
        if after is not None and not self.has_ended and epoch > self.passed:
            before, self.plan = self.plan, after
            self.pump()
            self.plan = before
        barrier(self, epoch, after)

    patch.setattr(VirtualSource, "barrier", early)


def a_sender_uses_the_old_table(patch: pytest.MonkeyPatch) -> None:
    """Behind the barrier the new instances get rows by the old owners."""
    first: dict[str, Any] = {}

    def old(plan: Plan, tables: Any, stage: str, row: PipelineRow) -> InstanceId:
        known = first.setdefault(stage, tables.get(stage))
        number = len(plan.stage(stage))
        kept = known if known is not None and max(known) < number else tables.get(stage)
        return owner_of(plan, {**tables, stage: kept} if kept is not None else tables, stage, row)

    patch.setattr("agiledart_simulation.pipeline.instances.owner_of", old)


def an_uncommitted_plan_survives(patch: pytest.MonkeyPatch) -> None:
    """A roll-back goes on with the plan whose barrier was sent."""
    begin = AttemptWriter.begin
    write = Proposer.write

    def keep(self: AttemptWriter, reason: str, kind: str = "broken") -> None:
        generation_change = self._state.commit_protocol.generation_change
        plan = generation_change.plan if generation_change.step is ChangeStep.CARRIED else None

        def with_plan(proposer: Proposer, value: RegisterValue) -> None:
            write(proposer, msgspec.structs.replace(value, plan=plan) if plan is not None else value)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Proposer, "write", with_plan)
            begin(self, reason, kind)

    patch.setattr(AttemptWriter, "begin", keep)


def two_changes_at_once(patch: pytest.MonkeyPatch) -> None:
    """A second change gets no answer, and takes the first one's place."""
    want = GenerationChange.want

    def also(self: GenerationChange, value: RegisterValue, plan: Plan) -> str:
        self.step = ChangeStep.IDLE
        return want(self, msgspec.structs.replace(value, changes=()), plan)

    patch.setattr(GenerationChange, "want", also)


def what_is_let_go_stays(patch: pytest.MonkeyPatch) -> None:
    """A host is not notified of an aborted change, and does not ask itself."""
    patch.setattr(GenerationPreparation, "drop", lambda self: self.forget())


def shared_state_stays(patch: pytest.MonkeyPatch) -> None:
    """State from rows of a broadcast edge is not handed over."""
    previous_state = VirtualStage.previous_state

    def without(self: VirtualStage) -> InstanceState:
        memory = previous_state(self)
        others = {group: count for group, count in memory.others.items() if group != SHARED}
        return msgspec.structs.replace(memory, others=others)

    patch.setattr(VirtualStage, "previous_state", without)


def the_other_side_of_a_join_stays(patch: pytest.MonkeyPatch) -> None:
    """A group is handed over without what the other side of a join has said for it."""
    previous_state = VirtualStage.previous_state

    def without(self: VirtualStage) -> InstanceState:
        memory = previous_state(self)
        others = {group: count for group, count in memory.others.items() if group == SHARED}
        return msgspec.structs.replace(memory, others=others)

    patch.setattr(VirtualStage, "previous_state", without)


def queued_rows_for_all_go_with_their_groups(patch: pytest.MonkeyPatch) -> None:
    """Rows of a broadcast edge that wait come to the new owner of their group only."""

    def by_group(*given: Any, shares: bool = False) -> InstanceState:
        return joined(*given)

    patch.setattr("agiledart_simulation.pipeline.pipeline_engine.joined", by_group)


def on_whatever_is_built(patch: pytest.MonkeyPatch) -> None:
    """Handed-over state is added to existing state."""
    patch.setattr(RecoveryHost, "rests_on", staticmethod(lambda saved, built: bool(built) and len(saved.chain) > 1))


def a_change_lies_on_another_base(patch: pytest.MonkeyPatch) -> None:
    """A new owner builds once, and puts what is handed over on that."""
    on_whatever_is_built(patch)
    build_ahead = RecoveryHost._preload_state

    def once(self: RecoveryHost, effect: Any) -> None:
        waiting = None if self.engine is None else self.engine.waiting.get(effect.after.digest)
        if waiting is None or not waiting.built:
            build_ahead(self, effect)
            return
        for after in self.machine.step(Completed(effect.request), self.now):
            self._carry_out(after)

    patch.setattr(RecoveryHost, "_preload_state", once)


def a_link_of_an_extra_epoch_is_missed(patch: pytest.MonkeyPatch) -> None:
    """A host reports ready as of an epoch whose snapshots it has not built."""
    on_whatever_is_built(patch)
    build = GenerationPreparation._build

    def hasty(self: GenerationPreparation) -> None:
        if self._built is not None and self._part.value is not None:
            self._built = self._part.value.committed.epoch
        build(self)

    patch.setattr(GenerationPreparation, "_build", hasty)


SCALING_MUTANTS = [
    Mutant("begins at the first HANDED", begins_at_the_first_handed, "scaling", CALM),
    Mutant("begins by request", begins_by_request, "scaling", CALM),
    Mutant(
        "rows of a new channel in the snapshot",
        rows_of_a_new_channel_are_in_the_snapshot,
        "scaling",
        DEATHS,
        is_slow=True,
    ),
    Mutant("ends not told", ends_are_not_told, "scaling", ENDS, is_slow=True),
    Mutant("ended counts for what it passed", ended_counts_for_what_it_passed, "scaling", DEATHS, is_slow=True),
    Mutant("a closed input counts as ended", a_closed_input_counts_as_ended, "scaling", CALM),
    Mutant("a sender switches early", a_sender_switches_early, "scaling", CALM, is_slow=True),
    Mutant("a sender uses the old table", a_sender_uses_the_old_table, "scaling", CALM, complaint="S1"),
    Mutant("an uncommitted plan survives", an_uncommitted_plan_survives, "scaling", DEATHS, complaint="S5", known=9),
    Mutant("a change on another base", a_change_lies_on_another_base, "scaling", CALM, complaint="V2"),
    Mutant("a link is missed", a_link_of_an_extra_epoch_is_missed, "scaling", CALM, complaint="V2"),
    Mutant("shared state stays", shared_state_stays, "scaling", CALM),
    Mutant("the other side of a join stays", the_other_side_of_a_join_stays, "scaling", CALM, known=6),
    Mutant(
        "queued rows for all go with their groups",
        queued_rows_for_all_go_with_their_groups,
        "scaling",
        CALM,
        is_slow=True,
    ),
    Mutant("two changes at once", two_changes_at_once, "scaling", CALM),
    Mutant("what is let go stays", what_is_let_go_stays, "scaling", CALM, complaint="S6", is_slow=True),
]
