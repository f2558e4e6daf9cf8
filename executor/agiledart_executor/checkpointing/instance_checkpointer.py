"""Checkpoints in an executor: sources send barriers, instances save a snapshot at each, sinks commit when the coordinator does.

The agent sends `BeginEpoch` and receives an `AcknowledgeCheckpoint` of each instance when its snapshot is on the disk. Later the
agent sends `NotifyEpochCommitted`. Slow work (hashing, writing, fsync) runs in one thread. A large state is encoded in slices
between batches (`snapshots/`). Rows go on meanwhile, also when a snapshot cannot be written and the coordinator gives the epoch up.
Source: recovery specification §10 (epoch), §11.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from agiledart_connectors.files.seals import OutputFileChangedError, parse_sealed_file
from agiledart_dataflow.plan.connector_abilities import WriterAbilities
from agiledart_dataflow.runtime.instance_snapshot import EncodedSnapshot
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot
from agiledart_executor.checkpointing.instance_restorer import InstanceRestorer
from agiledart_executor.checkpointing.opening_records import OpeningRecords
from agiledart_executor.checkpointing.source_logs import SourceLogs
from agiledart_executor.checkpointing.source_positions import SourcePositions
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.slice_scheduler import SliceScheduler
from agiledart_executor.snapshots.sliced_snapshot_write import SlicedSnapshotWrite, encode_within_limit
from agiledart_executor.snapshots.snapshot_file import (
    SnapshotHeader,
    SnapshotWriter,
    snapshot_bytes,
    write_snapshot,
)
from agiledart_executor.spool.logged_reader import LoggedReader
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint, DeclineCheckpoint, InstanceName
from agiledart_kernel.errors import AgileDartError, OperationFailed, RollBackNeeded
from agiledart_recovery.survival import Survival, survival_of

END_AGAIN_SECONDS = 2.0
"""Seconds between two attempts to save the final snapshot of an instance that has ended."""


def _unread(running: RunningInstance) -> int:
    reader = None if running.source is None else running.source.reader
    return reader.unread if isinstance(reader, LoggedReader) else 0


def _fits_register(running: RunningInstance, log: LoggedReader | None) -> bool:
    """Return whether an instance has nothing to save but counts and positions, which no other file has to go with."""
    if running.source is not None:
        return log is None
    if running.writer is not None:
        return publishes_at_once(running.sink)
    return survival_of(0, 0, has_state=running.plan_stage.has_state) is Survival.RESTARTED


def publishes_at_once(sink: WriterAbilities) -> bool:
    """Return whether all rows that a sink has prepared are visible, so that no other process need publish them after its end."""
    if sink.transactional is None or sink.emits_at_once:
        return True
    return parse_sealed_file(sink.identity) is not None


class InstanceCheckpointer:
    """Checkpointer of one executor: saves its instances at barriers, and commits their epochs.

    Args:
        folder: of the run, on this node's disk.
        run, attempt: number of the run and attempt of its plan.
        steps: stage → names of its steps.
        send: sends a message to the agent.
        register_bytes: largest snapshot of an instance without state that goes to the run's register instead of the disk; 0: none.

    Attributes:
        on_failure: called when a sink cannot deliver its rows or an instance cannot be saved.
        on_rollback_needed: called when a sink has lost its rows since the last epoch.
        slices: schedules the encoding of large states.
        records: of how the instances began.
        source_logs: of the sources in this process.
        restorer: restores the instances.
        slice: encodes for a while, (instance, step, until when in monotonic ns) → True when more is left.
    """

    def __init__(
        self,
        folder: Path,
        run: int,
        attempt: int,
        steps: Callable[[int], tuple[str, ...]],
        send: Callable[[AcknowledgeCheckpoint | DeclineCheckpoint], None],
        register_bytes: int = 0,
    ) -> None:
        self._folder, self._run, self._attempt = folder, run, attempt
        self._steps, self._send, self._register_bytes = steps, send, register_bytes
        self.on_failure: Callable[[RunningInstance, str], None] = lambda running, text: None
        self.on_rollback_needed: Callable[[RunningInstance, str], None] = lambda running, text: None
        self._thread = ThreadPoolExecutor(1, "snapshots")
        self._loop = asyncio.get_running_loop()
        self._ends: dict[InstanceName, dict[int, tuple[int, ...]]] = {}  # of sinks, by epoch not yet committed
        self._positions = SourcePositions()
        self.records = OpeningRecords(folder, run)
        self.source_logs = SourceLogs(folder, self.records, self._loop, self._call_soon)
        self.restorer = InstanceRestorer(folder, run, attempt, steps, self.records, self._positions)
        self.slices = SliceScheduler(self._loop)
        self.slice: Callable[[RunningInstance, Callable[[], bool], int], bool] = self._slice
        self._open_writes: dict[InstanceName, SlicedSnapshotWrite] = {}  # snapshots that are not fully encoded
        self._ending: dict[InstanceName, RunningInstance] = {}  # instances that ended while such a snapshot was open

    def opened(self, running: RunningInstance) -> None:
        """Record the ends of a sink that was opened for the first time: everything before them belongs to epoch 0.

        Raises:
            OSError: the disk cannot take the record.
        """
        writer = running.open_transaction()
        running.save_increments()
        if writer is not None:
            self.records.keep_ends(running, writer.prepare())

    def at_barrier(
        self,
        running: RunningInstance,
        epoch: int,
        snapshot: EncodedSnapshot,
        began_ns: int,
        change: bytes = b"",
        *,
        has_ended: bool = False,
    ) -> None:
        """Save an instance that has come to the barrier of an epoch, or to the end of its input.

        Args:
            running: the instance.
            epoch: of the barrier; at the end the epoch above the last barrier.
            snapshot: of the instance, as of the barrier.
            began_ns: when saving began (monotonic); rows have waited since.
            change: name of the plan that the barrier brings.
            has_ended: True at the end of the input.
        """
        if (before := self._open_writes.get(running.instance_name)) is not None:
            before.drop()  # the coordinator went on to this epoch without the earlier one
        made = encode_within_limit(snapshot) if isinstance(snapshot, AsyncInstanceSnapshot) else snapshot
        if isinstance(snapshot, AsyncInstanceSnapshot) and isinstance(made, list):
            self._save_in_slices(running, epoch, snapshot, made, began_ns, change, has_ended=has_ended)
        else:
            assert isinstance(made, bytes)  # a whole snapshot, encoded before or just now
            self._save(running, epoch, made, began_ns, change, has_ended=has_ended)

    def _save(
        self, running: RunningInstance, epoch: int, snapshot: bytes, began_ns: int, change: bytes, *, has_ended: bool
    ) -> None:
        name = running.instance_name
        writer = running.sink.transactional
        ends: tuple[int, ...] = ()
        # First phase of the commit: the sink makes its rows safe before the snapshot that names their ends is written.
        try:
            if writer is not None:
                if has_ended and running.sink.last_part is not None:
                    running.sink.last_part.at_end_of_input()
                ends = writer.prepare()
        except RollBackNeeded as error:
            self.on_rollback_needed(running, f"{running.name}: {error}")
            return
        except (OperationFailed, OSError) as error:
            self._unprepared(
                running,
                DeclineCheckpoint(epoch, name, str(error)),
                partial(self._save, running, epoch, snapshot, began_ns, change, has_ended=True) if has_ended else None,
            )
            return
        blocks = [snapshot, msgspec.msgpack.encode(ends), running.sink.identity.encode()] if ends else [snapshot]
        reader = None if running.source is None else running.source.reader
        if running.reader_abilities.seekable is not None:
            blocks.append(place := running.reader_abilities.seekable.position())
            if running.reader_abilities.trimmable is not None:
                self._positions.prepared(name, epoch, place)
        log = reader if isinstance(reader, LoggedReader) else None
        header = self._header(running, epoch, has_ended=has_ended)
        caught_up = has_ended or running.is_caught_up
        changeover_pauses = running.changeover_pauses.report(has_ended=has_ended)
        pause_ns = time.monotonic_ns() - began_ns
        fits = self._register_bytes and not change and _fits_register(running, log)
        content = snapshot_bytes(header, blocks, self._register_bytes) if fits else b""

        def work() -> None:
            try:
                # The snapshot names a position in the log, so the log must be on the disk first.
                if log is not None:
                    log.sync()
                written = (sha256(content).digest(), len(content)) if content else None
                digest, size = written or write_snapshot(self._folder, header, blocks)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                failed = DeclineCheckpoint(epoch, name, f"{self._folder} cannot be written: {why}")
                self._call_soon(self._unprepared, running, failed, partial(self._submit, work) if has_ended else None)
                return
            waited = pause_ns, change, caught_up, changeover_pauses, header.onto, pause_ns, content
            self._call_soon(
                self._saved, running, AcknowledgeCheckpoint(epoch, name, digest, size, ends, has_ended, *waited)
            )

        # A sink without two-phase commit is prepared only once its rows have arrived, so the write waits for the delivery.
        delivers = None if writer is not None else running.sink.delivery
        if delivers is not None:
            delivers.when_delivered(lambda fault: self._call_soon(self._after_delivery, running, work, fault))
        else:
            self._thread.submit(work)

    def _save_in_slices(
        self,
        running: RunningInstance,
        epoch: int,
        open_snapshot: AsyncInstanceSnapshot,
        begun: list[bytes],
        began_ns: int,
        change: bytes,
        *,
        has_ended: bool,
    ) -> None:
        """Write the snapshot of an instance with a large state slice by slice; such an instance is no source and no sink."""
        name, instance = running.instance_name, running.instance
        assert instance is not None
        header = self._header(running, epoch, has_ended=has_ended)
        caught_up = has_ended or running.is_caught_up
        changeover_pauses = running.changeover_pauses.report(has_ended=has_ended)

        def written(digest: bytes, size: int, waited_ns: int, longest_ns: int) -> None:
            # Rows waited during the slices, and before them at the barrier.
            longest_ns, waited_ns = max(longest_ns, pause_ns), waited_ns + pause_ns
            report = AcknowledgeCheckpoint(
                epoch,
                name,
                digest,
                size,
                (),
                has_ended,
                waited_ns,
                change,
                caught_up,
                changeover_pauses,
                header.onto,
                longest_ns,
            )
            self._call_soon(self._saved, running, report)

        def failed(error: OSError) -> None:
            why = (error.strerror or str(error)).lower()
            report = DeclineCheckpoint(epoch, name, f"{self._folder} cannot be written: {why}")
            again = partial(self._at_end_beside_rows, running) if has_ended else None
            self._call_soon(self._unprepared, running, report, again)

        saving = self._open_writes[name] = SlicedSnapshotWrite(
            open_snapshot,
            begun,
            SnapshotWriter(self._folder, header),
            self._submit,
            partial(self.slice, running),
            written,
            failed,
            partial(self._encoded, name),
        )
        self.slices.begin(saving)
        pause_ns = time.monotonic_ns() - began_ns

    def _encoded(self, name: InstanceName) -> None:
        """Close the open snapshot of an instance, and save its final one if the instance ended meanwhile."""
        del self._open_writes[name]
        running = self._ending.pop(name, None)
        if running is not None:
            self._at_end_beside_rows(running)

    def _at_end_beside_rows(self, running: RunningInstance) -> None:
        """Save the final snapshot between batches; a state that is no plain data fails the instance, as during its own work."""

        def step() -> bool:
            self.at_end(running)
            return False

        if not running.broken:
            self.slice(running, step, 0)

    def _slice(self, running: RunningInstance, step: Callable[[], bool], until_ns: int) -> bool:
        try:
            while step():
                if time.monotonic_ns() >= until_ns:
                    return True
        except AgileDartError as error:
            self.on_failure(running, str(error))
        return False

    def _unprepared(
        self, running: RunningInstance, report: DeclineCheckpoint, again: Callable[[], None] | None
    ) -> None:
        """Report that an instance could not be saved; `again` retries for an ended instance, which no later barrier reaches."""
        running.unsaved = f"{report.reason}, so nothing is committed"
        self._send(report)
        if again is not None:
            self._loop.call_later(END_AGAIN_SECONDS, again)

    def _submit(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the process ends
            self._thread.submit(work)

    def _after_delivery(self, running: RunningInstance, work: Callable[[], None], fault: AgileDartError | None) -> None:
        """Write a sink's snapshot once its rows have arrived; a delivery fault fails the instance instead."""
        if fault is not None:
            self.on_failure(running, f"{running.name}: {fault}")
            return
        self._submit(work)

    def _saved(self, running: RunningInstance, report: AcknowledgeCheckpoint) -> None:
        """Report a snapshot that is on the disk."""
        running.unsaved = ""
        if report.ends:
            self._ends.setdefault(report.instance, {})[report.epoch] = report.ends
        if running.instance is not None and running.instance.increments is not None:
            running.instance.increments.written(report.epoch, report.digest)
        self._send(report)

    def _header(self, running: RunningInstance, epoch: int, *, has_ended: bool) -> SnapshotHeader:
        name = running.instance_name
        stage = running.plan_stage
        return SnapshotHeader(
            self._run,
            self._attempt,
            epoch,
            running.stage,
            name.index,
            self._steps(running.stage),
            has_ended,
            name.generation,
            stage.parallelism,
            stage.owners,
            _unread(running),
            running.instance.onto(epoch) if running.instance is not None else b"",
        )

    def at_end(self, running: RunningInstance) -> None:
        """Save an instance at the end of its input; the snapshot holds for every epoch whose barrier it has not passed."""
        if running.instance_name in self._open_writes:
            self._ending[running.instance_name] = running  # saved later: no row can change an ended instance
            return
        began, epoch = time.monotonic_ns(), running.barrier + 1
        snapshot: EncodedSnapshot
        if running.instance is not None:
            snapshot = running.instance.at_end(epoch)
        else:
            assert running.source is not None
            snapshot = running.source.snapshot()
        self.at_barrier(running, epoch, snapshot, began, has_ended=True)

    def _call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the process ends, and its loop is closed
            return

    def commit(self, running: RunningInstance, epoch: int) -> None:
        """Commit the rows of an epoch that is committed in the register; do nothing for an epoch that the sink had not prepared.

        When the sink's disk refuses the commit, the rows wait: the notice of the next epoch commits this one, too.

        Raises:
            OutputFileChangedError, RollBackNeeded: another program changed the sink's files, or the disk has lost some of them.
        """
        name = running.instance_name
        if running.instance is not None and running.instance.increments is not None:
            running.instance.increments.committed(epoch)
        self._positions.committed(running, epoch)
        prepared = self._ends.get(name, {})
        due = [earlier for earlier in prepared if earlier <= epoch]
        writer = running.sink.transactional
        if not due or writer is None:
            return
        try:
            writer.commit(prepared[max(due)], epoch)
        except (OutputFileChangedError, RollBackNeeded):
            raise
        except OperationFailed as error:
            running.unsaved = f"{error}; its rows of the epoch are committed and become visible with the next one"
            return
        for earlier in due:
            del prepared[earlier]

    def close(self) -> None:
        """Drop snapshots that are still being written: an epoch that was not prepared was not committed either."""
        self.slices.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.source_logs.close()
