"""A hostile host in one process: channels with one credit, the wire form, any order of work, restored instances.

It is what executors do, with all freedom that they have used against the engine, drawn from a seed.
"""

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from agiledart_connectors.memory import MemoryReader
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.parallelism_request import RequestedParallelism
from agiledart_dataflow.plan.stage_plan import Edge
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.overtaken_rows import WaitingOutput
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_kernel.randomness import RandomStream

_PATIENCE = 10_000
"""Turns without any progress after which the graph counts as stuck."""


class _Channel:
    """Both ends of one channel."""

    def __init__(self, window: int, random: RandomStream, edge: Edge) -> None:
        merges = edge.carries == "positions"
        self.sending = SendingChannel(window, max_rows=1 + random.index(12), bound_rows=8, overtakes=merges)
        self.receiving = ReceivingChannel(window)
        self._offered: deque[bool] = deque()  # batches not yet taken: True for those that count as data frames
        self._batches = self._frames = 0

    def offered(self, frame: Batch) -> None:
        """A frame has come to the receiver."""
        came = self.receiving
        needs_credit = frame.barrier > 0 and not frame.overtakes
        came.accept(came.frames + came.watermarks, came.rows, len(frame), barrier=needs_credit)
        self._offered.append(len(frame) > 0 or needs_credit)

    def acknowledge(self, consumed: int) -> bool:
        """Report to the sender what the instance has taken; True when that is news."""
        while self._batches < consumed:
            self._batches += 1
            self._frames += self._offered.popleft()
        due = self.receiving.due(self._frames, all_of_it=True)
        if due is not None:
            self.sending.acknowledge(*due)
        return due is not None


class InlineHost:
    """Runs a topology to its end.

    Args:
        topology: the program to run.
        parallelism: of all stages that can have several instances, or by name of a step.
        seed: of the schedule.
        window: data frames that a channel may have under way.
        restarts: how often a turn puts an instance back from its own snapshot.
        make_store: where all steps keep their state by key, whatever they ask for; None: in memory.
        barriers: how many checkpoints the sources begin, each at its own time.
        at_least: contents sent with every row, needed or not.
        starts: instances of stages with limits, by name of a step, in place of the lower limit.

    Attributes:
        overtaken: rows that barriers have overtaken.
        snapshots: of each checkpoint by (stage, instance); rows that a sink had written then, under its step's name.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        parallelism: int | Mapping[str, RequestedParallelism],
        seed: int,
        window: int = 1,
        restarts: float = 0.0,
        barriers: int = 0,
        make_store: Any = None,
        at_least: Carries = "rows",
        starts: Mapping[str, int] | None = None,
    ) -> None:
        planned = plan_stages(topology.specification(), parallelism, at_least)
        self.program: Program = compile_program(topology, planned.with_instances(starts or {}))
        self._random = RandomStream(seed, "inline host")
        self._restarts = restarts
        self._make_store = make_store
        if make_store is not None:
            for step in topology.steps:
                if step.state is not None:
                    step.state.keep = "disk"
        plan = self.program.plan
        self._channels = {name: _Channel(window, self._random, plan.edges[name[0]]) for name in plan.channels()}
        self._codecs = {edge.index: self.program.codec(edge.index) for edge in plan.edges}
        self.sources: list[SourceInstance] = []
        self.instances: dict[tuple[int, int], Instance] = {}
        self.writers: dict[str, Any] = {}
        for stage in plan.stages:
            for index in range(stage.parallelism):
                if stage.kind == "source":
                    endpoint = self.program.endpoint(stage.index)
                    reader = open_source(endpoint.connector, endpoint.row_type)
                    self.sources.append(SourceInstance(self.program, stage.index, reader))
                    self.sources[-1].waiting_output = partial(self._waiting_output, stage.index, 0)
                    continue
                if stage.kind == "sink":
                    endpoint = self.program.endpoint(stage.index)
                    self.writers[stage.name] = open_sink(endpoint.connector, endpoint.row_type)
                writer = self.writers.get(stage.name) if stage.kind == "sink" else None
                self.instances[stage.index, index] = Instance(self.program, stage.index, index, writer, make_store)
        self._now = self.wall_ns = self.overtaken = 0
        self._barriers = barriers
        self._begun = [0] * len(self.sources)
        self.snapshots: dict[int, dict[Any, Any]] = {number: {} for number in range(1, barriers + 1)}
        for name, instance in self.instances.items():
            self._watch(name, instance)

    def _waiting_output(self, stage: int, member: int) -> list[WaitingOutput]:
        """The rows that a barrier would overtake now, by channel."""
        waiting = []
        for (edge, source, target), channel in self._channels.items():
            if source == member and self.program.plan.edges[edge].source == stage:
                overtaken = channel.sending.overtaken()
                if overtaken is not None:
                    self.overtaken += sum(map(len, overtaken[0]))
                    waiting.append(WaitingOutput(edge, target, *overtaken))
        return waiting

    def _resume_outputs(self, member: int, part: Instance | SourceInstance) -> None:
        """Send what the barrier overtook again, before anything else; carry nothing where the end had left before it."""
        edges = {edge.index for edge in self.program.plan.outgoing(part.stage)}
        outputs = {name: self._channels[name] for name in self._channels if name[0] in edges and name[1] == member}
        for edge, target, batches, watermark in part.take_unsent():
            outputs.pop((edge, member, target)).sending.resume(batches, watermark)
        if part.sent_end is not None:
            for channel in outputs.values():
                channel.sending.resume_behind(part.sent_end)

    def _watch(self, name: tuple[int, int], instance: Instance) -> None:
        """Keep what the instance reports at each barrier."""
        instance.waiting_output = partial(self._waiting_output, *name)
        sink = self.program.plan.stages[name[0]].name

        def keep(barrier: int, snapshot: bytes, _: bytes) -> None:
            assert name not in self.snapshots[barrier], "a barrier is reported once"
            self.snapshots[barrier][name] = snapshot
            if sink in self.writers:
                self.snapshots[barrier][sink] = list(self.writers[sink].rows or ())

        instance.on_barrier = keep

    def resume(self, snapshots: dict[Any, Any], lines: list[list[Any]]) -> None:
        """Go on from a checkpoint of another run that is complete; `lines`: of each source, all that it ever reads."""
        for name, instance in self.instances.items():
            instance.restore(snapshots[name])
            self._resume_outputs(name[1], instance)
        for source, rows in zip(self.sources, lines, strict=True):
            source.restore(snapshots[source.stage, 0])
            self._resume_outputs(0, source)
            statistics = source.statistics().source
            assert statistics is not None
            source._validator._reader = MemoryReader(Connector("list", payload=rows[statistics.lines :]))
        for sink, writer in self.writers.items():
            if writer.rows is not None:
                writer.rows[:] = snapshots[sink]

    def run(self) -> dict[str, list[Any]]:
        """Rows by sink."""
        idle = 0
        while not all(instance.finished for instance in self.instances.values()):
            moved = self._random.choice((self._poll, self._carry, self._carry, self._work))()
            idle = 0 if moved else idle + 1
            assert idle < _PATIENCE, f"stuck: {self._state()}"
        return {name: writer.rows for name, writer in self.writers.items() if writer.rows is not None}

    def turns(self, count: int) -> None:
        """So many turns, without waiting for an end."""
        for _ in range(count):
            self._random.choice((self._poll, self._carry, self._carry, self._work))()

    def wait(self, span_ns: int) -> None:
        """Let real time pass."""
        self._now += span_ns
        self.wall_ns += span_ns

    def read_from(self, source: str, reader: Any) -> None:
        """Let a source read from here."""
        for one in self.sources:
            if self.program.steps(one.stage)[0].name == source:
                one._validator._reader = reader

    def rows(self, sink: str) -> list[Any]:
        """Rows that a sink has written so far."""
        return list(self.writers[sink].rows)

    def statistics(self) -> list[Any]:
        """Counters of all instances."""
        return [*(one.statistics() for one in self.sources), *(one.statistics() for one in self.instances.values())]

    def _poll(self) -> bool:
        number = self._random.index(len(self.sources))
        source = self.sources[number]
        if not source.finished and self._begun[number] < self._barriers and self._random.uniform() < 0.1:
            self._begun[number] += 1
            snapshot = source.send_barrier(self._begun[number], self._emitter(0))
            self.snapshots[self._begun[number]][source.stage, 0] = snapshot
            return True
        if source.finished or self._blocked(source.stage, 0) or not self._may_read(number):
            return False
        polled = source.poll(self._now, self.wall_ns, 1 + self._random.index(5))
        self._now = max(self._now, polled.wait_until_ns or 0)
        if polled.batch is not None:
            source.send(polled.batch, self._emitter(0))
        return polled.batch is not None

    def _may_read(self, number: int) -> bool:
        """Whether a source is not silent."""
        return True

    def _carry(self) -> bool:
        name = edge, source, target = self._random.choice(list(self._channels))
        channel = self._channels[name]
        instance = self.instances[self.program.plan.edges[edge].target, target]
        news = channel.acknowledge(instance.consumed(edge, source))
        frame = channel.sending.next_frame()
        if frame is None:
            return news
        for piece, body in self._codecs[edge].encode_within(frame, 1 << 20):
            assert len(piece) == len(frame), "these rows are small"
            batch = self._codecs[edge].decode(body)
            batch.barrier, batch.overtakes = frame.barrier, frame.overtakes
            (instance.offer_barrier if batch.barrier else instance.offer)(edge, source, batch)
        channel.offered(frame)
        return True

    def _work(self) -> bool:
        name = stage, index = self._random.choice(list(self.instances))
        instance = self.instances[name]
        if self._random.uniform() < self._restarts:
            writer = self.writers.get(self.program.plan.stages[stage].name)
            fresh = Instance(self.program, stage, index, writer, self._make_store)
            fresh.restore(instance.snapshot())
            self.instances[name] = instance = fresh
            self._watch(name, fresh)
        if self._blocked(stage, index):
            instance.pass_barriers(self._emitter(index))
            return False
        before = instance.watermark
        instance.work(self._emitter(index), 1 + self._random.index(8))
        return instance.watermark != before

    def _blocked(self, stage: int, index: int) -> bool:
        plan = self.program.plan
        outgoing = {edge.index for edge in plan.outgoing(stage)}
        return any(
            channel.sending.blocked
            for (edge, source, _), channel in self._channels.items()
            if edge in outgoing and source == index
        )

    def _emitter(self, index: int) -> Any:
        def emit(edge: int, target: int, batch: Batch) -> None:
            self._channels[edge, index, target].sending.put(batch)

        return emit

    def _state(self) -> str:
        return ", ".join(f"{stage}.{index} at {one.watermark}" for (stage, index), one in self.instances.items())
