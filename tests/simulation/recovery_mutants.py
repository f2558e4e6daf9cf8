"""Bugs to plant in recovery, each a rule of the specification's §14 broken; `test_recovery_mutants` sees that each is found."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from agiledart_kernel.codec import encode
from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Event
from agiledart_recovery.attempts.commit_protocol import CommitProtocol
from agiledart_recovery.attempts.configurations import Configurations
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.epoch_tracker import EpochTracker
from agiledart_recovery.attempts.leadership import Leadership
from agiledart_recovery.attempts.participant import Participant, Phase
from agiledart_recovery.attempts.run_requests import RunRequests
from agiledart_recovery.attempts.snapshot_preparation import SnapshotPreparation
from agiledart_recovery.fragments.fragment_store import FragmentStore
from agiledart_recovery.register import quorum_recovery, quorums
from agiledart_recovery.register.proposer import Phase as Hold
from agiledart_recovery.register.proposer import Proposer
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.effects import FragmentKey, StoreAttempt, StoreVoter
from agiledart_recovery.wire.events import PinnedInstancePrepared
from agiledart_recovery.wire.names import Ballot, CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import InstanceRole, InstanceSnapshot, Plan, RegisterValue, SavedState
from agiledart_simulation.pipeline import recovery_host
from agiledart_simulation.pipeline.instances import VirtualStage
from agiledart_simulation.pipeline.pipeline_engine import PipelineEngine
from agiledart_simulation.pipeline.pipeline_messages import END, START, InstanceState, PipelineFrame
from agiledart_simulation.pipeline.recovery_host import RecoveryHost
from agiledart_simulation.pipeline.snapshot_chains import SnapshotChains
from agiledart_simulation.runs import quorum_loss
from agiledart_simulation.runs.recovery_run import RecoveryRun
from tests.simulation.mutants import Mutant, nothing

MOVES = {"kinds": ("handover", "pause", "weather", "heal"), "steps": 40, "step_ms": 1_500, "loss": 0.02}
ROLLS = {"kinds": ("kill", "power", "restart", "partition", "heal"), "steps": 40}
OUTAGES = {"kinds": ("blackout", "weather"), "steps": 14, "step_ms": 5_000, "loss": 0.3, "nodes": 5}
MIXED = {"kinds": ("kill", "restart", "partition", "heal", "weather"), "steps": 40, "loss": 0.2, "nodes": 5}
LOSSY = {"kinds": ("kill", "power", "restart", "weather"), "steps": 40, "loss": 0.3}
MOVES_AND_KILLS = {"kinds": ("handover", "kill", "restart", "heal"), "steps": 40, "step_ms": 1_500}
STALLS = {"kinds": ("stall", "kill", "restart", "heal"), "steps": 20, "step_ms": 3_000, "loss": 0.0}
RIVALS = {"kinds": ("rival", "partition", "heal", "restart", "pause"), "steps": 40}


def any_life_is_taken(patch: pytest.MonkeyPatch) -> None:
    """Frames of an older attempt that come over a kept link are counted as the next of the new one."""
    on_frame = PipelineEngine.on_frame

    def kept(self: PipelineEngine, sender: Any, frame: PipelineFrame) -> None:
        if frame.attempt < self.attempt:
            number = self._taken.get((frame.source, frame.target), 0) + 1
            frame = msgspec.structs.replace(frame, attempt=self.attempt, number=number)
        on_frame(self, sender, frame)

    patch.setattr(PipelineEngine, "on_frame", kept)


def answers_of_any_life_count(patch: pytest.MonkeyPatch) -> None:
    """PREPARED of an epoch counts in any attempt."""
    take = EpochTracker.take

    def careless(self: EpochTracker, answer: wire.Prepared, instances: Any) -> bool:
        return take(self, msgspec.structs.replace(answer, attempt=self.attempt), instances)

    def keeping(self: Participant, sender: Any, value: RegisterValue) -> None:
        preparation = self.preparation
        kept = dict(preparation._prepared), dict(preparation._ended)
        enter(self, sender, value)
        preparation._prepared, preparation._ended = kept

    enter = Participant._enter
    patch.setattr(EpochTracker, "take", careless)
    patch.setattr(Participant, "_enter", keeping)


def snapshots_by_epoch_alone(patch: pytest.MonkeyPatch) -> None:
    """A snapshot is found by instance and epoch: a late write of an older attempt has replaced the newer one."""
    write = RecoveryHost.store_snapshot

    def first_stays(
        self: RecoveryHost, engine: Any, stage: Any, checkpoint: Any, raw: bytes, *rest: Any, **more: Any
    ) -> None:
        states = vars(self.disk).setdefault("states", {})  # they outlive the process, as snapshots do
        older = [
            each
            for (instance, other), each in states.items()
            if instance == stage.instance and other.epoch == checkpoint.epoch and other.attempt < checkpoint.attempt
        ]
        states[stage.instance, checkpoint] = raw
        write(self, engine, stage, checkpoint, older[0] if older else raw, *rest, **more)

    patch.setattr(RecoveryHost, "store_snapshot", first_stays)


def committed_before_the_register(patch: pytest.MonkeyPatch) -> None:
    """COMMITTED is sent when all have prepared, and the register is written after it."""

    def hasty(self: Coordinator) -> None:
        if self.proposer.phase is Hold.LEADING and (value := self.commit_protocol.next_value(self.value)) is not None:
            self.commit_protocol.send_committed(value)
            self.proposer.write(value)

    patch.setattr(Coordinator, "_commit", hasty)


def ballots_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A commit looks at the epoch only: a voter takes what an overtaken coordinator writes."""

    def blind(self: VoterSlot, sender: Any, message: wire.Accept) -> None:
        self.accepted, self.value = message.stamp, message.value
        self.promised = max(self.promised, message.stamp.ballot)
        self._answer(sender, wire.Accepted(self.run, message.stamp, self.voter_slot))

    patch.setattr(VoterSlot, "on_accept", blind)


def prepared_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    """The sink says PREPARED, then writes its rows."""
    write = RecoveryRun.write

    def early(self: RecoveryRun, host: Any, action: Any, event: Event | None) -> None:
        if isinstance(event, PinnedInstancePrepared):
            write(self, host, lambda: None, event)
            self.world.call(SECOND, lambda: write(self, host, action, None))
        else:
            write(self, host, action, event)

    patch.setattr(RecoveryRun, "write", early)


def cut_at_the_last_known_commit(patch: pytest.MonkeyPatch) -> None:
    """At a roll-back the sink cuts at the last COMMIT that it knows of."""
    cut = RecoveryHost.cut
    patch.setattr(RecoveryHost, "cut", lambda self, end: cut(self, self.disk.part.committed))


def one_cut_for_all_parts(patch: pytest.MonkeyPatch) -> None:
    """The register names an end for the sink, not for each node that holds a part of it."""
    next_value = CommitProtocol.next_value

    def only(self: CommitProtocol, value: RegisterValue) -> RegisterValue | None:
        made = next_value(self, value)
        if made is None:
            return None
        hosts = [each.host.node for each in self.epochs.plan.of(InstanceRole.SINK)]
        return msgspec.structs.replace(made, parts=tuple(end for end in made.parts if end.host in hosts))

    patch.setattr(CommitProtocol, "next_value", only)


def closing_commits(patch: pytest.MonkeyPatch) -> None:
    """A sink that is closed keeps and shows what it was given."""

    def flush(self: RecoveryHost, end: int) -> None:
        self.disk.part.committed = len(self.disk.part.rows)

    patch.setattr(RecoveryHost, "cut", flush)


def an_entered_life_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    """A part that restarts takes an old RESET of the attempt in which it was ended, or of an older one."""
    carry_out = RecoveryHost._carry_out

    def forget(self: RecoveryHost, effect: Any) -> None:
        if isinstance(effect, StoreAttempt):
            attempt = effect.file.attempt
            effect = msgspec.structs.replace(effect, file=msgspec.structs.replace(effect.file, attempt=attempt - 1))
        carry_out(self, effect)

    patch.setattr(RecoveryHost, "_carry_out", forget)
    patch.setattr(Participant, "_was_planned_for_another", lambda self, value: False)


def restart_inside_a_life(patch: pytest.MonkeyPatch) -> None:
    """A host that was ended restarts from its last snapshot in the same attempt."""
    on_reset = Participant.on_reset

    def again(self: Participant, sender: Any, message: wire.Reset) -> None:
        if message.value.attempt == self.attempt and self.phase is Phase.OUT:
            self._enter(sender, message.value)
        else:
            on_reset(self, sender, message)

    patch.setattr(Participant, "on_reset", again)


def ballots_without_number(patch: pytest.MonkeyPatch) -> None:
    """Under one ballot a late ACCEPT puts an old value back."""

    def late(self: VoterSlot, sender: Any, message: wire.Accept) -> None:
        if message.stamp.ballot < self.promised:
            self.refuse(sender, message.stamp.ballot)
            return
        self._take(message.stamp, message.value)
        self._answer(sender, wire.Accepted(self.run, message.stamp, self.voter_slot))

    patch.setattr(VoterSlot, "on_accept", late)


def a_voter_forgets(patch: pytest.MonkeyPatch) -> None:
    """A voter answers before its file is on the disk, and the file never gets there after the first time."""
    carry_out = RecoveryHost._carry_out

    def forget(self: RecoveryHost, effect: Any) -> None:
        if isinstance(effect, StoreVoter) and effect.file.run in self.disk.voters:
            effect = msgspec.structs.replace(effect, file=self.disk.voters[effect.file.run])
        carry_out(self, effect)

    patch.setattr(RecoveryHost, "_carry_out", forget)


def no_read_before_writing(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator prepares, but writes the value that it remembers: an attempt begins from remembered values."""
    on_promise = Proposer.on_promise

    def remember(self: Proposer, sender: Any, message: wire.Promise) -> None:
        on_promise(self, sender, msgspec.structs.replace(message, value=self._known))

    patch.setattr(Proposer, "on_promise", remember)


def one_less_than_a_majority(patch: pytest.MonkeyPatch) -> None:
    """One voter of three decides."""
    patch.setattr(
        quorums, "is_majority", lambda voters, who: 2 * sum(each.voter_id in who for each in voters) >= len(voters) - 1
    )


def commit_without_sync(patch: pytest.MonkeyPatch) -> None:
    """An epoch is committed although logs hold rows in memory whose effects are in a merge's snapshot."""
    patch.setattr(CommitProtocol, "_must_sync", nothing)


def lateness_is_judged_again(patch: pytest.MonkeyPatch) -> None:
    """A row that comes again from a log says what the clock says now."""
    read = RecoveryHost.read

    def decide_row(self: RecoveryHost, mine: Any, number: int) -> Any:
        row = read(self, mine, number)
        if mine.has_log and row is not None and row != END:
            row = self.disk.logs[mine.instance].rows[number] = self.decide_row(mine.instance.index, number)
        return row

    patch.setattr(RecoveryHost, "read", decide_row)


def overtaken_rows_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    """The rows that a barrier overtakes are in no snapshot."""
    patch.setattr(PipelineEngine, "overtaken", lambda self, instance: ())


def fragments_go_too_early(patch: pytest.MonkeyPatch) -> None:
    """Replica nodes release everything up to the committed epoch."""

    def eager(self: FragmentStore, value: RegisterValue) -> tuple[FragmentKey, ...]:
        gone = tuple(key for key in self._held if key.checkpoint.epoch <= value.committed.epoch)
        for key in gone:
            del self._held[key]
        return gone

    patch.setattr(FragmentStore, "release", eager)


def links_go_too_early(patch: pytest.MonkeyPatch) -> None:
    """Only the last snapshot of each chain is considered needed."""

    def last(self: RegisterValue) -> dict[tuple[InstanceId, CheckpointId], InstanceSnapshot]:
        return {
            (saved.instance, saved.checkpoint): saved.chain[-1] for saved in (*self.before, *self.saved) if saved.chain
        }

    patch.setattr(RegisterValue, "needed", property(last))


def a_chain_is_not_said(patch: pytest.MonkeyPatch) -> None:
    """Prepared names the last snapshot, and not those that it rests on."""
    patch.setattr(SnapshotPreparation, "_chain_to", lambda self, event: ())


def rests_on_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """An increment rests on the last snapshot that was written, whose epoch may be skipped."""
    saved = SnapshotChains.saved

    def hasty(
        self: SnapshotChains, instance: InstanceId, checkpoint: CheckpointId, state: bytes, *, is_last: bool = False
    ) -> tuple[bytes, bytes]:
        base = self._bases.get(instance)
        found = saved(self, instance, checkpoint, state, is_last=is_last)
        if base is not None:
            base.state = state  # the next one is taken from this one, and says that it rests on the committed one
        return found

    patch.setattr(SnapshotChains, "saved", hasty)


def queued_rows_stay(patch: pytest.MonkeyPatch) -> None:
    """Rows that wait in the old merge are not handed over."""
    previous_state = VirtualStage.previous_state
    patch.setattr(VirtualStage, "previous_state", lambda self: msgspec.structs.replace(previous_state(self), held=()))


def new_channels_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Downstream of a stage that moves, and in its new place, inputs stand too high: rows below are dropped."""
    take = VirtualStage.take

    def high(self: VirtualStage, source: Any, body: Any) -> None:
        known = list(self.inputs)
        take(self, source, body)
        for instance in self.inputs:
            if instance not in known:
                self.inputs[instance].watermark = END

    patch.setattr(VirtualStage, "take", high)


def state_is_not_handed_over(patch: pytest.MonkeyPatch) -> None:
    """The new place begins because it was asked, from nothing."""
    take_over = PipelineEngine.take_over

    def empty(self: PipelineEngine, effect: Any, memory: InstanceState) -> None:
        take_over(self, effect, msgspec.structs.replace(memory, counts={}))

    patch.setattr(PipelineEngine, "take_over", empty)


def a_sender_switches_late(patch: pytest.MonkeyPatch) -> None:
    """Behind the barrier a sender goes on to the old place."""
    send = PipelineEngine.send

    def late(self: PipelineEngine, source: Any, target: Any, body: Any) -> None:
        old = [
            to
            for (who, to) in self._outlets
            if who == source and to.stage == target.stage and to.generation < target.generation
        ]
        send(self, source, old[0] if old else target, body)

    patch.setattr(PipelineEngine, "send", late)


def epoch_without_its_plan(patch: pytest.MonkeyPatch) -> None:
    """The committer checks the epoch only: the plan in the register stays."""
    next_value = CommitProtocol.next_value

    def stay(self: CommitProtocol, value: RegisterValue) -> RegisterValue | None:
        made = next_value(self, value)
        return None if made is None else msgspec.structs.replace(made, plan=value.plan)

    patch.setattr(CommitProtocol, "next_value", stay)


def plan_before_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """The plan is written when the change is asked for."""

    def at_once(self: RunRequests, plan: Plan) -> str:
        state = self._state
        if state.holds_ballot and state.phase.value == "running":
            state.proposer.write(msgspec.structs.replace(state.value, plan=plan, old_voters=()))
        return ""

    patch.setattr(RunRequests, "on_change", at_once)


def a_majority_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    """An admin has a run go on without voters that are there."""
    check_quorum_recovery = quorum_recovery.check_quorum_recovery
    patch.setattr(
        quorum_loss, "check_quorum_recovery", lambda *about: replace(check_quorum_recovery(*about), refusal="")
    )


def no_era_begins(patch: pytest.MonkeyPatch) -> None:
    """An admin's attempt is the next one, and so are his ballots: those that were only cut off begin some, too."""
    made = quorum_recovery.recovered_value

    def next_attempt(found: quorum_recovery.QuorumRecoveryCheck, *about: Any) -> tuple[RegisterValue, Ballot]:
        value, _ = made(found, *about)
        assert found.value is not None
        return msgspec.structs.replace(value, attempt=found.value.attempt + 1), Ballot(1)

    patch.setattr(quorum_loss, "recovered_value", next_attempt)


def an_older_generation_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A node that receives a later configuration keeps its own, and voters take its values."""
    patch.setattr(Configurations, "is_later", lambda self, sender, ballot, order, known: False)
    patch.setattr(Configurations, "is_superseded", lambda self, known: False)
    patch.setattr(Configurations, "refuse_superseded", lambda self, sender, ballot: False)
    patch.setattr(VoterSlot, "_is_of_before", lambda self, value: False)
    patch.setattr(VoterSlot, "_is_unproven", lambda self, ballot, value: False)


def a_seat_is_given_and_kept(patch: pytest.MonkeyPatch) -> None:
    """A coordinator whose voter slot another node has continues."""
    patch.setattr(Leadership, "is_voter", lambda self, voters: True)


def sources_do_not_go_back(patch: pytest.MonkeyPatch) -> None:
    """A state is lost: stages go back to the epoch before, sources read on from where they stood at the committed one."""
    other = RegisterValue.switched_checkpoint.fget  # type: ignore[attr-defined]

    def half(self: RegisterValue) -> RegisterValue:
        sources = {each.instance: None for each in self.plan.of(InstanceRole.SOURCE)}
        stay = {saved.instance: saved for saved in self.saved if saved.instance in sources}
        made: RegisterValue = other(self)
        return msgspec.structs.replace(made, saved=tuple(stay.get(one.instance, one) for one in made.saved))

    patch.setattr(RegisterValue, "switched_checkpoint", property(half))


def rows_are_taken_back(patch: pytest.MonkeyPatch) -> None:
    """A state is lost: epochs committed after the previous one are no longer committed."""
    other = RegisterValue.switched_checkpoint.fget  # type: ignore[attr-defined]

    def uncommitted(self: RegisterValue) -> RegisterValue:
        made: RegisterValue = other(self)
        return msgspec.structs.replace(made, committed=made.at)

    patch.setattr(RegisterValue, "switched_checkpoint", property(uncommitted))


def logs_are_cut_at_the_committed_epoch(patch: pytest.MonkeyPatch) -> None:
    """As if no run rolled back: rows of the epoch before are in no log any more."""

    def committed(value: RegisterValue, saved: SavedState) -> bytes:
        return saved.position

    patch.setattr(recovery_host, "_read_again_from", committed)


def a_position_is_saved_before_its_rows_are_out(patch: pytest.MonkeyPatch) -> None:
    """A source saves the position behind a row that it has read and not sent."""
    store = RecoveryHost.store_position

    def hasty(self: RecoveryHost, engine: Any, source: Any, checkpoint: Any, after: Any, *, has_ended: bool) -> None:
        sent = source.position
        source.position += not has_ended
        store(self, engine, source, checkpoint, after, has_ended=has_ended)
        source.position = sent

    patch.setattr(RecoveryHost, "store_position", hasty)


def a_step_in_the_register_is_not_started_anew(patch: pytest.MonkeyPatch) -> None:
    """A host that takes over begins without what the register holds of a step."""
    restored = RecoveryHost._restored_state

    def without(self: RecoveryHost, saved: SavedState, *rest: Any, **more: Any) -> bytes | None:
        is_held = any(snapshot.content for snapshot in saved.chain)
        empty = encode(InstanceState({}, START, ()))
        return empty if is_held else restored(self, saved, *rest, **more)

    patch.setattr(RecoveryHost, "_restored_state", without)


def a_saved_step_is_taken_for_one_without_state(patch: pytest.MonkeyPatch) -> None:
    """Content of the register is dropped with each commit, as if the step could begin from nothing beside saved ones."""

    def emptied(self: RegisterValue, saved: SavedState) -> SavedState:
        known = with_known(self, saved)
        return SavedState(known.instance) if any(snapshot.content for snapshot in known.chain) else known

    with_known = RegisterValue.with_known
    patch.setattr(RegisterValue, "with_known", emptied)


def epochs_are_written_while_idle(patch: pytest.MonkeyPatch) -> None:
    """Epochs begin at each interval, whether rows come or not."""
    patch.setattr(CommitProtocol, "_has_work", lambda self, value: True)


GIVEN = {"kinds": ("resign", "heal"), "steps": 8, "step_ms": 3_000}
QUORUM_LOSS = {"kinds": ("lose-quorum", "heal"), "steps": 6, "step_ms": 3_000}

SILENCES = {"kinds": ("silence", "kill", "restart"), "steps": 12, "step_ms": 3_000}
LOST = {"kinds": ("lose", "heal"), "steps": 8, "step_ms": 4_000}

RECOVERY_MUTANTS = [
    Mutant("sources do not go back", sources_do_not_go_back, "losses", LOST, complaint="V"),
    Mutant("rows are taken back", rows_are_taken_back, "losses", LOST, complaint="V"),
    Mutant("logs are cut at the committed epoch", logs_are_cut_at_the_committed_epoch, "losses", LOST, complaint="V7"),
    Mutant("a majority is not asked", a_majority_is_not_asked, "recovery", QUORUM_LOSS, complaint="R1", known=3),
    Mutant("a seat is given and kept", a_seat_is_given_and_kept, "recovery", GIVEN, 300, complaint="L1", is_slow=True),
    Mutant("no era begins", no_era_begins, "recovery", QUORUM_LOSS, complaint="V"),
    Mutant("an older generation is taken", an_older_generation_is_taken, "recovery", QUORUM_LOSS, complaint="R2"),
    Mutant("any life is taken", any_life_is_taken, "recovery", ROLLS, is_slow=True),
    Mutant("answers of any life count", answers_of_any_life_count, "recovery", ROLLS),
    Mutant("snapshots by epoch alone", snapshots_by_epoch_alone, "recovery", MIXED, known=6),
    Mutant("COMMITTED before the register", committed_before_the_register, "recovery", RIVALS, complaint="V"),
    Mutant("ballots are not compared", ballots_are_not_compared, "recovery", RIVALS, complaint="V"),
    Mutant("PREPARED before the disk", prepared_before_the_disk, "recovery", ROLLS, complaint="V"),
    Mutant(
        "cut at the last known COMMIT",
        cut_at_the_last_known_commit,
        "recovery",
        LOSSY,
        complaint="V",
        is_slow=True,
    ),
    Mutant("one cut for all parts", one_cut_for_all_parts, "recovery", ROLLS, complaint="V", known=8),
    Mutant("closing commits", closing_commits, "recovery", ROLLS, complaint="V3", known=5),
    Mutant("an entered life is not stored", an_entered_life_is_not_stored, "recovery", ROLLS),
    Mutant("restart inside a life", restart_inside_a_life, "recovery", ROLLS),
    Mutant("a voter forgets", a_voter_forgets, "recovery", complaint="V"),
    Mutant("no read before writing", no_read_before_writing, "recovery", complaint="V"),
    Mutant("one less than a majority", one_less_than_a_majority, "recovery", RIVALS, complaint="V", known=4),
    Mutant("commit without SYNC", commit_without_sync, "recovery", OUTAGES, complaint="V3", is_slow=True),
    Mutant("lateness is judged again", lateness_is_judged_again, "recovery", OUTAGES, complaint="V3", known=24),
    Mutant("overtaken rows are not saved", overtaken_rows_are_not_saved, "scaling", SILENCES),
    Mutant("fragments go too early", fragments_go_too_early, "recovery", ROLLS, complaint="V"),
    Mutant("links go too early", links_go_too_early, "recovery", ROLLS, known=8),
    Mutant("a chain is not said", a_chain_is_not_said, "recovery", ROLLS, complaint="V"),
    Mutant(
        "rests on what is not committed", rests_on_what_is_not_committed, "recovery", STALLS, complaint="V", known=14
    ),
    Mutant("queued rows stay", queued_rows_stay, "recovery", MOVES),
    Mutant("new channels are not counted", new_channels_are_not_counted, "recovery", MOVES),
    Mutant("state is not handed over", state_is_not_handed_over, "recovery", MOVES),
    Mutant("a sender switches late", a_sender_switches_late, "recovery", MOVES),
    Mutant("epoch without its plan", epoch_without_its_plan, "scaling", MOVES_AND_KILLS, is_slow=True),
    Mutant("plan before its epoch", plan_before_its_epoch, "recovery", MOVES),
    Mutant("a position is saved before its rows", a_position_is_saved_before_its_rows_are_out, "recovery", ROLLS),
    Mutant("a step is not started anew", a_step_in_the_register_is_not_started_anew, "recovery", ROLLS, complaint="V"),
    Mutant("a saved step counts as stateless", a_saved_step_is_taken_for_one_without_state, "recovery", ROLLS),
    Mutant("a write while idle", epochs_are_written_while_idle, "recovery", MIXED, complaint="V9", known=25),
]
