"""Instances made from a deployment part: user code, plan, functions and connectors joined so that they can run."""

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agiledart_connectors.codecs.columns_import import PROCESS_IMPORT
from agiledart_connectors.emitted_row_count import CountedSink, EmittedRowCount
from agiledart_connectors.feed_requests import FeedRequests
from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.plugins import sink_guarantee
from agiledart_connectors.sink_guarantees import is_idempotent
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_connectors.source_origin import SourceOrigin
from agiledart_dataflow.counts.key_sample import KeySample
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.schema import read_time_index
from agiledart_dataflow.operators.scoring_step import ScoringStep
from agiledart_dataflow.plan.connectors import Connector, SourceReader
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.losses import MOVE
from agiledart_dataflow.plan.specification import FORMAT, release
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import GraphMismatch, Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_dataflow.state.owner_table import ranges_text
from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error
from agiledart_executor.checkpointing.source_rewind import (
    followed_again,
    open_logged_reader,
    refuse_duplicate_rows,
    refuse_immovable_sink,
    rewind_of_step,
)
from agiledart_executor.instances.latency_log import NO_LATENCIES, LatencyKeeping, LatencyLog, SampledSink
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.snapshot_file import run_folder
from agiledart_executor.spool.intake_opening import open_intake
from agiledart_executor.state.disk_stores import disk_stores
from agiledart_executor.user_code.application_folders import models_folder, work_folder
from agiledart_executor.user_code.bundle import Bundle
from agiledart_executor.user_code.local_models import LocalModels
from agiledart_executor.user_code.user_builder import build_bundle, decode_bundle
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import AgileDartError, BusyError, OperationFailed
from agiledart_kernel.version import VERSION
from agiledart_recovery.survival import Rewind
from agiledart_sink_log.log_writer import LOCK_PAUSE_SECONDS, LOCK_SECONDS
from agiledart_sink_log.protocol import latency_log_name

_PLAN: Codec[StagePlan] = Codec(StagePlan)

_ROOT = Path.cwd()
"""The agent's state directory, read before user code can change the working directory."""


@dataclass(frozen=True)
class Launchable:
    """User code joined with its plan.

    Attributes:
        codecs: codec of the rows, by edge.
        application, version, owner: recorded in the logs that sinks write.
        latencies: how many of the latencies sampled at sinks to keep.
        run: number of the run.
        log_owners: owner of each log that is not the application's own, by log name.
        continues_run: the run starts from a checkpoint of another run.
        delivery: delivery guarantee when a host dies.
        attempt: number of the run's attempt.
        network: identifier of the network.
        feeds: requests for rows of feeds.
    """

    program: Program
    plan: StagePlan
    codecs: dict[int, BatchCodec]
    application: str = ""
    version: int = 0
    latencies: LatencyKeeping = NO_LATENCIES
    owner: bytes = b""
    run: int = 0
    log_owners: tuple[tuple[str, bytes], ...] = ()
    continues_run: bool = False
    delivery: Delivery = Delivery.EXACTLY_ONCE
    attempt: int = 1
    network: bytes = b""
    feeds: FeedRequests | None = None

    def steps(self, stage: int) -> tuple[str, ...]:
        """Return the names of a stage's steps."""
        return tuple(step.name for step in self.program.steps(stage))

    def row_type(self, stage: int, name: str) -> Any:
        """Return the type of the rows that leave a step of a stage."""
        return next(step.row_type for step in self.program.steps(stage) if step.name == name)

    async def open_instance(
        self,
        stage: int,
        index: int,
        *,
        by_epoch: bool = False,
        restores: bool = False,
        keep: CommittedOutput | None = None,
    ) -> RunningInstance:
        """Open an instance as `instance` does, and retry for a short time while another writer holds its file.

        The event loop goes on meanwhile. Raises BusyError when the file is still held at the deadline.
        """
        deadline = asyncio.get_running_loop().time() + LOCK_SECONDS
        while True:
            try:
                running = self.instance(stage, index, by_epoch=by_epoch, restores=restores, keep=keep)
            except BusyError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            else:
                break
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        if (log := self._latency_log(stage)) is not None and running.instance is not None:
            running.latencies = log
            running.instance.observe(log)
            await log.opened()
        return running

    def _latency_log(self, stage: int) -> LatencyLog | None:
        """Return the latency log of a sink; None when latencies are not kept or its rows carry no read time."""
        if self.plan.stages[stage].kind != "sink" or not self.latencies.max_bytes:
            return None
        row_type = self.program.endpoint(stage).row_type
        if read_time_index(row_type) is None:
            return None
        specification, step = self.program.specification, self.program.steps(stage)[0]
        number = [sink.index for sink in specification.sinks].index(step.index)
        sources = tuple(source.name for source in specification.sources)
        sink = SampledSink(self.application, self.version, step.name, sources, self.owner)
        return LatencyLog(latency_log_name(self.application, number), sink, row_type, self.latencies, _ROOT)

    def _sink_origin(
        self, name: str, connector: Connector, keep: CommittedOutput | None, *, by_epoch: bool, moves: bool
    ) -> SinkOrigin:
        """Return for whom a sink writes. `name`: of its step; `keep`: up to where its parts are committed."""
        owner = dict(self.log_owners).get(connector.path, self.owner)
        run = (self.application, self.version, _ROOT, 0.0, by_epoch, keep, owner, self.run, name, self.continues_run)
        # A log that moves aborts uncommitted rows: its readers could not recognise those that only the lost node emitted.
        return SinkOrigin(*run, emits_at_once=self.delivery.emits_at_once(connector.kind) and not moves)

    def instance(
        self,
        stage: int,
        index: int,
        *,
        by_epoch: bool = False,
        restores: bool = False,
        keep: CommittedOutput | None = None,
    ) -> RunningInstance:
        """Make a new instance and open its file or connection, without waiting.

        Args:
            stage, index: the stage of the plan and the number of the instance within it.
            by_epoch: the run is saved by epochs.
            restores: the instance will be restored from a checkpoint, which needs rows instead of columns.
            keep: of a sink, up to where its parts are committed; the sink cuts off the rest. None keeps all.

        Raises:
            AgileDartError: the connector or user code refuses, or the file is busy.
            OSError: the file cannot be opened.
        """
        kind, name = self.plan.stages[stage].kind, self.plan.stages[stage].name
        running = RunningInstance(
            stage, self.plan.members(stage)[index], name,
            owned=_owned(self.plan.stages[stage], index), slo_ms=self._service_levels(stage),
        )  # fmt: skip
        try:
            if kind == "source":
                self._open_source(running, by_epoch=by_epoch, restores=restores)
            elif kind == "sink":
                # Only a sink with two-phase commit or harmless duplicates may be part of an exactly-once run.
                endpoint = self.program.endpoint(stage)
                moves = self.plan.stages[stage].if_lost == MOVE
                origin = self._sink_origin(name, endpoint.connector, keep, by_epoch=by_epoch, moves=moves)
                opened = open_sink(endpoint.connector, endpoint.row_type, origin=origin)
                running.use_writer(opened)
                if by_epoch and not self.delivery.duplicates:
                    refuse_duplicate_rows(name, endpoint.connector, running.sink)
                if moves:
                    may_move = running.sink.delivery is not None or running.sink.log is not None
                    refuse_immovable_sink(name, endpoint.connector, moves=may_move)
                running.emitted_rows = (
                    self._emitted_rows(running, endpoint.connector, restores=restores) if by_epoch else None
                )
                writer = opened if running.emitted_rows is None else CountedSink(opened, running.emitted_rows)
                running.instance = Instance(self.program, stage, index, writer)
            else:
                stores = disk_stores(work_folder(_ROOT, self.application) / "state")
                running.instance = Instance(self.program, stage, index, make_store=stores)
                if isinstance(scoring := running.instance.steps.operator, ScoringStep):
                    scoring.use_models(LocalModels(models_folder(_ROOT, self.application)))
                running.keys = self._key_sample(stage)
        except BusyError as error:
            raise BusyError(f"{name}: {error}") from None
        except OperationFailed as error:
            raise OperationFailed(f"{name}: {error}") from None
        except (AgileDartError, OSError):
            raise
        except BaseException as error:
            raise user_code_error(name, None, error, NO_RECORD) from error
        return running

    def _service_levels(self, stage: int) -> dict[str, float]:
        """Return step → milliseconds that a row may take, of the steps that have a service level."""
        steps = self.program.specification.steps
        levels = ((step.name, steps[step.index].slo_ms) for step in self.program.steps(stage))
        return {name: slo_ms for name, slo_ms in levels if slo_ms is not None}

    def _emitted_rows(
        self, running: RunningInstance, connector: Connector, *, restores: bool
    ) -> EmittedRowCount | None:
        """Return the row count of a sink that cannot abort emitted rows; None where no reader sees a row twice."""
        takes_back = running.sink.transactional is not None and not running.sink.emits_at_once
        if takes_back or is_idempotent(connector, sink_guarantee(connector.kind)):
            return None
        folder = run_folder(_ROOT, self.application, self.version) / "opened"
        return EmittedRowCount(folder / f"{running.stage}.{running.index}.shown", begins=not restores)

    def _key_sample(self, stage: int) -> KeySample | None:
        """Return a sample of the keys of a keyed stage that may have several instances; None for other stages."""
        if not self.plan.stages[stage].owners or not self.plan.stages[stage].keyed:
            return None
        edges = [edge for edge in self.plan.incoming(stage) if edge.partitioning == "key"]
        return KeySample({edge.index: self.program.key_functions(edge.source)[edge.index][1] for edge in edges})

    def _open_source(self, running: RunningInstance, *, by_epoch: bool, restores: bool) -> None:
        """Make the instance of a source; raises as `instance`."""
        stage, index = running.stage, running.index
        endpoint, step = self.program.endpoint(stage), self.program.steps(stage)[0]
        rewind = rewind_of_step(step, self.delivery, merges=self.plan.merges_by_position) if by_epoch else Rewind.AGAIN
        takes_in = not by_epoch or (self.delivery.saves_less and rewind is not Rewind.LOG)
        spool = work_folder(_ROOT, self.application) / "spool"
        intake = open_intake(step, spool, self.program.output_type(stage)) if takes_in else None
        open_reader = partial(
            open_source,
            endpoint.connector,
            endpoint.row_type,
            columns=endpoint.columns and not restores,
            wanted=endpoint.wanted,
            may_begin=PROCESS_IMPORT.has_ended,
            origin=SourceOrigin(
                self.network,
                self.application,
                step.name,
                index,
                begins=not (restores or self.continues_run or self.attempt > 1),
                feeds=self.feeds,
            ),
        )
        reader = open_reader()
        if rewind is Rewind.LOG:
            folder = run_folder(_ROOT, self.application, self.version) / "logs" / f"{stage}.{index}"
            try:
                moves = self.plan.stages[stage].if_lost == MOVE
                reader = open_logged_reader(step, reader, folder, restores=restores, moves=moves)
            except OperationFailed:
                reader.close()
                raise
        running.source = SourceInstance(self.program, stage, reader, intake)
        if rewind is Rewind.FOLLOWED:
            running.rewind = lambda reader, lines: followed_again(reader, lines, open_reader, time.time_ns)
        elif rewind is Rewind.LOST:
            running.rewind = partial(_go_on, running)


def _go_on(running: RunningInstance, reader: SourceReader, lines: int) -> SourceReader:
    """Return a source's reader as it is, and note that the rows after the last epoch are lost."""
    running.lost_behind = lines
    return reader


def ready_program(plan: bytes, bundle: bytes, run: str = "") -> Program:
    """Run the builder in a bundle and join its functions with the plan. Raises AgileDartError.

    Args:
        run: as in `UserModules`.
    """
    packed = decode_bundle(bundle)
    try:
        return compile_program(build_bundle(packed, run), _PLAN.decode(plan))
    except GraphMismatch as error:
        raise _by_versions(packed, error) from None


def _by_versions(bundle: Bundle, error: GraphMismatch) -> GraphMismatch:
    """Return the same error; where two versions of AgileDart are the cause, its text names them."""
    own_version = VERSION
    if (bundle.software, bundle.specification) == (own_version, FORMAT):
        return error
    return GraphMismatch(
        f"this node runs {release(own_version, FORMAT)}, but the application was submitted with "
        f"{release(bundle.software, bundle.specification)}: install the same agiledart on both"
    )


def make_ready(
    part: DeploymentPart,
    latencies: LatencyKeeping = NO_LATENCIES,
    network: bytes = b"",
    feeds: FeedRequests | None = None,
    run: str = "",
) -> Launchable:
    """Run the builder in the bundle and join its functions with the plan.

    Args:
        run: as in `UserModules`.

    Raises:
        AgileDartError: the code does not load here, or builds another graph than the submitted one.
    """
    program = ready_program(part.plan, part.bundle, run)
    plan = program.plan
    codecs = {edge.index: program.codec(edge.index) for edge in plan.edges}
    about = part.application, part.version, latencies, part.owner, part.number, part.log_owners, part.goes_on
    return Launchable(program, plan, codecs, *about, part.delivery, part.attempt, network, feeds)


def _owned(stage: Stage, index: int) -> dict[str, object]:
    """Return how many key groups an instance owns, and for a keyed stage also their ranges.

    The ranges of an unkeyed stage are left out: its rows go to the groups in rotation, so the ranges tell users nothing.
    """
    groups = stage.groups(index)
    if not stage.owners:
        return {}
    return {"groups": len(groups), **({"group_ranges": ranges_text(groups)} if stage.keyed else {})}
