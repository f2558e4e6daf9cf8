"""The hostile host, whose stages get new generations in mid-stream: epochs, one coordinator, roll-backs, all in one process.

Channels to instances that have not begun, or that no barrier has announced, wait without credit. State of an ended
generation's instance goes to the next one by reference or as snapshot bytes, late and in any order.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from agiledart_connectors.memory import MemoryReader
from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan, generation_of, index_of
from agiledart_dataflow.runtime.generation_handover import SnapshotParts, Successor
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.state.owner_table import are_owners
from agiledart_kernel.limits import KEY_GROUPS
from tests.reference.inline_host import InlineHost, _Channel

Name = tuple[int, int]
"""(stage, instance as channels name it)."""

MOST = 4
"""Instances of a stage."""


class Committed(NamedTuple):
    """Target of a roll-back.

    Attributes:
        saved: of each instance of the plan before; a sink's rows under its name.
        plan: behind the barrier.
    """

    epoch: int
    saved: dict[Any, Any]
    plan: StagePlan


class ChangingHost(InlineHost):
    """Runs a topology to its end, with changes.

    Args:
        rows: of each source, all that it reads.
        changes: how many are made, and `lives`: how many roll-backs there are, as far as the run is long enough.
        only: stages that change, by name; all that may when there are none.
        window: as of `InlineHost`.
        silent_epochs: as many are committed before the last source reads its first row.

    Attributes:
        done: committed changes; `moved`: stages in them; `queued`: rows that waited and were handed over.
    """

    def __init__(
        self,
        topology: Topology,
        rows: Sequence[list[Any]],
        *,
        parallelism: Any,
        seed: int,
        changes: int = 3,
        lives: int = 0,
        starts: Mapping[str, int] | None = None,
        only: Sequence[str] = (),
        window: int = 1,
        silent_epochs: int = 0,
    ) -> None:
        super().__init__(topology, parallelism=parallelism, seed=seed, window=window, starts=starts)
        self._rows, self._topology, self._only, self._window = rows, topology, only, window
        self._changes, self._lives, self._silent_epochs = changes, lives, silent_epochs
        self.done = self.moved = self.queued = self.begun = 0
        self._life_begins(Committed(0, {}, self.program.plan))
        for instance in self.instances.values():
            instance.programs = self.programs

    def observed(self, sink: str) -> list[Any]:
        """A list of the rows that a sink writes from now on, also one that keeps none."""
        rows: list[Any] = []
        for name, instance in self.instances.items():
            if self.program.plan.stages[name[0]].name == sink:
                instance.observe(lambda held, order: rows.extend(as_rows(held)))
        return rows

    # ---- attempts

    def _life_begins(self, committed: Committed) -> None:
        plan = committed.plan
        self.committed = committed
        self._epoch, self._after = committed.epoch, b""
        self._wanted = plan
        self.programs: dict[bytes, Program] = {}
        self._prepared: dict[Any, Any] = {}
        self._caught_up = True
        self._may_change = False  # an epoch without a change was committed in this attempt, and all had caught up in it
        self._ended: dict[Name, bytes] = {}
        self._passed = [committed.epoch] * len(self.sources)
        self._waiting: dict[Name, tuple[Instance, Successor]] = {}
        self._left: list[tuple[Name, SnapshotParts, bytes]] = []

    def _roll_back(self) -> None:
        """Everybody begins anew from what is committed."""
        self._lives -= 1
        committed, saved = self.committed, self.committed.saved
        plan = committed.plan
        self.program = compile_program(self._topology, plan)
        self._channels = {name: _Channel(self._window, self._random, plan.edges[name[0]]) for name in plan.channels()}
        self._life_begins(committed)
        self.instances = {}
        for sink, writer in self.writers.items():
            if writer.rows is not None:
                writer.rows[:] = saved.get(sink, [])
        for number, source in enumerate(self.sources):
            fresh = type(source)(self.program, source.stage, source._validator._reader)
            fresh.waiting_output = partial(self._waiting_output, source.stage, 0)
            if (source.stage, 0) in saved:
                fresh.restore(saved[source.stage, 0])
                self._resume_outputs(0, fresh)
            counts = fresh.statistics().source
            assert counts is not None
            fresh._validator._reader = MemoryReader(Connector("list", payload=self._rows[number][counts.lines :]))
            self.sources[number] = fresh
        for stage in plan.stages:
            if stage.kind == "source":
                continue
            for member in plan.members(stage.index):
                self.instances[stage.index, member] = instance = self._made(stage.index, member)
                before = {name: data for name, data in saved.items() if name[0] == stage.index}
                if (stage.index, member) in before:
                    instance.restore(before[stage.index, member])
                    self._resume_outputs(member, instance)
                elif before:
                    instance.take_over(
                        [instance.snapshots.parts_in(index_of(name[1]), data) for name, data in before.items()]
                    )

    def _made(self, stage: int, member: int, program: Program | None = None) -> Instance:
        program = program or self.program
        writer = self.writers.get(program.plan.stages[stage].name)
        instance = Instance(program, stage, index_of(member), writer)
        instance.programs = self.programs
        self._watch((stage, member), instance)
        return instance

    def _watch(self, name: Name, instance: Instance) -> None:
        def prepared(barrier: int, snapshot: bytes, change: bytes) -> None:
            self._prepares(name, barrier, snapshot, change, instance.is_caught_up)

        instance.on_barrier = prepared
        instance.waiting_output = partial(self._waiting_output, *name)
        instance.programs = getattr(self, "programs", {})

    # ---- epochs

    def _prepares(self, name: Name, epoch: int, snapshot: bytes, change: bytes, is_caught_up: bool) -> None:
        assert epoch == self._epoch, f"{name} prepares {epoch} in {self._epoch}"
        assert change == self._after, f"{name}: {change!r}"
        assert name not in self._prepared, f"{name} prepares twice"
        self._prepared[name] = snapshot
        self._caught_up &= is_caught_up
        sink = self.program.plan.stages[name[0]].name
        if sink in self.writers:
            self._prepared[sink] = list(self.writers[sink].rows or ())

    def _coordinate(self) -> bool:
        """Begin an epoch, or commit the one that is open."""
        plan = self.committed.plan
        if self._epoch == self.committed.epoch:
            if all(source.finished for source in self.sources):
                return False
            change = self.begun < self._changes and self._may_change and self._random.uniform() < 0.7
            self._epoch, self._prepared, self._caught_up = self._epoch + 1, {}, True
            self._after = self._prepare_change(plan) if change else b""
            if self._after:
                for instance in self.instances.values():
                    instance.expect_change(self._epoch)
            return True
        parties = [(stage.index, member) for stage in plan.stages for member in plan.members(stage.index)]
        ended = {name for name in parties if name not in self._prepared and self._has_ended(name)}
        if any(name not in self._prepared and name not in ended for name in parties) or len(ended) == len(parties):
            return False
        for name in ended:
            self._prepared[name] = self._ended.setdefault(name, self._last_of(name))
            self._prepared |= {
                sink: list(writer.rows or ())
                for sink, writer in self.writers.items()
                if self.program.plan.stages[name[0]].name == sink
            }
        if self._after:
            self.done += 1
            self.moved += sum(
                a.generation != b.generation for a, b in zip(plan.stages, self._wanted.stages, strict=True)
            )
            self.program = self.programs[self._after]
            for stage, index in [
                name for name in self._waiting if all((name[0], m) in ended for m in plan.members(name[0]))
            ]:
                del self._waiting[stage, index]  # the whole of its input ended before the barrier came
        self.committed = Committed(self._epoch, self._prepared, self._wanted)
        self._may_change = self._caught_up and not self._after
        self._after = b""
        return True

    def _has_ended(self, name: Name) -> bool:
        """Whether it has come to its end, and all of its output was taken; behind a change merges take it early."""
        part = self.instances.get(name) or next((source for source in self.sources if (source.stage, 0) == name), None)
        if part is None or not part.finished or self._after:
            return part is not None and part.finished
        outputs = self.program.plan.outgoing(name[0])
        return all(
            channel.sending.idle
            for (edge, source, _), channel in self._channels.items()
            if source == name[1] and self.program.plan.edges[edge] in outputs
        )

    def _last_of(self, name: Name) -> bytes:
        """State of an instance at the end of its input, before this epoch's barrier."""
        if name in self.instances:
            return self.instances[name].snapshot(self._epoch)
        return next(source.snapshot() for source in self.sources if (source.stage, 0) == name)

    # ---- changes

    def _prepare_change(self, plan: StagePlan) -> bytes:
        """Draw another plan; its new instances and channels wait. The name of the plan."""
        may = [one for one in plan.stages if one.kind == "operator" and (not self._only or one.name in self._only)]
        if not may:
            return b""
        chosen = [stage for stage in may if self._random.index(2)] or [self._random.choice(may)]
        self.begun += 1
        self._left = []
        name = b"plan %d" % self.begun
        self._wanted = after = plan.next_generations({stage.name: self._number(plan, stage) for stage in chosen})
        stages = list(after.stages)
        for stage in chosen:
            new = stages[stage.index]
            if (
                new.owners
                and new.parallelism > 1
                and "forward" not in _ways(plan, stage.index)
                and self._random.index(2)
            ):
                table = bytes(self._random.index(new.parallelism) for _ in range(KEY_GROUPS))
                if are_owners(table, new.parallelism):
                    stages[stage.index] = msgspec.structs.replace(new, owners=table)
        self._wanted = after = msgspec.structs.replace(after, stages=tuple(stages))
        self.programs[name] = program = compile_program(self._topology, after)
        for channel in after.channels():
            self._channels.setdefault(channel, _Channel(self._window, self._random, after.edges[channel[0]]))
        for stage in chosen:
            for member in after.members(stage.index):
                instance = self._made(stage.index, member, program)
                old, new = plan.stages[stage.index], after.stages[stage.index]
                successor = Successor(old, new, index_of(member), instance.take_over)
                self._waiting[stage.index, member] = instance, successor
        return name

    def _number(self, plan: StagePlan, stage: Stage) -> int:
        if "forward" in _ways(plan, stage.index):
            return stage.parallelism
        return stage.low + self._random.index(min(stage.high, MOST) - stage.low + 1)

    def _hand_over(self) -> bool:
        """Send handed-over state to an instance, by reference or as saved, perhaps once more."""
        if not self._left or not self._waiting:
            return False
        (stage, _), left, data = self._random.choice(self._left)
        name, (instance, successor) = self._random.choice(list(self._waiting.items()))
        if stage != name[0]:
            return False
        if self._random.index(2):
            left = instance.snapshots.parts_in(left.which, data)
        if not successor.hand(left):
            return False
        self.queued += instance.queued_rows
        self.instances[name] = instance
        del self._waiting[name]
        return True

    # ---- the work

    def run(self) -> dict[str, list[Any]]:
        """Rows by sink."""
        idle = 0
        turns = (self._poll, self._carry, self._carry, self._carry, self._work, self._work, self._hand_over)
        while not self._is_over():
            if self._lives and self._random.uniform() < 0.01:
                self._roll_back()
            moved = self._coordinate() if self._random.index(4) == 0 else self._random.choice(turns)()
            idle = 0 if moved else idle + 1
            assert idle < 5_000, f"stuck: {self._state()}"
        return {name: writer.rows for name, writer in self.writers.items() if writer.rows is not None}

    def _is_over(self) -> bool:
        """All have ended; waiting would be for a barrier that will not come."""
        left = [origin[0] for origin, _, _ in self._left]
        return (
            all(source.finished for source in self.sources)
            and all(instance.finished for instance in self.instances.values())
            and not any(stage in left for stage, _ in self._waiting)
            and not (self._after and self._prepared)
        )

    def _poll(self) -> bool:
        number = self._random.index(len(self.sources))
        source = self.sources[number]
        may_pass = not source.finished or not (self._after or self._has_ended((source.stage, 0)))
        is_open = self._epoch > self.committed.epoch  # a committed one may count an ended source as prepared
        if is_open and may_pass and self._passed[number] < self._epoch and self._random.index(2):
            program = self.programs.get(self._after)
            while self._passed[number] < self._epoch:  # after its end it counted as prepared for a change
                self._passed[number] += 1
                snapshot = source.send_barrier(self._passed[number], self._emitter(0), self._after, program)
            self._prepares((source.stage, 0), self._epoch, snapshot, self._after, not source.finished)
            return True
        if self._passed[number] < self._epoch and self._random.index(2):
            return False  # silent, until the barrier is through
        return super()._poll()

    def _may_read(self, number: int) -> bool:
        return number < len(self.sources) - 1 or self.committed.epoch >= self._silent_epochs

    def _carry(self) -> bool:
        edge, source, target = name = self._random.choice(list(self._channels))
        stage = self.program.plan.edges[edge].target
        instance = self.instances.get((stage, target))
        if instance is None:
            if (stage, target) not in self._waiting:
                del self._channels[name]  # of an instance that has left, and has got all that was sent to it
            return False
        channel = self._channels[name]
        if not instance.takes_in(edge, source):
            if generation_of(source) < self._wanted.stages[self.program.plan.edges[edge].source].generation:
                self._end(name, instance)
            return False  # no barrier has announced it
        news = channel.acknowledge(instance.consumed(edge, source))
        frame = channel.sending.next_frame()
        if frame is None:
            return news
        codec = self._codecs[edge]
        if frame.barrier:
            batch = codec.decode_barrier(codec.encode(frame))
            batch.barrier, batch.overtakes = frame.barrier, frame.overtakes
            instance.offer_barrier(edge, source, batch)
        else:
            for piece, body in codec.encode_within(frame, 1 << 20):
                assert len(piece) == len(frame), "these rows are small"
                instance.offer(edge, source, codec.decode(body))
        channel.offered(frame)
        return True

    def _end(self, name: tuple[int, int, int], instance: Instance) -> None:
        """A channel whose last barrier has come is closed when all of it was taken."""
        edge, source, _ = name
        assert not self._channels[name].sending.has_more, "nothing follows the last barrier"
        if instance.forget(edge, source):
            del self._channels[name]

    def _work(self) -> bool:
        name = stage, member = self._random.choice(list(self.instances))
        instance = self.instances[name]
        is_due = self._epoch > self.committed.epoch and name not in self._prepared and not self._after
        if is_due and instance.has_ended_inputs and not self._has_ended(name):
            instance.pass_barrier(self._epoch, self._emitter(member))  # no input brings it any more
            return True
        if self._blocked(stage, member):
            instance.pass_barriers(self._emitter(member))
            return False
        before = instance.watermark
        instance.work(self._emitter(member), 1 + self._random.index(8))
        if instance.final_snapshot is not None:
            self._left.append((name, instance.final_snapshot, self._prepared[name]))
            del self.instances[name]
            return True
        return instance.watermark != before


def _ways(plan: StagePlan, stage: int) -> list[str]:
    return [edge.partitioning for edge in plan.edges if stage in (edge.source, edge.target)]
