"""Instances of the virtual pipeline: a source, a stage with state that merges by position, a sink.

Each is a small machine on a carrier of frames. A stage does not hold back rows that came ahead of a barrier on a fast input: it
releases rows up to the least watermark of all inputs, so its snapshot may hold effects of rows behind the barrier. Those are
dropped when they come again, which is why they must come again exactly alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, Plan
from agiledart_simulation.pipeline.pipeline_messages import (
    END,
    START,
    Barrier,
    InputPosition,
    InstanceState,
    PipelineRow,
    PipelineRows,
    Position,
)
from agiledart_simulation.pipeline.tables import (
    JOINED,
    JOINED_INDEX,
    OTHERS,
    SHARED,
    group_of,
    is_shared,
    joins,
    other_side,
    owned,
    owner_of,
    sources_of,
    tables_of,
    targets_of,
)


class InstanceEngine(Protocol):
    """Functions that an instance needs of its engine."""

    def send(self, source: InstanceId, target: InstanceId, body: PipelineRows | Barrier) -> None:
        """Send a body; the engine repeats it until it is acknowledged."""
        ...

    def read(self, mine: Assignment, number: int) -> PipelineRow | Position | None:
        """Return the next row of a source, its end, or None while there is none."""
        ...

    def source_prepared(
        self, source: "VirtualSource", epoch: int, after: Plan | None, *, has_ended: bool = False
    ) -> None:
        """Note that a source has sent a barrier."""
        ...

    def made(self, stage: "VirtualStage", rows: list[PipelineRow], watermark: Position) -> None:
        """Take rows that leave a stage."""
        ...

    def stage_barrier(self, stage: "VirtualStage", epoch: int, memory: InstanceState, after: Plan | None) -> None:
        """Note that a barrier has come through all inputs."""
        ...

    def stage_ended(self, stage: "VirtualStage") -> None:
        """Note that no input is left."""
        ...

    def is_blocked(self, instance: InstanceId) -> bool:
        """Return whether too many rows of an instance wait for credit."""
        ...

    def released(self, stage: "VirtualStage", source: InstanceId) -> None:
        """Note that rows of an input were released."""
        ...

    def broken(self, reason: str) -> None:
        """Report that this attempt cannot continue here."""
        ...

    def report_violation(self, line: str) -> None:
        """Report a violation."""
        ...


class VirtualSource:
    """Source that reads rows and sends barriers between them.

    Attributes:
        position: number of the next row.
        passed: the last barrier that it sent.
    """

    def __init__(self, engine: InstanceEngine, mine: Assignment, plan: Plan, position: int, passed: int) -> None:
        self.engine, self.mine, self.plan, self.position, self.passed = engine, mine, plan, position, passed
        self.instance = mine.instance
        self.watermark = START
        self.has_ended = False

    def pump(self) -> None:
        """Send the next row, or the end."""
        if self.has_ended or self.engine.is_blocked(self.instance):
            return
        row = self.engine.read(self.mine, self.position)
        if row is None:
            return
        if isinstance(row, PipelineRow):
            self.position += 1
            self.watermark = row.at
            self._send(PipelineRows((row,), row.at))
        else:
            self.has_ended = True
            self._send(PipelineRows((), END))
            self.engine.source_prepared(self, self.passed + 1, None, has_ended=True)

    def barrier(self, epoch: int, after: Plan | None) -> None:
        """Send a barrier, and before it those that were missed."""
        if self.has_ended:
            return
        for missed in range(self.passed + 1, epoch):
            self._send(Barrier(missed, self.watermark, None))
            self.engine.source_prepared(self, missed, None)
        if epoch > self.passed:
            self.passed = epoch
            self._send(Barrier(epoch, self.watermark, after))
            self.plan = after or self.plan
            self.engine.source_prepared(self, epoch, after)

    def _send(self, body: PipelineRows | Barrier) -> None:
        send_all(self.engine, self.plan, self.instance, body)


def send_all(engine: InstanceEngine, plan: Plan, source: InstanceId, body: PipelineRows | Barrier) -> None:
    """Send a body to all instances downstream: rows to the owners of their groups, barriers and watermarks to all."""
    tables = tables_of(plan)
    for stage in targets_of(plan, source.stage):
        rows: dict[InstanceId, list[PipelineRow]] = {}
        for row in body.rows if isinstance(body, PipelineRows) else ():
            receivers = (
                [receiver.instance for receiver in plan.stage(stage)] if is_shared(tables, source.stage, stage) else ()
            )
            for instance in receivers or (owner_of(plan, tables, stage, row),):
                rows.setdefault(instance, []).append(row)
        for assignment in plan.stage(stage):
            own = (
                PipelineRows(tuple(rows.get(assignment.instance, ())), body.watermark)
                if isinstance(body, PipelineRows)
                else body
            )
            engine.send(source, assignment.instance, own)


@dataclass
class VirtualInput:
    """One input: its watermark, its waiting rows, its last barrier and the watermark at each barrier.

    Attributes:
        frames: last position of each frame whose rows are not all released; `released`: number of the others.
    """

    watermark: Position = START
    queue: list[PipelineRow] = field(default_factory=list)
    passed: int = 0
    cuts: dict[int, Position] = field(default_factory=dict)
    ended: bool = False
    closed: int = 0
    frames: list[Position] = field(default_factory=list)
    released: int = 0


class VirtualStage:
    """Instance of a stage, or the sink: inputs, a frontier, and a count of rows for each of its groups."""

    def __init__(
        self, engine: InstanceEngine, mine: Assignment, plan: Plan, memory: InstanceState, passed: int
    ) -> None:
        self.engine, self.mine, self.plan, self.instance = engine, mine, plan, mine.instance
        self.counts, self.frontier, self.pool = dict(memory.counts), memory.frontier, list(memory.held)
        self.others = dict(memory.others)
        self.floor = memory.frontier
        self.out_watermark = memory.frontier if memory.frontier != END else START
        self.passed = self.wanted = passed
        self.early_until = 0  # frames before this barrier of a change count as released
        self.changes: dict[int, Plan | None] = {}
        self.has_ended = self.has_stopped = False
        self.inputs: dict[InstanceId, VirtualInput] = {}
        if memory.inlets:
            for inlet in memory.inlets:
                self.inputs[inlet.source] = VirtualInput(inlet.watermark, [], inlet.passed, {}, inlet.ended)
        else:
            for source in sources_of(plan, self.instance.stage):
                self.inputs[source] = VirtualInput(START, [], passed)

    def knows(self, source: InstanceId) -> bool:
        """Return whether frames of an instance may come. Those of a generation that no barrier has announced wait."""
        return source in self.inputs and not self.has_stopped and not self.inputs[source].closed

    def take(self, source: InstanceId, body: PipelineRows | Barrier) -> None:
        """Take the next frame of an input."""
        inlet = self.inputs[source]
        if isinstance(body, Barrier):
            inlet.passed, inlet.watermark = body.epoch, max(inlet.watermark, body.watermark)
            inlet.cuts[body.epoch] = inlet.watermark
            if self.changes.setdefault(body.epoch, body.after) != body.after:
                self.engine.broken(f"two requests under epoch {body.epoch}")
                return
            if body.after is not None:
                self.early_until = body.epoch
                self._end_channel(source, body, body.after)
        else:
            inlet.queue.extend(row for row in body.rows if row.at > self.frontier)
            if body.rows:
                inlet.frames.append(body.rows[-1].at)
            inlet.watermark = max(inlet.watermark, body.watermark)
            inlet.ended |= body.watermark == END
        self.advance()

    def _end_channel(self, source: InstanceId, barrier: Barrier, after: Plan) -> None:
        """Close a channel: the barrier of a change is its last frame when its sender or receiver takes a new generation."""
        moves = self._moves(after)
        stays = any(assignment.instance == source for assignment in after.stage(source.stage))
        if moves or not stays:
            self.inputs[source].closed = barrier.epoch
        if not moves and not stays:
            for assignment in after.stage(source.stage):  # all of them, before a stage that waits for them is checked
                # Rows over these channels lie behind the barrier: this instance's own snapshot holds nothing of them.
                cuts = {barrier.epoch: barrier.watermark}
                self.inputs.setdefault(assignment.instance, VirtualInput(barrier.watermark, [], barrier.epoch, cuts))

    def _moves(self, after: Plan | None) -> bool:
        return after is not None and all(
            assignment.instance != self.instance for assignment in after.stage(self.instance.stage)
        )

    def advance(self) -> None:
        """Release rows up to the least watermark, pass barriers that came through all inputs, and end."""
        while not self.has_stopped and not self.has_ended:
            open_inputs = [stage_input for stage_input in self.inputs.values() if not stage_input.ended]
            at = [stage_input.passed for stage_input in open_inputs]
            # Where all inputs have ended, no channel brings a barrier, and the stage begins it.
            low = min(at) if at else max(self.wanted, *(stage_input.passed for stage_input in self.inputs.values()))
            if not self.engine.is_blocked(self.instance):
                self.work()
            if low <= self.passed or (self._moves(self.changes.get(self.passed + 1)) and self._has_released):
                break
            self.barrier(self.passed + 1)
        if (
            not self.has_stopped
            and not self.has_ended
            and all(stage_input.ended for stage_input in self.inputs.values())
            and not self._has_released
        ):
            self.has_ended = True
            self.engine.stage_ended(self)

    @property
    def _least(self) -> Position:
        """Position up to which rows may be released."""
        low = min((stage_input.watermark for stage_input in self.inputs.values()), default=self.frontier)
        return max(self.frontier, low)

    @property
    def _has_released(self) -> bool:
        """Return whether the frontier may advance, which waits for credit of the outputs."""
        return self._least > self.frontier

    def released_frames(self, source: InstanceId) -> int:
        """Return how many frames of an input need no credit any more."""
        inlet = self.inputs.get(source)
        if inlet is None:
            return 0
        is_early = self.early_until and self.early_until not in inlet.cuts
        return inlet.released + (len(inlet.frames) if is_early else 0)

    def work(self) -> None:
        """Release rows up to the least watermark."""
        upto = self._least
        ready = [row for row in self.pool if row.at <= upto]
        self.pool = [row for row in self.pool if row.at > upto]
        for stage_input in self.inputs.values():
            ready += [row for row in stage_input.queue if row.at <= upto]
            stage_input.queue = [row for row in stage_input.queue if row.at > upto]
        made = []
        for row in sorted(ready, key=lambda row: row.at):
            group, is_of_all = group_of(self.instance.stage, row), self._is_of_all(row)
            if group not in owned(self.plan, self.instance) and not is_of_all:
                self.engine.report_violation(f"S1: {self.instance} got a row of group {group}, which it does not own")
                return
            joined_count = self._joined(row)
            if group in owned(self.plan, self.instance):
                self.counts[group] = self.counts.get(group, 0) + 1
                made.append(
                    PipelineRow(row.at, row.number, row.salt, (*row.counts, self.counts[group] + OTHERS * joined_count))
                )
        for source, stage_input in self.inputs.items():
            count = sum(at <= upto for at in stage_input.frames)
            if count:
                del stage_input.frames[:count]
                stage_input.released += count
                self.engine.released(self, source)
        if upto > self.frontier:
            self.frontier = upto
            # The end itself leaves behind the last barrier, see `stage_ended`.
            self.out_watermark = upto if upto != END else max([self.out_watermark, *(row.at for row in made)])
            self.engine.made(self, made, self.out_watermark)

    def _is_of_all(self, row: PipelineRow) -> bool:
        """Return whether a row comes to all instances: its group's owner counts it, the others remember it."""
        return row.at[1] == JOINED_INDEX and is_shared(tables_of(self.plan), JOINED, self.instance.stage)

    def _joined(self, row: PipelineRow) -> int:
        """Return the count of the other side so far, this row included."""
        stage = self.instance.stage
        if not joins(self.plan, stage):
            return 0
        side = other_side(self.plan, tables_of(self.plan), stage, row)
        if row.at[1] == JOINED_INDEX:
            self.others[side] = self.others.get(side, 0) + 1
        return self.others.get(side, 0)

    def barrier(self, epoch: int) -> None:
        """Pass a barrier that has come through all inputs."""
        after = self.changes.pop(epoch, None)
        moves = self._moves(after)
        if moves and not self.is_caught_up:
            self.engine.broken(f"{self.instance} has not caught up at the change of epoch {epoch}")
            return
        self.passed = epoch
        self.has_stopped = moves
        self.engine.stage_barrier(self, epoch, self.previous_state() if moves else self.memory(epoch), after)
        self.plan = after or self.plan
        self.early_until = 0 if after is not None else self.early_until
        for source in [source for source, stage_input in self.inputs.items() if 0 < stage_input.closed <= epoch]:
            self.pool += self.inputs.pop(source).queue

    def previous_state(self) -> InstanceState:
        """Return what an old instance leaves: its whole state, and the position of each input."""
        inlets = tuple(
            InputPosition(source, stage_input.watermark, stage_input.passed, stage_input.ended)
            for source, stage_input in self.inputs.items()
        )
        return InstanceState(
            self.counts, self.frontier, self._held([*self.inputs.values()], epoch=None), inlets, self.others
        )

    def _held(self, inputs: Sequence[VirtualInput], epoch: int | None) -> tuple[PipelineRow, ...]:
        rows = list(self.pool)
        for stage_input in inputs:
            cut = END if epoch is None else stage_input.cuts.pop(epoch, stage_input.watermark)
            rows += [row for row in stage_input.queue if row.at <= cut]
        return tuple(sorted(rows, key=lambda row: row.at))

    def memory(self, epoch: int) -> InstanceState:
        """Return what is saved at a barrier: the state, and rows that came before it and still wait."""
        held = self._held(list(self.inputs.values()), epoch)
        return InstanceState(dict(self.counts), self.frontier, held, others=dict(self.others))

    @property
    def is_caught_up(self) -> bool:
        """Return whether all inputs have reached the watermark at which its state was saved."""
        return min((stage_input.watermark for stage_input in self.inputs.values()), default=END) >= self.floor


def joined(
    stage: str,
    groups: Sequence[int],
    parts: Sequence[InstanceState],
    plan: Plan | None,
    epoch: int,
    *,
    shares: bool = False,
) -> InstanceState:
    """Return the initial state of an instance from the states of its predecessors: its groups, their rows, and input positions.

    Args:
        shares: rows of the second source go to all instances of the stage.
        plan: that begins with the barrier of `epoch`, for an instance that is handed over; None: a restored one, whose inputs
            begin
            anew.
    """
    counts = {group: count for part in parts for group, count in part.counts.items() if group in groups}
    others = {group: count for part in parts for group, count in part.others.items() if group in (*groups, SHARED)}
    mine = [row for part in parts for row in part.held if group_of(stage, row) in groups]
    if shares:  # each of the predecessors has them all
        mine += [row for row in parts[0].held if row.at[1] == JOINED_INDEX]
    held = sorted({row.at: row for row in mine}.values(), key=lambda row: row.at)
    frontier = max((part.frontier for part in parts), default=START)
    inlets: dict[InstanceId, InputPosition] = {}
    if plan is not None:
        known = {inlet.source: inlet for part in parts for inlet in part.inlets}
        for source in sources_of(plan, stage):
            low = min(
                (inlet.watermark for inlet in known.values() if inlet.source.stage == source.stage), default=frontier
            )
            inlets[source] = known.get(source, InputPosition(source, low, epoch, False))
    sent = parts[0].sent if plan is None and len(parts) == 1 else ()  # its own, so a barrier without a change
    return InstanceState(counts, frontier, tuple(held), tuple(inlets.values()), others, sent)
