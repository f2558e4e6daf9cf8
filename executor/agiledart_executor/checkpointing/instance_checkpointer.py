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
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from agiledart_connectors.files.seals import OutputFileChangedError, parse_sealed_file
from agiledart_connectors.sink_guarantees import ConfirmsDelivery, NumbersRows
from agiledart_connectors.sink_origin import CommittedOutput
from agiledart_dataflow.plan.deployment import DOES_NOT_FIT, STEPS, WHOLE, RestoreFrom, SnapshotChain
from agiledart_dataflow.plan.losses import EMPTY, PREVIOUS
from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.runtime.instance import EncodedSnapshot
from agiledart_dataflow.state.async_instance_snapshot import AsyncInstanceSnapshot
from agiledart_dataflow.state.plain_codec import StateFormatError
from agiledart_dataflow.state.restoring_from_run import restore_share
from agiledart_executor.checkpointing.file_fingerprint import FileFingerprint, check_unchanged, fingerprint_of
from agiledart_executor.checkpointing.source_rewind import FastForwardedReader
from agiledart_executor.handover.previous_generation import take_over
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.checksummed_file import DamagedFile, add_checksum, verified_content
from agiledart_executor.snapshots.slice_scheduler import SliceScheduler
from agiledart_executor.snapshots.sliced_snapshot_write import SlicedSnapshotWrite, encode_within_limit
from agiledart_executor.snapshots.snapshot_file import (
    DamagedSnapshot,
    SnapshotHeader,
    SnapshotWriter,
    StoredBlock,
    read_snapshot,
    stored_snapshot,
    write_snapshot,
)
from agiledart_executor.spool.logged_reader import SYNC_SECONDS, LoggedReader
from agiledart_executor.wire.agent_messages import AcknowledgeCheckpoint, DeclineCheckpoint, InstanceName
from agiledart_kernel.errors import AgileDartError, OperationFailed, RollBackNeeded

END_AGAIN_SECONDS = 2.0
"""Seconds between two attempts to save the final snapshot of an instance that has ended."""


@runtime_checkable
class TransactionalSink(Protocol):
    """Sink whose rows are committed by epoch (two-phase commit)."""

    def prepare(self) -> tuple[int, ...]:
        """End an epoch: make all rows taken so far safe and return the end of each part."""
        ...

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """Commit the rows before these ends, with the epoch that ended there."""
        ...

    # A sink that ends its last part differently may also have `at_end_of_input()`: no row follows, and `prepare` comes next.


def _nothing() -> None:
    return None


def _identity(writer: object) -> bytes:
    """Return the name of what a sink's ends count in: a log, or files that no other sink continues."""
    return str(getattr(writer, "identity", "") or getattr(writer, "place", "")).encode()


def _unread(running: RunningInstance) -> int:
    reader = None if running.source is None else running.source.reader
    return reader.unread if isinstance(reader, LoggedReader) else 0


def _transactional_sink(writer: object) -> TransactionalSink | None:
    return writer if isinstance(writer, TransactionalSink) else None


class SeekableReader(Protocol):
    """Reader that can be rewound."""

    def position(self) -> bytes:
        """Return the current position."""
        ...

    def seek(self, position: bytes) -> None:
        """Go to a position. Raises `OperationFailed` when the input is not the same any more."""
        ...


_FILE: msgspec.msgpack.Decoder[tuple[int, int, int]] = msgspec.msgpack.Decoder(tuple[int, int, int])
_BEGINNING: msgspec.msgpack.Decoder[tuple[int, bytes]] = msgspec.msgpack.Decoder(tuple[int, bytes])
_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


class InstanceCheckpointer:
    """Checkpointer of one executor: saves its instances at barriers, and restores them.

    Args:
        folder: of the run, on this node's disk.
        run, attempt: number of the run and attempt of its plan.
        steps: stage → names of its steps.
        send: sends a message to the agent.

    Attributes:
        on_failure: called when a sink cannot deliver its rows or an instance cannot be saved.
        on_rollback_needed: called when a sink has lost its rows since the last epoch.
        slices: schedules the encoding of large states.
        slice: encodes for a while, (instance, step, until when in monotonic ns) → True when more is left.
    """

    def __init__(
        self,
        folder: Path,
        run: int,
        attempt: int,
        steps: Callable[[int], tuple[str, ...]],
        send: Callable[[AcknowledgeCheckpoint | DeclineCheckpoint], None],
    ) -> None:
        self._folder, self._run, self._attempt = folder, run, attempt
        self._steps, self._send = steps, send
        self.on_failure: Callable[[RunningInstance, str], None] = lambda running, text: None
        self.on_rollback_needed: Callable[[RunningInstance, str], None] = lambda running, text: None
        self._thread = ThreadPoolExecutor(1, "snapshots")
        self._loop = asyncio.get_running_loop()
        self._ends: dict[InstanceName, dict[int, tuple[int, ...]]] = {}  # of sinks, by epoch not yet committed
        self._logs: list[LoggedReader] = []
        self._log_thread = ThreadPoolExecutor(1, "source logs")  # begins with the first log
        self.slices = SliceScheduler(self._loop)
        self.slice: Callable[[RunningInstance, Callable[[], bool], int], bool] = self._slice
        self._open_writes: dict[InstanceName, SlicedSnapshotWrite] = {}  # snapshots that are not fully encoded
        self._ending: dict[InstanceName, RunningInstance] = {}  # instances that ended while such a snapshot was open
        self._places: dict[InstanceName, dict[int, bytes]] = {}  # of sources with a log, by epoch not yet committed
        self._committed_places: dict[
            InstanceName, bytes
        ] = {}  # of sources that may have to rewind behind the committed epoch

    @staticmethod
    def save_increments(running: RunningInstance) -> None:
        """Let an instance save increments, from its second committed snapshot on."""
        if running.instance is not None:
            running.instance.increments = Increments(running.instance.state)

    def opened(self, running: RunningInstance) -> None:
        """Record the ends of a sink that was opened for the first time: everything before them belongs to epoch 0.

        Raises:
            OSError: the disk cannot take the record.
        """
        writer = self._open_transactional_sink(running)
        self.save_increments(running)
        if writer is not None:
            self._write_file(self._opened_path(running.stage, running.index), msgspec.msgpack.encode(writer.prepare()))

    def keep_file_fingerprint(self, running: RunningInstance, path: str) -> None:
        """Record the fingerprint of a source's file, or check it when this run has recorded one before.

        Raises:
            OperationFailed: the file has changed, or the fingerprint cannot be written, or the file cannot be read.
        """
        note = self._opened_path(running.stage, running.index).with_suffix(".file")
        try:
            run, length, crc = _FILE.decode(verified_content(note.read_bytes(), note.name))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            run, length, crc = 0, 0, 0
        try:
            if run == self._run:
                check_unchanged(path, FileFingerprint(length, crc))
            elif (fingerprint := fingerprint_of(path)) is not None:
                self._write_file(note, msgspec.msgpack.encode((self._run, *fingerprint)))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise OperationFailed(f"{running.name}: {self._folder} cannot be written: {why}") from None
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None

    def _opened_path(self, stage: int, index: int) -> Path:
        return self._folder / "opened" / f"{stage}.{index}"

    def kept(self, stage: int, index: int, at: RestoreFrom) -> CommittedOutput | None:
        """Return up to where the parts of a sink are committed; None for a sink that was never opened here.

        Raises:
            DamagedSnapshot, OperationFailed: its snapshot cannot be read.
        """
        saved = next((chain for chain in at.emitted_rows if (chain.stage, chain.index) == (stage, index)), None)
        saved = saved or self._saved_of(stage, index, at)
        if saved is not None and at.epoch:
            _, blocks = read_snapshot(self._folder, saved.digest)
            return CommittedOutput(_ENDS.decode(blocks[1]), b"".join(blocks[2:3]).decode()) if len(blocks) > 1 else None
        path = self._opened_path(stage, index)
        try:
            ends = _ENDS.decode(verified_content(path.read_bytes(), path.name))
            blocks = [] if saved is None else read_snapshot(self._folder, saved.digest)[1]
            identity = b"".join(blocks[2:3]).decode()
            return (
                CommittedOutput(ends)
                if parse_sealed_file(identity) is None
                else CommittedOutput(ends, identity, is_from_other_run=True)
            )
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return None  # nothing of this run is committed yet, so the sink's own last commit counts

    @staticmethod
    def _saved_of(stage: int, index: int, at: RestoreFrom) -> SnapshotChain | None:
        return next((chain for chain in at.snapshots if (chain.stage, chain.index) == (stage, index)), None)

    @staticmethod
    def _open_transactional_sink(running: RunningInstance) -> TransactionalSink | None:
        """Return the sink of an instance if its rows are committed by epoch; it stays open until the last epoch is committed."""
        writer = _transactional_sink(running.writer)
        running.by_epoch = writer is not None or isinstance(running.writer, ConfirmsDelivery)
        return writer

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
        writer = _transactional_sink(running.writer)
        ends: tuple[int, ...] = ()
        # First phase of the commit: the sink makes its rows safe before the snapshot that names their ends is written.
        try:
            if writer is not None:
                if has_ended:
                    getattr(writer, "at_end_of_input", _nothing)()
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
        blocks = [snapshot, msgspec.msgpack.encode(ends), _identity(writer)] if ends else [snapshot]
        reader = None if running.source is None else running.source.reader
        if reader is not None and hasattr(reader, "position"):
            blocks.append(place := reader.position())
            if hasattr(reader, "trim"):
                self._places.setdefault(name, {})[epoch] = place
        log = reader if isinstance(reader, LoggedReader) else None
        header = self._header(running, epoch, has_ended=has_ended)
        caught_up = running.instance is None or running.instance.is_caught_up
        changeover_pauses = running.changeover_pauses.report(has_ended=has_ended)
        pause_ns = time.monotonic_ns() - began_ns

        def work() -> None:
            try:
                # The snapshot names a position in the log, so the log must be on the disk first.
                if log is not None:
                    log.sync()
                digest, size = write_snapshot(self._folder, header, blocks)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                failed = DeclineCheckpoint(epoch, name, f"{self._folder} cannot be written: {why}")
                self._call_soon(self._unprepared, running, failed, partial(self._submit, work) if has_ended else None)
                return
            waited = pause_ns, change, caught_up, changeover_pauses, header.onto, pause_ns
            self._call_soon(
                self._saved, running, AcknowledgeCheckpoint(epoch, name, digest, size, ends, has_ended, *waited)
            )

        # A sink without two-phase commit is prepared only once its rows have arrived, so the write waits for the delivery.
        delivers: object = None if writer is not None else running.writer
        if isinstance(delivers, ConfirmsDelivery):
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
        caught_up, changeover_pauses = instance.is_caught_up, running.changeover_pauses.report(has_ended=has_ended)

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
        stage = self._stage(running)
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

    @staticmethod
    def _stage(running: RunningInstance) -> Stage:
        """Return the stage in the instance's own plan, which stays the old one when its generation ends at a barrier."""
        part = running.instance or running.source
        assert part is not None
        return part.plan.stages[running.stage]

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
        self._trim(running, epoch)
        prepared = self._ends.get(name, {})
        due = [earlier for earlier in prepared if earlier <= epoch]
        writer = _transactional_sink(running.writer)
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

    def _trim(self, running: RunningInstance, epoch: int) -> None:
        """Cut a source's log at the position of the committed epoch, or acknowledge that position to a broker's group.

        An end, named by the epoch above the last barrier, waits for that epoch. Where the run may roll back to the previous epoch,
        the position of that epoch counts.
        """
        name, source = running.instance_name, running.source
        places = self._places.get(name, {})
        due = [earlier for earlier in places if earlier <= epoch]
        if not due or source is None:
            return
        place = places[max(due)]
        if any(stage.if_lost == PREVIOUS for stage in source.plan.stages):
            self._committed_places[name], place = place, self._committed_places.get(name, b"")
        if place:
            source.reader.trim(place)
        for earlier in due:
            del places[earlier]

    # ---- logs of sources

    def keep_log(self, running: RunningInstance) -> None:
        """Start periodic fsyncs of a source's log, if it has one.

        A source whose start may differ each time, as behind the newest message, starts where an earlier attempt of the run began.
        """
        log = running.source.reader if running.source is not None else None
        if (begin := getattr(log, "saved_by_epochs", None)) is not None:
            begin(self._beginning(running), partial(self._keep_beginning, running))
        if isinstance(log, LoggedReader):
            self._logs.append(log)
            log.written = lambda: self._sync_soon(log)

    def _beginning(self, running: RunningInstance) -> bytes:
        path = self._opened_path(running.stage, running.index)
        try:
            run, position = _BEGINNING.decode(verified_content(path.read_bytes(), path.name))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return b""
        return position if run == self._run else b""

    def _keep_beginning(self, running: RunningInstance, position: bytes) -> None:
        try:
            self._write_file(
                self._opened_path(running.stage, running.index), msgspec.msgpack.encode((self._run, position))
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise OperationFailed(f"{running.name}: {self._folder} cannot be written: {why}") from None

    @staticmethod
    def _write_file(path: Path, content: bytes) -> None:
        """Replace a file by checksummed content, atomically. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(add_checksum(content, path.name))
        part.replace(path)

    def _sync_soon(self, log: LoggedReader) -> None:
        self._loop.call_later(SYNC_SECONDS, self._begin_sync, log)

    def _begin_sync(self, log: LoggedReader) -> None:
        with contextlib.suppress(RuntimeError):  # the process ends
            self._log_thread.submit(self._sync, log)

    def _sync(self, log: LoggedReader) -> None:
        try:
            receipt = log.sync()
        except OSError:  # the sender gets no receipt; the next try follows, and the next epoch names the disk
            self._call_soon(self._sync_soon, log)
        else:
            self._call_soon(log.synced, receipt)

    def sync_logs(self, report: Callable[[str], None]) -> None:
        """Fsync all logs of this process, then call `report` with an empty text or the reason of the failure."""

        def work() -> None:
            try:
                for log in self._logs:
                    log.sync()
            except OSError as error:
                self._call_soon(report, f"{self._folder} cannot be written: {(error.strerror or str(error)).lower()}")
            else:
                self._call_soon(report, "")

        self._log_thread.submit(work)

    # ----

    def restore(self, running: RunningInstance, at: RestoreFrom) -> None:
        """Restore an instance from a committed epoch; its channels begin anew.

        Raises:
            DamagedSnapshot: the snapshot here is not the committed one.
            OperationFailed: the snapshot cannot be read, or a source cannot rewind to it.
        """
        self._open_transactional_sink(running)
        self.save_increments(running)
        running.barrier = running.wanted = at.epoch
        if not at.epoch:
            if at.origin:
                self._begin_from_checkpoint(running, at)
            self._emits_again(running)
            return  # epoch 0 without a checkpoint is a fresh start
        name = running.instance_name
        saved = self._saved_of(name.stage, name.index, at)
        header, blocks = (None, []) if saved is None else self.read(running, saved.digest)
        try:
            if header is None and self._begins_empty(running, at):
                return
            # Without a snapshot of its own generation, the generation began with this epoch: the previous one holds the state.
            if header is None or header.generation != name.generation:
                take_over(self.read, running, at)
            elif running.source is not None:
                running.source.restore(blocks[0].whole())
                if len(blocks) > 1:
                    self._committed_places[name] = place = blocks[1].whole()
                    running.source.reader.seek(place)
                else:
                    lines = running.source.lines
                    running.source.reader = FastForwardedReader(running.source.reader, lines, time.time_ns)
            elif running.instance is not None:
                assert saved is not None  # the header was read from it
                running.instance.restore(*self._chain(running, saved, header), blocks[0])
                writer: object = running.writer
                if isinstance(writer, NumbersRows):
                    writer.resume_at(running.instance.written)
            if running.instance is not None:
                running.instance.count_from(at.epoch)
            self._emits_again(running)
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedSnapshot(f"{running.name}: its snapshot does not fit: {error}") from None

    def _emits_again(self, running: RunningInstance) -> None:
        if running.emitted_rows is not None and running.instance is not None:
            running.emitted_rows.resume_at(running.instance.written, self._attempt)

    def _begin_from_checkpoint(self, running: RunningInstance, at: RestoreFrom) -> None:
        """Start an instance of a new run from a checkpoint of another run.

        Raises:
            DamagedSnapshot: the snapshot does not fit the code; the text names the step.
            OperationFailed: a source cannot continue there.
        """
        name = running.instance_name
        chains = [chain for chain in at.snapshots if chain.stage == name.stage]
        try:
            # A checkpoint of the same plan fits instance by instance; otherwise the keys go to their new owners.
            if running.source is not None:
                for chain in chains:
                    self._continue_source(
                        running, read_snapshot(self._folder, chain.digest)[1], anew=at.origin == STEPS
                    )
            elif running.instance is not None and at.origin == WHOLE:
                for chain in chains:
                    if chain.index == name.index:
                        running.instance.restore(*self._read_chain_of_run(chain))
                        running.instance.count_from(0)
            elif running.instance is not None and running.writer is None:
                part = running.instance
                restore_share(
                    part.state,
                    self._stage(running).owners,
                    part.index,
                    [self._read_chain_of_run(chain) for chain in chains],
                )
        except (msgspec.MsgspecError, StateFormatError, IndexError, ValueError) as error:
            raise DamagedSnapshot(
                f"{running.name} {DOES_NOT_FIT}: its rows or its state have another form now"
                f" ({error}). Restore with --drop {running.name.split('+')[0]}, or with the code that saved the checkpoint"
            ) from None
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None

    def _read_chain_of_run(self, saved: SnapshotChain) -> list[StoredBlock]:
        """Return the states of a snapshot chain of another run, the full snapshot first."""
        states: list[StoredBlock] = []
        onto = b""
        for digest in (*saved.before, saved.digest):
            header, blocks = stored_snapshot(self._folder, digest)
            if header.onto != onto:
                raise DamagedSnapshot(
                    f"a snapshot of stage {header.stage} rests on another one than the checkpoint says"
                )
            states.append(blocks[0])
            onto = digest
        return states

    @staticmethod
    def _continue_source(running: RunningInstance, blocks: list[bytes], *, anew: bool) -> None:
        """Continue a source behind the rows that another run has read."""
        source = running.source
        assert source is not None
        source.resume(blocks[0], anew=anew)
        if len(blocks) > 1 and isinstance(source.reader, LoggedReader):
            source.reader.resume_from(blocks[1])
        elif len(blocks) > 1:
            source.reader.seek(blocks[1])
        else:
            source.reader = FastForwardedReader(source.reader, source.lines, time.time_ns)

    def read(self, running: RunningInstance, digest: bytes) -> tuple[SnapshotHeader, list[StoredBlock]]:
        """Read a snapshot of an instance's stage, of any generation.

        Raises:
            DamagedSnapshot, OperationFailed: it cannot be read, or belongs to another run or stage.
        """
        header, blocks = stored_snapshot(self._folder, digest)
        if (header.run, header.stage, header.steps) != (self._run, running.stage, self._steps(running.stage)):
            raise DamagedSnapshot(f"{running.name}: its snapshot is of another run, or of {', '.join(header.steps)}")
        return header, blocks

    def _chain(self, running: RunningInstance, saved: SnapshotChain, last: SnapshotHeader) -> list[StoredBlock]:
        """Return the states of the snapshots that the last one builds on, in order."""
        states: list[StoredBlock] = []
        before = b""
        for digest in saved.before:
            header, blocks = self.read(running, digest)
            if header.onto != before:
                raise DamagedSnapshot(f"{running.name}: a snapshot of its chain rests on another one")
            states.append(blocks[0])
            before = digest
        if last.onto != before:
            raise DamagedSnapshot(f"{running.name}: its snapshot rests on another one than its chain says")
        return states

    def _begins_empty(self, running: RunningInstance, at: RestoreFrom) -> bool:
        """Return True when the instance's state was lost and its topology allows an empty state instead."""
        stage = self._stage(running)
        snapshots = [self.read(running, chain.digest)[0] for chain in at.snapshots if chain.stage == running.stage]
        return stage.if_lost == EMPTY and all(header.generation == stage.generation for header in snapshots)

    def close(self) -> None:
        """Drop snapshots that are still being written: an epoch that was not prepared was not committed either."""
        self.slices.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._log_thread.shutdown(wait=False, cancel_futures=True)
