"""Instances: a source, a stage with state that merges by position, a sink.

Each is a small machine on a carrier of frames. A stage does not hold back what came ahead of a barrier on a fast input: it
releases rows as far as all inputs have promised, so its snapshot may hold effects of rows behind the barrier. They are dropped
when they come again, which is why they must come again exactly alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agiledart_recovery.wire.names import Party
from agiledart_recovery.wire.value import Assignment, Plan
from agiledart_simulation.pipeline.pipeline_messages import END, START, Barrier, Inlet, Memory, Position, Row, Rows
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


class Carrier(Protocol):
    """What a party needs of the engine that it runs on."""

    def send(self, source: Party, target: Party, body: Rows | Barrier) -> None:
        """Say something; it is said again until it is acknowledged."""
        ...

    def read(self, mine: Assignment, number: int) -> Row | Position | None:
        """The next row of a source, its end, or nothing yet."""
        ...

    def source_prepared(self, source: "Source", epoch: int, after: Plan | None, *, has_ended: bool = False) -> None:
        """A source has sent a barrier."""
        ...

    def made(self, stage: "Stage", rows: list[Row], mark: Position) -> None:
        """Rows leave a stage."""
        ...

    def stage_barrier(self, stage: "Stage", epoch: int, memory: Memory, after: Plan | None) -> None:
        """A barrier has come through all inputs."""
        ...

    def stage_ended(self, stage: "Stage") -> None:
        """No input is left."""
        ...

    def broken(self, reason: str) -> None:
        """This life cannot go on here."""
        ...

    def wrong(self, line: str) -> None:
        """Something that must never be so."""
        ...


class Source:
    """Reads rows and sends barriers between them.

    Attributes:
        position: number of the next row.
        passed: the last barrier that it sent.
    """

    def __init__(self, engine: Carrier, mine: Assignment, plan: Plan, position: int, passed: int) -> None:
        self.engine, self.mine, self.plan, self.position, self.passed = engine, mine, plan, position, passed
        self.party = mine.party
        self.mark = START
        self.has_ended = False

    def pump(self) -> None:
        """Send the next row, or the end."""
        if self.has_ended:
            return
        row = self.engine.read(self.mine, self.position)
        if row is None:
            return
        if isinstance(row, Row):
            self.position += 1
            self.mark = row.at
            self._send(Rows((row,), row.at))
        else:
            self.has_ended = True
            self._send(Rows((), END))
            self.engine.source_prepared(self, self.passed + 1, None, has_ended=True)

    def barrier(self, epoch: int, after: Plan | None) -> None:
        """Send a barrier, and before it those that were missed."""
        if self.has_ended:
            return
        for missed in range(self.passed + 1, epoch):
            self._send(Barrier(missed, self.mark, None))
            self.engine.source_prepared(self, missed, None)
        if epoch > self.passed:
            self.passed = epoch
            self._send(Barrier(epoch, self.mark, after))
            self.plan = after or self.plan
            self.engine.source_prepared(self, epoch, after)

    def _send(self, body: Rows | Barrier) -> None:
        send_all(self.engine, self.plan, self.party, body)


def send_all(engine: Carrier, plan: Plan, source: Party, body: Rows | Barrier) -> None:
    """Say it to all instances downstream: rows to the owners of their groups, barriers and marks to everybody."""
    tables = tables_of(plan)
    for stage in targets_of(plan, source.stage):
        rows: dict[Party, list[Row]] = {}
        for row in body.rows if isinstance(body, Rows) else ():
            everybody = [each.party for each in plan.stage(stage)] if is_shared(tables, source.stage, stage) else ()
            for party in everybody or (owner_of(plan, tables, stage, row),):
                rows.setdefault(party, []).append(row)
        for each in plan.stage(stage):
            own = Rows(tuple(rows.get(each.party, ())), body.mark) if isinstance(body, Rows) else body
            engine.send(source, each.party, own)


@dataclass
class Input:
    """One input: what was promised, what waits, which barrier came last and where it stood."""

    mark: Position = START
    queue: list[Row] = field(default_factory=list)
    passed: int = 0
    cuts: dict[int, Position] = field(default_factory=dict)
    ended: bool = False
    closed: int = 0


class Stage:
    """An instance of a stage, or the sink: inputs, a frontier, and a count of rows for each of its groups."""

    def __init__(self, engine: Carrier, mine: Assignment, plan: Plan, memory: Memory, passed: int) -> None:
        self.engine, self.mine, self.plan, self.party = engine, mine, plan, mine.party
        self.counts, self.frontier, self.pool = dict(memory.counts), memory.frontier, list(memory.held)
        self.others = dict(memory.others)
        self.floor = memory.frontier
        self.out_mark = memory.frontier if memory.frontier != END else START
        self.passed = passed
        self.changes: dict[int, Plan | None] = {}
        self.has_ended = self.has_stopped = False
        self.inputs: dict[Party, Input] = {}
        if memory.inlets:
            for inlet in memory.inlets:
                self.inputs[inlet.source] = Input(inlet.mark, [], inlet.passed, {}, inlet.ended)
        else:
            for source in sources_of(plan, self.party.stage):
                self.inputs[source] = Input(START, [], passed)

    def knows(self, source: Party) -> bool:
        """Whether frames of a party may come: one of a term that no barrier has told of waits."""
        return source in self.inputs and not self.has_stopped and not self.inputs[source].closed

    def take(self, source: Party, body: Rows | Barrier) -> None:
        """The next frame of an input."""
        inlet = self.inputs[source]
        if isinstance(body, Barrier):
            inlet.passed, inlet.mark = body.epoch, max(inlet.mark, body.mark)
            inlet.cuts[body.epoch] = inlet.mark
            if self.changes.setdefault(body.epoch, body.after) != body.after:
                self.engine.broken(f"two requests under epoch {body.epoch}")
                return
            if body.after is not None:
                self._end_channel(source, body, body.after)
        else:
            inlet.queue.extend(row for row in body.rows if row.at > self.frontier)
            inlet.mark = max(inlet.mark, body.mark)
            inlet.ended |= body.mark == END
        self.settle()

    def _end_channel(self, source: Party, barrier: Barrier, after: Plan) -> None:
        """The barrier of a change is the last frame of a channel whose sender or receiver takes a new term."""
        moves = self._moves(after)
        stays = any(each.party == source for each in after.stage(source.stage))
        if moves or not stays:
            self.inputs[source].closed = barrier.epoch
        if not moves and not stays:
            for each in after.stage(source.stage):  # all of them, before anything that waits for them is looked at
                # What comes over them lies behind the barrier: this instance's own element holds nothing of it.
                cuts = {barrier.epoch: barrier.mark}
                self.inputs.setdefault(each.party, Input(barrier.mark, [], barrier.epoch, cuts))

    def _moves(self, after: Plan | None) -> bool:
        return after is not None and all(each.party != self.party for each in after.stage(self.party.stage))

    def settle(self) -> None:
        """Release what all inputs have promised, pass barriers that came through all of them, end."""
        while not self.has_stopped:
            open_inputs = [each for each in self.inputs.values() if not each.ended]
            at = [each.passed for each in open_inputs]
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
        upto = max(self.frontier, min((each.mark for each in self.inputs.values()), default=self.frontier))
        ready = [row for row in self.pool if row.at <= upto]
        self.pool = [row for row in self.pool if row.at > upto]
        for each in self.inputs.values():
            ready += [row for row in each.queue if row.at <= upto]
            each.queue = [row for row in each.queue if row.at > upto]
        made = []
        for row in sorted(ready, key=lambda row: row.at):
            group, is_of_all = group_of(self.party.stage, row), self._is_of_all(row)
            if group not in owned(self.plan, self.party) and not is_of_all:
                self.engine.wrong(f"S1: {self.party} got a row of group {group}, which it does not own")
                return
            told = self._joined(row)
            if group in owned(self.plan, self.party):
                self.counts[group] = self.counts.get(group, 0) + 1
                made.append(Row(row.at, row.number, row.salt, (*row.counts, self.counts[group] + OTHERS * told)))
        if upto > self.frontier:
            self.frontier = upto
            # The end itself leaves behind the last barrier, see `settle`.
            self.out_mark = upto if upto != END else max([self.out_mark, *(row.at for row in made)])
            self.engine.made(self, made, self.out_mark)

    def _is_of_all(self, row: Row) -> bool:
        """Whether a row comes to all instances: its group's owner makes something of it, the others remember it."""
        return row.at[1] == JOINED_INDEX and is_shared(tables_of(self.plan), JOINED, self.party.stage)

    def _joined(self, row: Row) -> int:
        """What the other side has said so far, this row included."""
        stage = self.party.stage
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
            self.engine.broken(f"{self.party} has not caught up at the change of epoch {epoch}")
            return
        self.passed = epoch
        self.has_stopped = moves
        self.engine.stage_barrier(self, epoch, self.handed() if moves else self.memory(epoch), after)
        self.plan = after or self.plan
        for source in [source for source, each in self.inputs.items() if 0 < each.closed <= epoch]:
            self.pool += self.inputs.pop(source).queue

    def handed(self) -> Memory:
        """What an old instance leaves: all that it has, and how far each of its inputs is."""
        inlets = tuple(Inlet(source, each.mark, each.passed, each.ended) for source, each in self.inputs.items())
        return Memory(self.counts, self.frontier, self._held([*self.inputs.values()], epoch=None), inlets, self.others)

    def _held(self, inputs: Sequence[Input], epoch: int | None) -> tuple[Row, ...]:
        rows = list(self.pool)
        for each in inputs:
            cut = END if epoch is None else each.cuts.pop(epoch, each.mark)
            rows += [row for row in each.queue if row.at <= cut]
        return tuple(sorted(rows, key=lambda row: row.at))

    def memory(self, epoch: int) -> Memory:
        """What is saved at a barrier: the state, and rows that came before it and still wait."""
        held = self._held(list(self.inputs.values()), epoch)
        return Memory(dict(self.counts), self.frontier, held, others=dict(self.others))

    @property
    def is_caught_up(self) -> bool:
        """Whether its inputs have promised at least as much as when its state was saved."""
        return min((each.mark for each in self.inputs.values()), default=END) >= self.floor


def joined(
    stage: str, groups: Sequence[int], parts: Sequence[Memory], plan: Plan | None, epoch: int, *, shares: bool = False
) -> Memory:
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
    inlets: dict[Party, Inlet] = {}
    if plan is not None:
        known = {inlet.source: inlet for part in parts for inlet in part.inlets}
        for source in sources_of(plan, stage):
            low = min((inlet.mark for inlet in known.values() if inlet.source.stage == source.stage), default=frontier)
            inlets[source] = known.get(source, Inlet(source, low, epoch, False))
    return Memory(counts, frontier, tuple(held), tuple(inlets.values()), others)
