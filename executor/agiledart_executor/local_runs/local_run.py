"""Local runs: a whole topology in this process, without agent and sockets, for `agiledart run`, tests and small jobs.

The default schedule polls the source that is furthest behind in event time and then lets every stage work. A `schedule_seed`
makes a hostile schedule: any channel next, batches in pieces of any size and through the wire form. The results are the same.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.counts.statistics import InstanceStatistics, Summary
from agiledart_dataflow.data.batch import Batch, concatenated
from agiledart_dataflow.data.batch_codec import first_rows
from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.plan.connector_abilities import WriterAbilities
from agiledart_dataflow.plan.connectors import SinkWriter, SourceReader
from agiledart_dataflow.plan.parallelism_request import RequestedParallelism
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.fused_path import FusedPath, fused_path
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.ledger import audit, summarise
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error
from agiledart_executor.process.python_gc import collecting_rarely
from agiledart_executor.process.silent_libraries import SILENT
from agiledart_executor.spool.intake_opening import open_intake
from agiledart_executor.state.disk_stores import disk_stores
from agiledart_executor.user_code.user_files import file_here, refuse_overwriting
from agiledart_kernel.errors import LocalProtocolError, OperationFailed, RemoteProtocolError, UserCodeError
from agiledart_kernel.frames import DATA_HEADER_BYTES
from agiledart_kernel.limits import MAX_BATCH_ROWS, MAX_DATA_FRAME_BYTES
from agiledart_kernel.randomness import RandomStream

MAX_QUEUED_ROWS = 100_000
"""Rows that may wait before a merge for another source; beyond that the sources ahead pause."""

PROGRESS_NS = 200_000_000
FLUSH_NS = 200_000_000
_TRIED_BATCHES = 2
"""First batches of each edge that go through the wire form, so that a row of another type than declared fails here too."""

_LONGEST_SLEEP_S = 0.2
"""Longest sleep in seconds, so that a slow source does not delay Ctrl-C and progress."""

Progress = Callable[[Summary], None]


@dataclass
class LocalRun:
    """Result of a local run.

    Attributes:
        plan: stages and edges that ran.
        summary: counts by the names that users know.
        statistics: of each instance.
        collected: rows of each `collect` sink.
        wall_seconds: duration of the run.
        interrupted: True when Ctrl-C ended the run before its input did.
    """

    plan: StagePlan
    summary: Summary
    statistics: list[InstanceStatistics]
    collected: dict[str, list[Any]] = field(default_factory=dict)
    wall_seconds: float = 0.0
    interrupted: bool = False

    @property
    def useless_sources(self) -> list[str]:
        """Names of the sources whose records were all malformed, so that the results rest on no data."""
        return [
            name
            for instance in self.statistics
            if instance.source is not None and instance.source.is_useless
            for name in instance.steps
        ]


def run_topology(
    topology: Topology,
    *,
    parallelism: int | Mapping[str, RequestedParallelism] = 1,
    schedule_seed: int | None = None,
    on_progress: Progress | None = None,
    on_log: Callable[[str], None] | None = None,
    batch_rows: int = MAX_BATCH_ROWS,
) -> LocalRun:
    """Run a topology to the end of its input.

    Args:
        topology: graph to run.
        parallelism: instances of every stage that can have several, or by name of a step: a number, or limits (low, high)
            of which the lower one is taken.
        schedule_seed: seed of a hostile schedule; None for the default schedule.
        on_progress: called about five times a second with the counts so far.
        on_log: called with a text about records that an error policy dropped, as `agiledart logs` shows it.
        batch_rows: rows that pass from step to step at once. A source may read more at once.

    Raises:
        UserCodeError: user code raised.
        OperationFailed: a source or sink could not be opened, read or written; the message names the step.
        TopologyError, ConfigurationError: the graph or a connector is wrong, or a sink would overwrite another's file.
        LocalProtocolError: not all records are accounted for at the end, which is a fault of the engine.
    """
    os.environ.update(SILENT)
    refuse_overwriting(topology, file_here)
    plan = plan_stages(topology.specification(), parallelism)
    run = _LocalExecution(compile_program(topology, plan), batch_rows)
    began = time.monotonic()
    interrupted = False
    try:
        run.open()
        try:
            if schedule_seed is not None:
                run.run_randomly(RandomStream(schedule_seed, "schedule"))
            else:
                with collecting_rarely():
                    run.run_in_order(on_progress, on_log)
        except KeyboardInterrupt:
            interrupted = True
        run.close_sinks()
        run.report_new_errors(on_log, at_end=True)
    finally:
        run.close()
    statistics = run.statistics()
    if not interrupted and (imbalances := audit(run.program.specification, statistics, plan)):
        # Results that miss a row are worse than none, so an internal fault raises instead of corrupting the results.
        raise LocalProtocolError(f"{topology.name}: the ledger does not add up: {'; '.join(imbalances[:5])}")
    return LocalRun(
        plan=plan,
        summary=summarise(run.program.specification, statistics),
        statistics=statistics,
        collected=run.collected(),
        wall_seconds=time.monotonic() - began,
        interrupted=interrupted,
    )


@contextmanager
def _named(step: str) -> Iterator[None]:
    """Put the step's name before the text of an error."""
    try:
        yield
    except OperationFailed as error:
        raise OperationFailed(f"{step}: {error}") from None
    except SystemExit as error:  # a callable that makes a source's rows
        raise user_code_error(step, None, error, NO_RECORD) from error


class _LocalExecution:
    """All instances of one run and the channels between them."""

    def __init__(self, program: Program, batch_rows: int) -> None:
        self.program = program
        self._batch_rows = batch_rows
        self._readers: list[SourceReader] = []
        self._writers: dict[str, SinkWriter] = {}
        self._abilities: dict[str, WriterAbilities] = {}  # of the writers
        self._sources: list[SourceInstance] = []
        self._instances: dict[tuple[int, int], Instance] = {}
        self._stage_order: list[tuple[int, Instance]] = []
        self._codecs = {edge.index: program.codec(edge.index) for edge in program.plan.edges}
        self._untried = dict.fromkeys(self._codecs, _TRIED_BATCHES)

    def open(self) -> None:
        """Open sources, then sinks, so that a missing input leaves no empty result. An error names the step."""
        plan = self.program.plan
        for stage in sorted(plan.stages, key=lambda stage: (stage.kind != "source", stage.index)):
            for index in range(stage.parallelism):
                endpoint = None if stage.kind == "operator" else self.program.endpoint(stage.index)
                with _named(stage.name):
                    if endpoint is not None and stage.kind == "source":
                        reader = open_source(
                            endpoint.connector, endpoint.row_type, columns=endpoint.columns, wanted=endpoint.wanted
                        )
                        self._readers.append(reader)
                        intake = open_intake(
                            self.program.steps(stage.index)[0],
                            Path(tempfile.gettempdir()),
                            self.program.output_type(stage.index),
                        )
                        self._sources.append(SourceInstance(self.program, stage.index, reader, intake))
                        continue
                    writer = None
                    if endpoint is not None:
                        writer = self._writers[stage.name] = open_sink(endpoint.connector, endpoint.row_type)
                        self._abilities[stage.name] = WriterAbilities.of(writer)
                self._instances[stage.index, index] = Instance(
                    self.program, stage.index, index, writer, disk_stores(Path(tempfile.gettempdir()))
                )
        self._stage_order = [(stage, self._instances[stage, index]) for stage, index in sorted(self._instances)]

    def run_in_order(self, on_progress: Progress | None, on_log: Callable[[str], None] | None = None) -> None:
        """Run sources in order of event time and stages in order of the graph."""
        paths = [self._fused_paths(source) for source in self._sources]
        emitters = [
            self._deliverer(source.stage, source.index, path) for source, path in zip(self._sources, paths, strict=True)
        ]
        workers = [(instance, self._deliverer(stage, instance.index)) for stage, instance in self._stage_order]
        waiting = [0] * len(self._sources)
        next_progress = next_flush = time.monotonic_ns() + PROGRESS_NS
        while True:
            now = time.monotonic_ns()
            if now >= next_flush:
                self._flush()
                self.report_new_errors(on_log)
                next_flush = now + FLUSH_NS
            if on_progress is not None and now >= next_progress:
                on_progress(summarise(self.program.specification, self.statistics()))
                next_progress = now + PROGRESS_NS
            chosen = self._furthest_behind(waiting, now)
            if chosen is None:
                if all(source.finished for source in self._sources):
                    break
                self._flush()
                wake = min(wait for source, wait in zip(self._sources, waiting, strict=True) if not source.finished)
                time.sleep(min(max(wake - now, 1_000_000) / 1e9, _LONGEST_SLEEP_S))
                continue
            source = self._sources[chosen]
            polled = source.poll(now, time.time_ns(), self._read_at_once(source, paths[chosen]))
            waiting[chosen] = polled.wait_until_ns or 0
            if polled.batch is None:
                continue
            source.send(polled.batch, emitters[chosen])
            for instance, emit in workers:
                while instance.work(emit):
                    pass

    def _furthest_behind(self, waiting: list[int], now: int) -> int | None:
        """Return the index of the ready source with the lowest event time; None when all sources wait."""
        if len(self._sources) == 1:
            return 0 if waiting[0] <= now and not self._sources[0].finished else None
        ready = [i for i, source in enumerate(self._sources) if not source.finished and waiting[i] <= now]
        if ready:
            least = min(source.watermark for source in self._sources if not source.finished)
            if sum(instance.queued_rows for instance in self._instances.values()) > MAX_QUEUED_ROWS:
                ready = [i for i in ready if self._sources[i].watermark == least]
        return min(ready, key=lambda i: self._sources[i].watermark, default=None)

    def run_randomly(self, random: RandomStream) -> None:
        """Run any channel or source next, with batches and budgets of any size. Source rates are not kept."""
        wires: dict[tuple[int, int, int], list[Batch]] = {channel: [] for channel in self.program.plan.channels()}

        def emitter(source: int) -> Callable[[int, int, Batch], None]:
            def emit(edge: int, target: int, batch: Batch) -> None:
                wires[edge, source, target] += batch.pieces(1 + random.index(20)) if random.index(3) else [batch]

            return emit

        emitters = [emitter(index) for index in range(max(stage.parallelism for stage in self.program.plan.stages))]
        now = 0
        while True:
            ready = [channel for channel, batches in wires.items() if batches]
            sources = [source for source in self._sources if not source.finished]
            if not ready and not sources:
                break
            crowded = any(len(wires[channel]) > 64 for channel in ready)
            # A bound on the wires keeps the memory small while the order stays arbitrary.
            if sources and not crowded and (not ready or random.uniform() < 0.3):
                source = random.choice(sources)
                if source.reads_on and random.index(2):  # as if its outputs were blocked
                    now = max(now, source.take_in(now, time.time_ns(), random.choice((1, 20, 200))) or 0)
                    continue
                polled = source.poll(now, time.time_ns(), random.choice((1, 3, 20, 200)))
                now = max(now, polled.wait_until_ns or 0)
                if polled.batch is not None:
                    source.send(polled.batch, emitters[0])
                continue
            edge, index, target = channel = random.choice(ready)
            instance = self._instances[self.program.plan.edges[edge].target, target]
            instance.offer(edge, index, self._through_the_wire(edge, wires[channel].pop(0)))
            while instance.work(emitters[instance.index], 1 + random.index(100)):
                pass

    def _fused_paths(self, source: SourceInstance) -> dict[int, FusedPath]:
        """Return the paths from a source to a sink that are fused into one loop, by their first edge."""
        plan = self.program.plan
        paths = {
            edge.index: fused_path(plan, edge, self._instances, self._batch_rows)
            for edge in plan.outgoing(source.stage)
        }
        return {edge: path for edge, path in paths.items() if path is not None}

    def _read_at_once(self, source: SourceInstance, paths: Mapping[int, FusedPath]) -> int:
        """Return how many rows to ask a source for: many batches, where all fused paths behind it cut them."""
        edges = self.program.plan.outgoing(source.stage)
        cuts = all(edge.index in paths and not self._untried[paths[edge.index].into_sink] for edge in edges)
        return max(self._batch_rows, MAX_BATCH_ROWS) if cuts else self._batch_rows

    def _deliverer(
        self, stage: int, index: int, paths: Mapping[int, FusedPath] = MappingProxyType({})
    ) -> Callable[[int, int, Batch], None]:
        """Return emit(edge, target, batch), which puts a batch into the next instance's merge or on its fused path."""
        edges = [edge for edge in self.program.plan.edges if edge.source == stage]
        offers = {
            (edge.index, target): self._instances[edge.target, target].offer
            for edge in edges
            for target in self.program.plan.targets(edge.index, index)
        }
        untried = self._untried

        def emit(edge: int, target: int, batch: Batch) -> None:
            if untried[edge] and len(batch):
                untried[edge] -= 1
                self._through_the_wire(edge, first_rows(batch, MAX_BATCH_ROWS))
            elif edge in paths and not untried[paths[edge].into_sink]:
                batch = paths[edge].take(batch)
            offers[edge, target](edge, index, batch)

        return emit

    def _through_the_wire(self, edge: int, batch: Batch) -> Batch:
        """Return the batch as another process would receive it, cut into the frames in which it would be sent.

        Raises:
            UserCodeError: rows do not have their declared type, or one is too large to travel.
        """
        codec = self._codecs[edge]
        step = self.program.steps(self.program.plan.edges[edge].source)[-1]
        received: list[Batch] = []
        if batch.barrier:
            return batch
        try:
            for _, body in codec.encode_within(batch):
                if len(body) > MAX_DATA_FRAME_BYTES - DATA_HEADER_BYTES:
                    raise UserCodeError(
                        f"{step.where} in {step.name}: one row has {len(body):,} bytes; at most 4 MiB can travel"
                    )
                received.append(codec.decode(body))
            return concatenated(received)
        except (RemoteProtocolError, TypeError, ValueError, OverflowError) as error:
            detail = str(error).removeprefix("form: ")
            raise UserCodeError(
                f"{step.where} in {step.name}: its rows are not {self.program.plan.edges[edge].row_type}: {detail}"
            ) from None

    def report_new_errors(self, on_log: Callable[[str], None] | None, *, at_end: bool = False) -> None:
        """Log the records that were malformed or dropped by error policies since the last call."""
        if on_log is None:
            return
        for source in self._sources:
            for text in source.take_messages(at_end=at_end):
                on_log(text)
        for name, abilities in self._abilities.items():
            for text in () if abilities.notices is None else abilities.notices.take_notices():
                on_log(f"{name}: {text}")
        for _, instance in self._stage_order:
            for text in (*instance.reports.take(), *(instance.reports.rest() if at_end else ())):
                on_log(text)

    def _flush(self) -> None:
        for name, writer in self._writers.items():
            with _named(name):
                writer.flush()

    def close_sinks(self) -> None:
        """Close the sinks and raise their errors, because results are then missing."""
        for name, writer in self._writers.items():
            with _named(name):
                writer.close()

    def close(self) -> None:
        """Close everything that is still open, without raising: an earlier error may be on its way."""
        for source in self._sources:
            source.close()
        for reader in self._readers:
            reader.close()
        for writer in self._writers.values():
            try:
                writer.close()
            except OperationFailed:
                continue

    def statistics(self) -> list[InstanceStatistics]:
        """Return the counts of every instance."""
        return [
            *(source.statistics() for source in self._sources),
            *(instance.statistics() for _, instance in self._stage_order),
        ]

    def collected(self) -> dict[str, list[Any]]:
        """Return the rows of the sinks that keep them, by name."""
        sinks = {name: abilities.keeps_rows for name, abilities in sorted(self._abilities.items())}
        return {name: sink.rows for name, sink in sinks.items() if sink is not None and sink.rows is not None}
