"""One life of a run on one virtual node: its parties, and channels that lose nothing while both ends live.

A channel numbers its frames, and sends again what was not acknowledged. What another life says is dropped. A frame for an
instance that is not there, or of a sender that no barrier has told of, is not acknowledged, so it comes again: that is how it
waits.
"""

from dataclasses import dataclass, field
from typing import Protocol

from agiledart_kernel.codec import encode
from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.machine import Message
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.effects import EnterLife, MakeTermReady, TakeOver
from agiledart_recovery.wire.names import Party, Snapshot
from agiledart_recovery.wire.value import Assignment, Plan, Role
from agiledart_simulation.pipeline.disk import Disk
from agiledart_simulation.pipeline.parties import Source, Stage, joined, send_all
from agiledart_simulation.pipeline.pipeline_messages import (
    END,
    START,
    Barrier,
    Frame,
    FrameAck,
    Memory,
    Position,
    Row,
    Rows,
)
from agiledart_simulation.pipeline.tables import JOINED, is_shared, joins, owned, tables_of

_RESEND_NS = 300 * MILLISECOND
_WINDOW = 32
_ROWS_A_PUMP = 8


class Place(Protocol):
    """What an engine needs of the node that it runs on."""

    now: Instant
    disk: Disk

    def send(self, to: Peer, message: Message) -> None:
        """Send, also to oneself."""
        ...

    def reached(self, what: str) -> None:
        """Count something that happened."""
        ...

    def read(self, mine: Assignment, number: int) -> Row | Position | None:
        """A source's row."""
        ...

    def keep_position(
        self, engine: "Engine", source: Source, snapshot: Snapshot, after: Plan | None, *, has_ended: bool
    ) -> None:
        """A source has sent a barrier."""
        ...

    def keep_element(
        self, engine: "Engine", stage: Stage, snapshot: Snapshot, raw: bytes, after: Plan | None, *, has_ended: bool
    ) -> None:
        """A stage has saved its state."""
        ...

    def keep_rows(
        self,
        engine: "Engine",
        stage: Stage,
        snapshot: Snapshot,
        raw: bytes,
        rows: list[Row],
        end: int,
        after: Plan | None,
        *,
        has_ended: bool,
    ) -> None:
        """A sink has rows before a barrier."""
        ...

    def broken(self, engine: "Engine", reason: str) -> None:
        """This life cannot go on here."""
        ...

    def wrong(self, line: str) -> None:
        """Something that must never be so."""
        ...


class Outlet:
    """What one party says to another."""

    def __init__(self) -> None:
        self.number = 0
        self.unacknowledged: list[Frame] = []
        self.quiet_since = 0


@dataclass
class Waiting:
    """What was made ready here for a plan that may come: instances that have not begun, what was built of old ones before they
    stopped (the element, and the state that it says), and what they have handed over.
    """

    before: Plan
    plan: Plan
    parties: dict[Party, Assignment]
    handed: dict[Party, Memory] = field(default_factory=dict)
    built: dict[Party, tuple[bytes, bytes]] = field(default_factory=dict)


class Engine:
    """What runs of a life here. `volatile` rows of the sink are in memory only."""

    def __init__(self, host: Place, entry: EnterLife, memories: dict[Party, Memory]) -> None:
        self.host, self.run, self.life, self.plan = host, entry.run, entry.life, entry.plan
        self.where: dict[Party, Peer] = {each.party: each.host for each in entry.plan.assignments}
        self.sources: dict[Party, Source] = {}
        self.stages: dict[Party, Stage] = {}
        self.volatile: list[Row] = []
        self.sink_end = len(host.disk.part.rows)
        self.is_started = False
        self._outlets: dict[tuple[Party, Party], Outlet] = {}
        self._taken: dict[tuple[Party, Party], int] = {}
        self._base = entry.base
        self.waiting: dict[bytes, Waiting] = {}
        positions = {saved.party: saved.position for saved in entry.saved}
        for mine in entry.assignments:
            if mine.role is Role.SOURCE:
                position = int(positions.get(mine.party, b"") or b"0")
                self.sources[mine.party] = Source(self, mine, self.plan, position, entry.base)
            else:
                memory = memories.get(mine.party, Memory({}, START, ()))
                self.stages[mine.party] = Stage(self, mine, self.plan, memory, entry.base)

    # ---- channels

    def send(self, source: Party, target: Party, body: Rows | Barrier) -> None:
        """Say something; it is said again until it is acknowledged."""
        outlet = self._outlets.setdefault((source, target), Outlet())
        outlet.number += 1
        frame = Frame(self.life, source, target, outlet.number, body)
        if not outlet.unacknowledged:
            outlet.quiet_since = self.host.now
        outlet.unacknowledged.append(frame)
        if isinstance(body, Barrier):
            self.learn(body.after)
        if len(outlet.unacknowledged) <= _WINDOW:
            self.host.send(self.where[target], frame)

    def learn(self, plan: Plan | None) -> None:
        """A barrier told of another plan."""
        if plan is not None:
            self.where.update({each.party: each.host for each in plan.assignments})

    def resend(self) -> None:
        """Say again what was not acknowledged for a while."""
        for (_, target), outlet in self._outlets.items():
            if outlet.unacknowledged and self.host.now - outlet.quiet_since > _RESEND_NS:
                outlet.quiet_since = self.host.now
                for frame in outlet.unacknowledged[:_WINDOW]:
                    self.host.send(self.where[target], frame)

    def on_ack(self, ack: FrameAck) -> None:
        """Frames were taken."""
        outlet = self._outlets.get((ack.source, ack.target))
        if outlet is None or not self.is_of_this_life(ack.life):
            return
        before = len(outlet.unacknowledged)
        outlet.unacknowledged = [frame for frame in outlet.unacknowledged if frame.number > ack.number]
        if len(outlet.unacknowledged) < before:
            outlet.quiet_since = self.host.now
            for frame in outlet.unacknowledged[_WINDOW - (before - len(outlet.unacknowledged)) : _WINDOW]:
                self.host.send(self.where[ack.target], frame)

    def is_of_this_life(self, life: int) -> bool:
        """The fence of the data path."""
        return life == self.life

    def on_frame(self, sender: Peer, frame: Frame) -> None:
        """The next frame of a channel is taken, all others are not."""
        if not self.is_of_this_life(frame.life):
            return
        key = (frame.source, frame.target)
        expected = self._taken.get(key, 0) + 1
        if frame.number == expected and self._takes(frame):
            self._taken[key] = expected
            if isinstance(frame.body, Barrier):
                self.learn(frame.body.after)
            self.stages[frame.target].take(frame.source, frame.body)
        if frame.number <= self._taken.get(key, 0):
            self.host.send(sender, FrameAck(frame.life, *key, self._taken[key]))

    def _takes(self, frame: Frame) -> bool:
        stage = self.stages.get(frame.target)
        return stage is not None and stage.knows(frame.source)

    # ---- a new term

    def make_ready(self, effect: MakeTermReady) -> None:
        """A plan may come with a barrier; what this node will run in it waits to be handed over."""
        self.learn(effect.after)
        self.waiting[effect.after.digest] = Waiting(
            effect.before, effect.after, {each.party: each for each in effect.assignments}
        )

    def drop_term(self, digest: bytes) -> None:
        """It will not come."""
        self.waiting.pop(digest, None)

    def committed(self, plan: Plan) -> None:
        """The register names a plan: where nothing of it waits any more, it runs like any other."""
        waiting = self.waiting.get(plan.digest)
        if waiting is not None and not waiting.parties:
            del self.waiting[plan.digest]

    def take_over(self, effect: TakeOver, memory: Memory) -> None:
        """An old instance has handed over: who has all of its groups now begins, never because it was asked."""
        waiting = self.waiting.get(effect.digest)
        if waiting is None:
            return
        old = effect.saved.party
        waiting.handed.setdefault(old, memory)
        before = tables_of(waiting.before).get(old.stage)
        for party, mine in list(waiting.parties.items()):
            if party.stage == old.stage:
                groups = owned(waiting.plan, party)
                owners = [before[group] if before else 0 for group in groups]
                parts = {one.index: part for one, part in waiting.handed.items() if one.stage == party.stage}
                if all(owner in parts for owner in owners):
                    shares = is_shared(tables_of(waiting.plan), JOINED, party.stage)
                    left = list(parts.values())
                    memory = joined(party.stage, groups, left, waiting.plan, effect.epoch, shares=shares)
                    self._begin(waiting, mine, memory)
                    if joins(waiting.plan, party.stage):
                        self.host.reached("shared state handed" if shares else "join handed")
        if not waiting.parties:
            del self.waiting[effect.digest]

    def _begin(self, waiting: "Waiting", mine: Assignment, memory: Memory) -> None:
        del waiting.parties[mine.party]
        stage = self.stages[mine.party] = Stage(self, mine, waiting.plan, memory, memory.inlets[0].passed)
        stage.passed = max(inlet.passed for inlet in memory.inlets)
        self.host.reached("handed")
        stage.settle()

    # ---- sources

    def read(self, mine: Assignment, number: int) -> Row | Position | None:
        """The next row of a source, its end, or nothing yet."""
        return self.host.read(mine, number)

    def pump(self) -> None:
        """Let sources read, and channels repeat."""
        if self.is_started:
            for source in list(self.sources.values()):
                before = -1
                for _ in range(_ROWS_A_PUMP):
                    if source.position == before or source.has_ended:
                        break
                    before = source.position
                    source.pump()
        self.resend()

    def barrier(self, epoch: int, after: Plan | None) -> None:
        """Sources are to send a barrier."""
        self.is_started = True
        self.learn(after)
        for source in self.sources.values():
            source.barrier(epoch, after)

    def source_prepared(self, source: Source, epoch: int, after: Plan | None, *, has_ended: bool = False) -> None:
        """A source has sent a barrier: prepared once its log is on the disk up to there."""
        self.host.keep_position(self, source, Snapshot(self.life, epoch), after, has_ended=has_ended)

    # ---- stages

    def made(self, stage: Stage, rows: list[Row], mark: Position) -> None:
        """Rows leave a stage, or come to rest in the sink."""
        if stage.mine.role is Role.SINK:
            self.volatile += [Row(row.at, row.number, row.salt, row.counts[:-1]) for row in rows]
            return
        send_all(self, stage.plan, stage.party, Rows(tuple(rows), mark))

    def stage_barrier(self, stage: Stage, epoch: int, memory: Memory, after: Plan | None) -> None:
        """A barrier has come through all inputs: it goes on at once, and the element is written."""
        snapshot = Snapshot(self.life, epoch)
        if stage.mine.role is Role.SINK:
            self._flush(stage, snapshot, memory, after, has_ended=False)
            return
        send_all(self, stage.plan, stage.party, Barrier(epoch, stage.out_mark, after))
        self.host.keep_element(self, stage, snapshot, encode(memory), after, has_ended=False)

    def stage_ended(self, stage: Stage) -> None:
        """No input is left."""
        snapshot = Snapshot(self.life, stage.passed + 1)
        if stage.mine.role is Role.SINK:
            self._flush(stage, snapshot, stage.memory(0), None, has_ended=True)
            return
        send_all(self, stage.plan, stage.party, Rows((), END))
        self.host.keep_element(self, stage, snapshot, encode(stage.memory(0)), None, has_ended=True)

    def _flush(self, stage: Stage, snapshot: Snapshot, memory: Memory, after: Plan | None, *, has_ended: bool) -> None:
        rows, self.volatile = self.volatile, []
        self.sink_end += len(rows)
        self.host.keep_rows(self, stage, snapshot, encode(memory), rows, self.sink_end, after, has_ended=has_ended)

    def wrong(self, line: str) -> None:
        """Something that must never be so."""
        self.host.wrong(line)

    def broken(self, reason: str) -> None:
        """This life cannot go on here."""
        self.host.broken(self, reason)
