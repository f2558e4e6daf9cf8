"""Instances: a source, a stage with state that merges by position, a sink.

Each is a small machine on a carrier of frames. A stage does not hold back what came ahead of a barrier on a fast input: it
releases rows as far as all inputs have promised, so its snapshot may hold effects of rows behind the barrier. They are dropped
when they come again, which is why they must come again exactly alike.
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
    """What a party needs of the engine that it runs on."""

    def send(self, source: InstanceId, target: InstanceId, body: PipelineRows | Barrier) -> None:
        """Say something; it is said again until it is acknowledged."""
        ...

    def read(self, mine: Assignment, number: int) -> PipelineRow | Position | None:
        """The next row of a source, its end, or nothing yet."""
        ...

    def source_prepared(
        self, source: "VirtualSource", epoch: int, after: Plan | None, *, has_ended: bool = False
    ) -> None:
        """A source has sent a barrier."""
        ...

    def made(self, stage: "VirtualStage", rows: list[PipelineRow], watermark: Position) -> None:
        """Rows leave a stage."""
        ...

    def stage_barrier(self, stage: "VirtualStage", epoch: int, memory: InstanceState, after: Plan | None) -> None:
        """A barrier has come through all inputs."""
        ...

    def stage_ended(self, stage: "VirtualStage") -> None:
        """No input is left."""
        ...

    def broken(self, reason: str) -> None:
        """This life cannot go on here."""
        ...

    def wrong(self, line: str) -> None:
        """Something that must never be so."""
        ...


class VirtualSource:
    """Reads rows and sends barriers between them.

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
        if self.has_ended:
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
    """Say it to all instances downstream: rows to the owners of their groups, barriers and marks to everybody."""
    tables = tables_of(plan)
    for stage in targets_of(plan, source.stage):
        rows: dict[InstanceId, list[PipelineRow]] = {}
        for row in body.rows if isinstance(body, PipelineRows) else ():
            everybody = [each.instance for each in plan.stage(stage)] if is_shared(tables, source.stage, stage) else ()
            for instance in everybody or (owner_of(plan, tables, stage, row),):
                rows.setdefault(instance, []).append(row)
        for each in plan.stage(stage):
            own = (
                PipelineRows(tuple(rows.get(each.instance, ())), body.watermark)
                if isinstance(body, PipelineRows)
                else body
            )
            engine.send(source, each.instance, own)


@dataclass
class VirtualInput:
    """One input: what was promised, what waits, which barrier came last and where it stood."""

    watermark: Position = START
    queue: list[PipelineRow] = field(default_factory=list)
    passed: int = 0
    cuts: dict[int, Position] = field(default_factory=dict)
    ended: bool = False
    closed: int = 0


class VirtualStage:
    """An instance of a stage, or the sink: inputs, a frontier, and a count of rows for each of its groups."""

    def __init__(
        self, engine: InstanceEngine, mine: Assignment, plan: Plan, memory: InstanceState, passed: int
    ) -> None:
        self.engine, self.mine, self.plan, self.instance = engine, mine, plan, mine.instance
        self.counts, self.frontier, self.pool = dict(memory.counts), memory.frontier, list(memory.held)
        self.others = dict(memory.others)
        self.floor = memory.frontier
        self.out_watermark = memory.frontier if memory.frontier != END else START
        self.passed = passed
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
        """Whether frames of a party may come: one of a term that no barrier has told of waits."""
        return source in self.inputs and not self.has_stopped and not self.inputs[source].closed

    def take(self, source: InstanceId, body: PipelineRows | Barrier) -> None:
        """The next frame of an input."""
        inlet = self.inputs[source]
        if isinstance(body, Barrier):
            inlet.passed, inlet.watermark = body.epoch, max(inlet.watermark, body.watermark)
            inlet.cuts[body.epoch] = inlet.watermark
            if self.changes.setdefault(body.epoch, body.after) != body.after:
                self.engine.broken(f"two requests under epoch {body.epoch}")
                return
            if body.after is not None:
                self._end_channel(source, body, body.after)
        else:
            inlet.queue.extend(row for row in body.rows if row.at > self.frontier)
            inlet.watermark = max(inlet.watermark, body.watermark)
            inlet.ended |= body.watermark == END
        self.advance()

    def _end_channel(self, source: InstanceId, barrier: Barrier, after: Plan) -> None:
        """The barrier of a change is the last frame of a channel whose sender or receiver takes a new term."""
        moves = self._moves(after)
        stays = any(each.instance == source for each in after.stage(source.stage))
        if moves or not stays:
            self.inputs[source].closed = barrier.epoch
        if not moves and not stays:
            for each in after.stage(source.stage):  # all of them, before anything that waits for them is looked at
                # What comes over them lies behind the barrier: this instance's own element holds nothing of it.
                cuts = {barrier.epoch: barrier.watermark}
                self.inputs.setdefault(each.instance, VirtualInput(barrier.watermark, [], barrier.epoch, cuts))

    def _moves(self, after: Plan | None) -> bool:
        return after is not None and all(each.instance != self.instance for each in after.stage(self.instance.stage))

    def advance(self) -> None:
        """Release what all inputs have promised, pass barriers that came through all of them, end."""
        while not self.has_stopped:
            open_inputs = [each for each in self.inputs.values() if not each.ended]
            at = [open_input.passed for open_input in open_inputs]
            low = min(at) if at else max((each.passed for each in self.inputs.values()), default=0)
            self.work()
            if low <= self.passed:
                break
            self.barrier(self.passed + 1)
        if not self.has_stopped and not self.has_ended and all(each.ended for each in self.inputs.values()):
            self.has_ended = True
            self.engine.stage_ended(self)

    def work(self) -> None:
        """Release rows up to the least mark."""
        upto = max(self.frontier, min((each.watermark for each in self.inputs.values()), default=self.frontier))
        ready = [row for row in self.pool if row.at <= upto]
        self.pool = [row for row in self.pool if row.at > upto]
        for each in self.inputs.values():
            ready += [row for row in each.queue if row.at <= upto]
            each.queue = [row for row in each.queue if row.at > upto]
        made = []
        for row in sorted(ready, key=lambda row: row.at):
            group, is_of_all = group_of(self.instance.stage, row), self._is_of_all(row)
            if group not in owned(self.plan, self.instance) and not is_of_all:
                self.engine.wrong(f"S1: {self.instance} got a row of group {group}, which it does not own")
                return
            told = self._joined(row)
            if group in owned(self.plan, self.instance):
                self.counts[group] = self.counts.get(group, 0) + 1
                made.append(
                    PipelineRow(row.at, row.number, row.salt, (*row.counts, self.counts[group] + OTHERS * told))
                )
        if upto > self.frontier:
            self.frontier = upto
            # The end itself leaves behind the last barrier, see `settle`.
            self.out_watermark = upto if upto != END else max([self.out_watermark, *(row.at for row in made)])
            self.engine.made(self, made, self.out_watermark)

    def _is_of_all(self, row: PipelineRow) -> bool:
        """Whether a row comes to all instances: its group's owner makes something of it, the others remember it."""
        return row.at[1] == JOINED_INDEX and is_shared(tables_of(self.plan), JOINED, self.instance.stage)

    def _joined(self, row: PipelineRow) -> int:
        """What the other side has said so far, this row included."""
        stage = self.instance.stage
        if not joins(self.plan, stage):
            return 0
        side = other_side(self.plan, tables_of(self.plan), stage, row)
        if row.at[1] == JOINED_INDEX:
            self.others[side] = self.others.get(side, 0) + 1
        return self.others.get(side, 0)

    def barrier(self, epoch: int) -> None:
        """The barrier has come through all inputs."""
        after = self.changes.pop(epoch, None)
        moves = self._moves(after)
        if moves and not self.is_caught_up:
            self.engine.broken(f"{self.instance} has not caught up at the change of epoch {epoch}")
            return
        self.passed = epoch
        self.has_stopped = moves
        self.engine.stage_barrier(self, epoch, self.previous_state() if moves else self.memory(epoch), after)
        self.plan = after or self.plan
        for source in [source for source, each in self.inputs.items() if 0 < each.closed <= epoch]:
            self.pool += self.inputs.pop(source).queue

    def previous_state(self) -> InstanceState:
        """What an old instance leaves: all that it has, and how far each of its inputs is."""
        inlets = tuple(
            InputPosition(source, each.watermark, each.passed, each.ended) for source, each in self.inputs.items()
        )
        return InstanceState(
            self.counts, self.frontier, self._held([*self.inputs.values()], epoch=None), inlets, self.others
        )

    def _held(self, inputs: Sequence[VirtualInput], epoch: int | None) -> tuple[PipelineRow, ...]:
        rows = list(self.pool)
        for each in inputs:
            cut = END if epoch is None else each.cuts.pop(epoch, each.watermark)
            rows += [row for row in each.queue if row.at <= cut]
        return tuple(sorted(rows, key=lambda row: row.at))

    def memory(self, epoch: int) -> InstanceState:
        """What is saved at a barrier: the state, and rows that came before it and still wait."""
        held = self._held(list(self.inputs.values()), epoch)
        return InstanceState(dict(self.counts), self.frontier, held, others=dict(self.others))

    @property
    def is_caught_up(self) -> bool:
        """Whether its inputs have promised at least as much as when its state was saved."""
        return min((each.watermark for each in self.inputs.values()), default=END) >= self.floor


def joined(
    stage: str,
    groups: Sequence[int],
    parts: Sequence[InstanceState],
    plan: Plan | None,
    epoch: int,
    *,
    shares: bool = False,
) -> InstanceState:
    """What an instance begins with, of what those before it left: its groups, their rows, and how far the inputs are.

    Args:
        shares: rows of the second source go to all instances of the stage.
        plan: that begins with the barrier of `epoch`, for one that is handed over; None: one that is restored, whose inputs begin
            anew.
    """
    counts = {group: count for part in parts for group, count in part.counts.items() if group in groups}
    others = {group: count for part in parts for group, count in part.others.items() if group in (*groups, SHARED)}
    mine = [row for part in parts for row in part.held if group_of(stage, row) in groups]
    if shares:  # each of those before has them all
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
    return InstanceState(counts, frontier, tuple(held), tuple(inlets.values()), others)
