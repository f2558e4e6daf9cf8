"""Engine of one attempt of a run on one virtual node: its instances, and channels that lose nothing while both ends live.

A channel numbers its frames, and resends unacknowledged ones. It has credit for a few frames with rows that the receiver has not
released. Further rows wait at the sender, and a barrier without a change overtakes them. Frames of another attempt are dropped. A
frame for an instance that is not there, or from a sender that no barrier has announced, is not acknowledged, so it comes again:
that is how it waits.
"""

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from agiledart_kernel.codec import encode
from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.machine import Message
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import EnterAttempt, MakeGenerationReady, TakeOver
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import Assignment, InstanceRole, Plan
from agiledart_simulation.pipeline.disk import Disk
from agiledart_simulation.pipeline.instances import VirtualSource, VirtualStage, joined, send_all
from agiledart_simulation.pipeline.pipeline_messages import (
    END,
    START,
    Barrier,
    FrameAck,
    InstanceState,
    PipelineFrame,
    PipelineRow,
    PipelineRows,
    Position,
    SentRows,
    source_state,
)
from agiledart_simulation.pipeline.tables import JOINED, is_shared, joins, owned, tables_of

_RESEND_NS = 300 * MILLISECOND
_WINDOW = 32
_ROWS_A_PUMP = 8
_CREDIT = 6
"""Frames with rows that the receiver may hold."""
_BOUND = 4
"""Bodies that may wait for credit before their sender pauses."""
_ACKNOWLEDGE_NS = 1_000 * MILLISECOND


class EngineHost(Protocol):
    """Functions that an engine needs of its node."""

    now: Instant
    disk: Disk

    def send(self, to: Peer, message: Message) -> None:
        """Send a message, also to this node itself."""
        ...

    def reached(self, what: str) -> None:
        """Count a named event."""
        ...

    def read(self, mine: Assignment, number: int) -> PipelineRow | Position | None:
        """Return a source's row."""
        ...

    def store_position(
        self,
        engine: "PipelineEngine",
        source: VirtualSource,
        checkpoint: CheckpointId,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """Store the position of a source that has sent a barrier."""
        ...

    def store_snapshot(
        self,
        engine: "PipelineEngine",
        stage: VirtualStage,
        checkpoint: CheckpointId,
        raw: bytes,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """Store the state of a stage."""
        ...

    def store_rows(
        self,
        engine: "PipelineEngine",
        stage: VirtualStage,
        checkpoint: CheckpointId,
        raw: bytes,
        rows: list[PipelineRow],
        end: int,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """Store a sink's rows before a barrier."""
        ...

    def broken(self, engine: "PipelineEngine", reason: str) -> None:
        """Report that this attempt cannot continue here."""
        ...

    def report_violation(self, line: str) -> None:
        """Report a violation."""
        ...


class OutputChannel:
    """Channel from one instance to another.

    Attributes:
        waiting: bodies that are not sent, in order.
        row_frames: frames with rows that were sent; `released`: those of them that the receiver has released.
    """

    def __init__(self) -> None:
        self.number = self.row_frames = self.released = 0
        self.waiting: list[PipelineRows | Barrier] = []
        self.unacknowledged: list[PipelineFrame] = []
        self.quiet_since = 0


@dataclass
class PreparedGeneration:
    """Preparation for a plan that may come.

    It has the instances that have not begun, the preloaded state of old ones (snapshot digest and state), and the state that
    old ones have handed over.
    """

    before: Plan
    plan: Plan
    instances: dict[InstanceId, Assignment]
    previous_state: dict[InstanceId, InstanceState] = field(default_factory=dict)
    built: dict[InstanceId, tuple[bytes, bytes]] = field(default_factory=dict)


class PipelineEngine:
    """Instances of one attempt on this node. `volatile` rows of the sink are in memory only.

    `has_passed_rows`: rows were read or released here since the host has looked.
    """

    def __init__(self, host: EngineHost, entry: EnterAttempt, memories: dict[InstanceId, InstanceState]) -> None:
        self.host, self.run, self.attempt, self.plan = host, entry.run, entry.attempt, entry.plan
        self.where: dict[InstanceId, Peer] = {
            assignment.instance: assignment.host for assignment in entry.plan.assignments
        }
        self.sources: dict[InstanceId, VirtualSource] = {}
        self.stages: dict[InstanceId, VirtualStage] = {}
        self.volatile: list[PipelineRow] = []
        self.sink_end = len(host.disk.part.rows)
        self.is_started = self.has_passed_rows = False
        self._outlets: dict[tuple[InstanceId, InstanceId], OutputChannel] = {}
        self._taken: dict[tuple[InstanceId, InstanceId], int] = {}
        self._base = entry.base
        self._acknowledged_at = host.now
        self.waiting: dict[bytes, PreparedGeneration] = {}
        positions = {saved.instance: saved.position for saved in entry.saved}
        for instance, memory in memories.items():
            self._resume(instance, memory.sent)
        for mine in entry.assignments:
            if mine.role is InstanceRole.SOURCE:
                state = source_state(positions.get(mine.instance, b""))
                self._resume(mine.instance, state.sent)
                self.sources[mine.instance] = VirtualSource(self, mine, self.plan, state.position, entry.base)
            else:
                memory = memories.get(mine.instance, InstanceState({}, START, ()))
                self.stages[mine.instance] = VirtualStage(self, mine, self.plan, memory, entry.base)

    # ---- channels

    def send(self, source: InstanceId, target: InstanceId, body: PipelineRows | Barrier) -> None:
        """Send a body when there is credit; the channel repeats it until it is acknowledged."""
        outlet = self._outlets.setdefault((source, target), OutputChannel())
        if isinstance(body, Barrier):
            self.learn(body.after)
            if body.after is None and not any(isinstance(waiting, Barrier) for waiting in outlet.waiting):
                if outlet.waiting:
                    self.host.reached("rows overtaken")
                    body = Barrier(body.epoch, START, None)
                self._send_frame(source, target, outlet, body)
                return
        outlet.waiting.append(body)
        self._send_waiting(source, target, outlet)

    def _send_waiting(self, source: InstanceId, target: InstanceId, outlet: OutputChannel) -> None:
        """Send what has credit; the end of the input needs none."""
        ends = any(isinstance(body, PipelineRows) and body.watermark == END for body in outlet.waiting)
        while outlet.waiting:
            body = outlet.waiting[0]
            has_rows = isinstance(body, PipelineRows) and len(body.rows) > 0
            if has_rows and not ends and outlet.row_frames - outlet.released >= _CREDIT:
                return
            outlet.waiting.pop(0)
            outlet.row_frames += has_rows
            self._send_frame(source, target, outlet, body)

    def _resume(self, instance: InstanceId, sent: SentRows) -> None:
        """Let the rows leave first that the barrier overtook from which this attempt begins."""
        for target, waiting in sent:
            self._outlets.setdefault((instance, target), OutputChannel()).waiting += waiting

    def is_blocked(self, instance: InstanceId) -> bool:
        """Return whether too many rows of an instance wait for credit."""
        return any(
            source == instance and len(outlet.waiting) >= _BOUND for (source, _), outlet in self._outlets.items()
        )

    def overtaken(self, instance: InstanceId) -> SentRows:
        """Return what a barrier without a change overtakes in the channels of an instance."""
        return tuple(
            (target, tuple(body for body in outlet.waiting if isinstance(body, PipelineRows)))
            for (source, target), outlet in self._outlets.items()
            if source == instance and outlet.waiting and not any(isinstance(body, Barrier) for body in outlet.waiting)
        )

    def _send_frame(
        self, source: InstanceId, target: InstanceId, outlet: OutputChannel, body: PipelineRows | Barrier
    ) -> None:
        outlet.number += 1
        frame = PipelineFrame(self.attempt, source, target, outlet.number, body)
        if not outlet.unacknowledged:
            outlet.quiet_since = self.host.now
        outlet.unacknowledged.append(frame)
        if len(outlet.unacknowledged) <= _WINDOW:
            self.host.send(self.where[target], frame)

    def learn(self, plan: Plan | None) -> None:
        """Learn the hosts of another plan, from a barrier."""
        if plan is not None:
            self.where.update({assignment.instance: assignment.host for assignment in plan.assignments})

    def resend(self) -> None:
        """Resend frames that have been unacknowledged for a while."""
        for (_, target), outlet in self._outlets.items():
            if outlet.unacknowledged and self.host.now - outlet.quiet_since > _RESEND_NS:
                outlet.quiet_since = self.host.now
                for frame in outlet.unacknowledged[:_WINDOW]:
                    self.host.send(self.where[target], frame)
        if (
            self.host.now - self._acknowledged_at > _ACKNOWLEDGE_NS
        ):  # an acknowledgement may be lost, and credit with it
            self._acknowledged_at = self.host.now
            for source, target in self._taken:
                self._acknowledge(source, target)

    def _acknowledge(self, source: InstanceId, target: InstanceId) -> None:
        stage, taken = self.stages.get(target), self._taken.get((source, target), 0)
        if stage is not None and source in self.where:
            ack = FrameAck(self.attempt, source, target, taken, stage.released_frames(source))
            self.host.send(self.where[source], ack)

    def released(self, stage: VirtualStage, source: InstanceId) -> None:
        """Give credit back for released rows."""
        self._acknowledge(source, stage.instance)

    def on_ack(self, ack: FrameAck) -> None:
        """Take an acknowledgement."""
        outlet = self._outlets.get((ack.source, ack.target))
        if outlet is None or not self.is_current_attempt(ack.attempt):
            return
        outlet.released = max(outlet.released, ack.released)
        before = len(outlet.unacknowledged)
        outlet.unacknowledged = [frame for frame in outlet.unacknowledged if frame.number > ack.number]
        if len(outlet.unacknowledged) < before:
            outlet.quiet_since = self.host.now
            for frame in outlet.unacknowledged[_WINDOW - (before - len(outlet.unacknowledged)) : _WINDOW]:
                self.host.send(self.where[ack.target], frame)
        if outlet.waiting:
            self._send_waiting(ack.source, ack.target, outlet)
            if (stage := self.stages.get(ack.source)) is not None:
                stage.advance()

    def is_current_attempt(self, attempt: int) -> bool:
        """Return whether frames of an attempt are accepted: the fence of the data path."""
        return attempt == self.attempt

    def on_frame(self, sender: Peer, frame: PipelineFrame) -> None:
        """Take the next frame of a channel; ignore all others."""
        if not self.is_current_attempt(frame.attempt):
            return
        key = (frame.source, frame.target)
        expected = self._taken.get(key, 0) + 1
        if frame.number == expected and self._takes(frame):
            self._taken[key] = expected
            if isinstance(frame.body, Barrier):
                self.learn(frame.body.after)
            self.stages[frame.target].take(frame.source, frame.body)
        if frame.number <= self._taken.get(key, 0):
            stage = self.stages.get(frame.target)
            released = 0 if stage is None else stage.released_frames(frame.source)
            self.host.send(sender, FrameAck(frame.attempt, *key, self._taken[key], released))

    def _takes(self, frame: PipelineFrame) -> bool:
        stage = self.stages.get(frame.target)
        return stage is not None and stage.knows(frame.source)

    # ---- a new generation

    def make_ready(self, effect: MakeGenerationReady) -> None:
        """Prepare for a plan that may come with a barrier; its local instances wait to be handed over."""
        self.learn(effect.after)
        self.waiting[effect.after.digest] = PreparedGeneration(
            effect.before, effect.after, {assignment.instance: assignment for assignment in effect.assignments}
        )

    def drop_generation(self, digest: bytes) -> None:
        """Drop the preparation for a plan."""
        self.waiting.pop(digest, None)

    def committed(self, plan: Plan) -> None:
        """Note a committed plan: when none of its instances waits any more, the preparation is done."""
        waiting = self.waiting.get(plan.digest)
        if waiting is not None and not waiting.instances:
            del self.waiting[plan.digest]

    def take_over(self, effect: TakeOver, memory: InstanceState) -> None:
        """Take over from an old instance. A new instance begins when all of its groups are handed over, not at a request."""
        waiting = self.waiting.get(effect.digest)
        if waiting is None:
            return
        old = effect.saved.instance
        waiting.previous_state.setdefault(old, memory)
        before = tables_of(waiting.before).get(old.stage)
        for instance, mine in list(waiting.instances.items()):
            if instance.stage == old.stage:
                groups = owned(waiting.plan, instance)
                owners = [before[group] if before else 0 for group in groups]
                parts = {
                    old_instance.index: part
                    for old_instance, part in waiting.previous_state.items()
                    if old_instance.stage == instance.stage
                }
                if all(owner in parts for owner in owners):
                    shares = is_shared(tables_of(waiting.plan), JOINED, instance.stage)
                    left = list(parts.values())
                    memory = joined(instance.stage, groups, left, waiting.plan, effect.epoch, shares=shares)
                    self._begin(waiting, mine, memory)
                    if joins(waiting.plan, instance.stage):
                        self.host.reached("shared state handed" if shares else "join handed")
        if not waiting.instances:
            del self.waiting[effect.digest]

    def _begin(self, waiting: "PreparedGeneration", mine: Assignment, memory: InstanceState) -> None:
        del waiting.instances[mine.instance]
        stage = self.stages[mine.instance] = VirtualStage(self, mine, waiting.plan, memory, memory.inlets[0].passed)
        stage.passed = max(inlet.passed for inlet in memory.inlets)
        self.host.reached("handed")
        stage.advance()

    # ---- sources

    def read(self, mine: Assignment, number: int) -> PipelineRow | Position | None:
        """Return the next row of a source, its end, or None while there is none."""
        return self.host.read(mine, number)

    def pump(self) -> None:
        """Let sources read, and channels resend."""
        if self.is_started:
            for (instance, target), outlet in self._outlets.items():
                self._send_waiting(instance, target, outlet)
            for source in list(self.sources.values()):
                before = -1
                for _ in range(_ROWS_A_PUMP):
                    if source.position == before or source.has_ended:
                        break
                    before = source.position
                    source.pump()
                    self.has_passed_rows |= source.position > before
        self.resend()

    def barrier(self, epoch: int, after: Plan | None) -> None:
        """Let sources send a barrier, and stages whose inputs have ended; behind a change merges release early."""
        self.is_started = True
        self.learn(after)
        for stage in list(self.stages.values()):
            if after is None:
                stage.wanted = max(stage.wanted, epoch)
                stage.advance()
            elif stage.passed < epoch:
                stage.early_until = epoch
                for input_source in stage.inputs:
                    self._acknowledge(input_source, stage.instance)
        for source in self.sources.values():
            source.barrier(epoch, after)

    def source_prepared(
        self, source: VirtualSource, epoch: int, after: Plan | None, *, has_ended: bool = False
    ) -> None:
        """Store the position of a source that has sent a barrier; it is prepared once its log is on the disk up to there."""
        self.host.store_position(self, source, CheckpointId(self.attempt, epoch), after, has_ended=has_ended)

    # ---- stages

    def made(self, stage: VirtualStage, rows: list[PipelineRow], watermark: Position) -> None:
        """Pass on rows that leave a stage; keep those of the sink."""
        self.has_passed_rows |= bool(rows)
        if stage.mine.role is InstanceRole.SINK:
            self.volatile += [PipelineRow(row.at, row.number, row.salt, row.counts[:-1]) for row in rows]
            return
        send_all(self, stage.plan, stage.instance, PipelineRows(tuple(rows), watermark))

    def stage_barrier(self, stage: VirtualStage, epoch: int, memory: InstanceState, after: Plan | None) -> None:
        """Pass on a barrier that has come through all inputs at once, and write the snapshot."""
        checkpoint = CheckpointId(self.attempt, epoch)
        if stage.mine.role is InstanceRole.SINK:
            self._flush(stage, checkpoint, memory, after, has_ended=False)
            return
        if after is None:
            memory = msgspec.structs.replace(memory, sent=self.overtaken(stage.instance))
        send_all(self, stage.plan, stage.instance, Barrier(epoch, stage.out_watermark, after))
        self.host.store_snapshot(self, stage, checkpoint, encode(memory), after, has_ended=False)

    def stage_ended(self, stage: VirtualStage) -> None:
        """Pass on the end of a stage that has no input left."""
        checkpoint = CheckpointId(self.attempt, stage.passed + 1)
        if stage.mine.role is InstanceRole.SINK:
            self._flush(stage, checkpoint, stage.memory(0), None, has_ended=True)
            return
        send_all(self, stage.plan, stage.instance, PipelineRows((), END))
        self.host.store_snapshot(self, stage, checkpoint, encode(stage.memory(0)), None, has_ended=True)

    def _flush(
        self,
        stage: VirtualStage,
        checkpoint: CheckpointId,
        memory: InstanceState,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        rows, self.volatile = self.volatile, []
        self.sink_end += len(rows)
        self.host.store_rows(self, stage, checkpoint, encode(memory), rows, self.sink_end, after, has_ended=has_ended)

    def report_violation(self, line: str) -> None:
        """Report a violation."""
        self.host.report_violation(line)

    def broken(self, reason: str) -> None:
        """Report that this attempt cannot continue here."""
        self.host.broken(self, reason)
