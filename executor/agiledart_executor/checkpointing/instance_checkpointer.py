"""Epochs in an executor: sources let barriers in, instances save themselves at them, sinks count rows at the coordinator's word.

The agent says `BeginEpoch` and hears `AcknowledgeCheckpoint` of each instance here, when its element is on the disk; later it says
`NotifyEpochCommitted`. What is slow (hashing, writing, fsync) happens in one thread; a large state is encoded in slices between batches
(`snapshots/`). Rows go on meanwhile. An epoch whose element cannot be written is given up by the coordinator; the flow
goes on.
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
"""Between two tries to save what an instance was at its end."""


@runtime_checkable
class TransactionalSink(Protocol):
    """A sink whose rows count by epoch."""

    def prepare(self) -> tuple[int, ...]:
        """An epoch ends here: all rows taken so far are safe; the end of each part."""
        ...

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """The rows before these ends count, with the epoch that ended there."""
        ...

    # One whose last part is another one than those before may also have `at_end_of_input()`: no row follows; `prepare` comes next.


def _nothing() -> None:
    return None


def _identity(writer: object) -> bytes:
    """What its ends count in: a log, or files that lie where nobody else goes on with them."""
    return str(getattr(writer, "identity", "") or getattr(writer, "place", "")).encode()


def _unread(running: RunningInstance) -> int:
    reader = None if running.source is None else running.source.reader
    return reader.unread if isinstance(reader, LoggedReader) else 0


def _transactional_sink(writer: object) -> TransactionalSink | None:
    return writer if isinstance(writer, TransactionalSink) else None


class SeekableReader(Protocol):
    """A reader that can go back."""

    def position(self) -> bytes:
        """Where it stands."""
        ...

    def seek(self, position: bytes) -> None:
        """Go there. Raises `OperationFailed` when what it reads is not the same any more."""
        ...


_FILE: msgspec.msgpack.Decoder[tuple[int, int, int]] = msgspec.msgpack.Decoder(tuple[int, int, int])
_BEGINNING: msgspec.msgpack.Decoder[tuple[int, bytes]] = msgspec.msgpack.Decoder(tuple[int, bytes])
_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


class InstanceCheckpointer:
    """Saves the instances of one executor at barriers, and brings them back.

    Args:
        folder: of the run, on this node's disk.
        run, life: number of the run and life of its plan.
        steps: stage → names of its steps.
        tell: to the agent.

    Attributes:
        on_failure: told of a sink that cannot deliver what it was given, or of an instance that cannot be saved.
        on_going_back: told of a sink whose rows since the last epoch are gone.
        slices: when large states are encoded; `slice`: how, (instance, step, until when) → more is left.
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
        self._thread = ThreadPoolExecutor(1, "elements")
        self._loop = asyncio.get_running_loop()
        self._ends: dict[InstanceName, dict[int, tuple[int, ...]]] = {}  # of sinks, by epoch not yet committed
        self._logs: list[LoggedReader] = []
        self._log_thread = ThreadPoolExecutor(1, "source logs")  # begins with the first log
        self.slices = SliceScheduler(self._loop)
        self.slice: Callable[[RunningInstance, Callable[[], bool], int], bool] = self._slice
        self._open_writes: dict[InstanceName, SlicedSnapshotWrite] = {}  # elements of which not all is encoded
        self._ending: dict[InstanceName, RunningInstance] = {}  # instances that have ended with one of these
        self._places: dict[InstanceName, dict[int, bytes]] = {}  # of sources with a log, by epoch not yet committed
        self._committed_places: dict[InstanceName, bytes] = {}  # of those that may have to go back behind it

    @staticmethod
    def save_increments(running: RunningInstance) -> None:
        """From its second committed element on, an instance need not be saved whole."""
        if running.instance is not None:
            running.instance.increments = Increments(running.instance.state)

    def opened(self, running: RunningInstance) -> None:
        """A sink is open: what it holds now belongs to epoch 0, whoever wrote it, and stays noted on this disk.

        Raises:
            OSError: the disk does not take that.
        """
        writer = self._open_transactional_sink(running)
        self.save_increments(running)
        if writer is not None:
            self._write_file(self._opened_path(running.stage, running.index), msgspec.msgpack.encode(writer.prepare()))

    def keep_file_fingerprint(self, running: RunningInstance, path: str) -> None:
        """A source reads a file: it is to be the same whenever it is read again here.

        Raises:
            OperationFailed: it is another one now; or the disk does not take the note, or does not give the file.
        """
        note = self._opened_path(running.stage, running.index).with_suffix(".file")
        try:
            run, length, crc = _FILE.decode(verified_content(note.read_bytes(), note.name))
        except (OSError, DamagedFile, msgspec.MsgspecError):
            run, length, crc = 0, 0, 0
        try:
            if run == self._run:
                check_unchanged(path, FileFingerprint(length, crc))
            elif (found := fingerprint_of(path)) is not None:
                self._write_file(note, msgspec.msgpack.encode((self._run, *found)))
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise OperationFailed(f"{running.name}: {self._folder} cannot be written: {why}") from None
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None

    def _opened_path(self, stage: int, index: int) -> Path:
        return self._folder / "opened" / f"{stage}.{index}"

    def kept(self, stage: int, index: int, at: RestoreFrom) -> CommittedOutput | None:
        """Up to where the parts of a sink are committed; None for one that was never opened here.

        Raises:
            DamagedElement, OperationFailed: its element cannot be read.
        """
        saved = next((one for one in at.emitted_rows if (one.stage, one.index) == (stage, index)), None)
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
            return None  # then the last commit that stands there counts: nothing of this run is committed yet

    @staticmethod
    def _saved_of(stage: int, index: int, at: RestoreFrom) -> SnapshotChain | None:
        return next((one for one in at.snapshots if (one.stage, one.index) == (stage, index)), None)

    @staticmethod
    def _open_transactional_sink(running: RunningInstance) -> TransactionalSink | None:
        """The sink of an instance, if its rows count by epoch; it stays open until the last one is committed."""
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
        """An instance has come to the barrier of an epoch, or to its end.

        Args:
            snapshot: of it, as of the barrier.
            began_ns: when saving began; rows have waited since.
            change: name of the plan that the barrier brings.
        """
        if (before := self._open_writes.get(running.instance_name)) is not None:
            before.drop()  # its epoch was passed over
        made = encode_within_limit(snapshot) if isinstance(snapshot, AsyncInstanceSnapshot) else snapshot
        if isinstance(snapshot, AsyncInstanceSnapshot) and isinstance(made, list):
            self._save_in_slices(running, epoch, snapshot, made, began_ns, change, has_ended=has_ended)
        else:
            assert isinstance(made, bytes)  # it was, or it is now
            self._save(running, epoch, made, began_ns, change, has_ended=has_ended)

    def _save(
        self, running: RunningInstance, epoch: int, snapshot: bytes, began_ns: int, change: bytes, *, has_ended: bool
    ) -> None:
        name = running.instance_name
        writer = _transactional_sink(running.writer)
        ends: tuple[int, ...] = ()
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
        """Write an element as it is encoded: of an instance with much state, which is no source and no sink."""
        name, instance = running.instance_name, running.instance
        assert instance is not None
        header = self._header(running, epoch, has_ended=has_ended)
        caught_up, changeover_pauses = instance.is_caught_up, running.changeover_pauses.report(has_ended=has_ended)

        def written(digest: bytes, size: int, waited_ns: int, longest_ns: int) -> None:
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
        """Nothing more is encoded of what an instance was at a barrier."""
        del self._open_writes[name]
        running = self._ending.pop(name, None)
        if running is not None:
            self._at_end_beside_rows(running)

    def _at_end_beside_rows(self, running: RunningInstance) -> None:
        """As `at_end`, outside of an instance's turn: a state that is no plain data is the end of it as in one."""

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
        """It could not be saved. No later barrier does it for one that has ended: that is tried again until the disk takes it."""
        running.unsaved = f"{report.reason}, so nothing is committed"
        self._send(report)
        if again is not None:
            self._loop.call_later(END_AGAIN_SECONDS, again)

    def _submit(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the process ends
            self._thread.submit(work)

    def _after_delivery(self, running: RunningInstance, work: Callable[[], None], fault: AgileDartError | None) -> None:
        """What a sink was given before a barrier is where it belongs; or it never will be, which nobody else may hear of."""
        if fault is not None:
            self.on_failure(running, f"{running.name}: {fault}")
            return
        self._submit(work)

    def _saved(self, running: RunningInstance, report: AcknowledgeCheckpoint) -> None:
        """An element is on the disk."""
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
        """Its own, in its own term: an instance whose term ends with a barrier never follows the plan behind it."""
        part = running.instance or running.source
        assert part is not None
        return part.plan.stages[running.stage]

    def at_end(self, running: RunningInstance) -> None:
        """An instance has come to the end of its input: what it is now holds for every epoch whose barrier it has not passed."""
        if running.instance_name in self._open_writes:
            self._ending[running.instance_name] = running  # what it is now stays as it is
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
        """An epoch is committed in the register: a sink lets its rows count. Nothing for one that it had not prepared.

        Where its disk does not take the mark, the register remembers: the next epoch's word says this one, too.

        Raises:
            SpoiltFile, RollBackNeeded: somebody else has changed what the sink had written, or the disk has lost some of it.
        """
        name = running.instance_name
        if running.instance is not None and running.instance.increments is not None:
            running.instance.increments.committed(epoch)
        self._trim(running, epoch)
        prepared = self._ends.get(name, {})
        known = [one for one in prepared if one <= epoch]
        writer = _transactional_sink(running.writer)
        if not known or writer is None:
            return
        try:
            writer.commit(prepared[max(known)], epoch)
        except (OutputFileChangedError, RollBackNeeded):
            raise
        except OperationFailed as error:
            running.unsaved = f"{error}; its rows of the epoch are committed, and are shown with the next one"
            return
        for one in known:
            del prepared[one]

    def _trim(self, running: RunningInstance, epoch: int) -> None:
        """A source's log is cut where the epoch is committed, a group told; an end, named above the last barrier, waits for it.

        Where the run may go back to the epoch before, that one's place counts.
        """
        name, source = running.instance_name, running.source
        places = self._places.get(name, {})
        known = [one for one in places if one <= epoch]
        if not known or source is None:
            return
        place = places[max(known)]
        if any(stage.if_lost == PREVIOUS for stage in source.plan.stages):
            self._committed_places[name], place = place, self._committed_places.get(name, b"")
        if place:
            source.reader.trim(place)
        for one in known:
            del places[one]

    # ---- logs of sources

    def keep_log(self, running: RunningInstance) -> None:
        """A source may have a log: from now on it is forced to the disk while rows come. One that may begin elsewhere each time,
        as behind the newest message, goes on where an earlier life of the run began.
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
        """Raises OSError."""
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
        except OSError:  # who sent it is told nothing; it is tried again, and at the next epoch the disk is named
            self._call_soon(self._sync_soon, log)
        else:
            self._call_soon(log.synced, receipt)

    def sync_logs(self, report: Callable[[str], None]) -> None:
        """Force all logs of this process to the disk, then say so; or why that failed."""

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
        """Bring an instance back to where it was at a committed epoch; its channels begin anew.

        Raises:
            DamagedElement: the element here is not the one that was committed.
            OperationFailed: it cannot be read, or a source cannot go back there.
        """
        self._open_transactional_sink(running)
        self.save_increments(running)
        running.barrier = running.wanted = at.epoch
        if not at.epoch:
            if at.origin:
                self._begin_from_checkpoint(running, at)
            self._emits_again(running)
            return  # else the beginning: as a new instance is
        name = running.instance_name
        saved = self._saved_of(name.stage, name.index, at)
        header, blocks = (None, []) if saved is None else self.read(running, saved.digest)
        try:
            if header is None and self._begins_empty(running, at):
                return
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
                assert saved is not None  # there is a header
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
            raise DamagedSnapshot(f"{running.name}: its element does not fit: {error}") from None

    def _emits_again(self, running: RunningInstance) -> None:
        if running.emitted_rows is not None and running.instance is not None:
            running.emitted_rows.resume_at(running.instance.written, self._attempt)

    def _begin_from_checkpoint(self, running: RunningInstance, at: RestoreFrom) -> None:
        """The run begins with a checkpoint of another one.

        Raises:
            DamagedElement: it does not fit the code; says of which step.
            OperationFailed: a source cannot go on there.
        """
        name = running.instance_name
        found = [one for one in at.snapshots if one.stage == name.stage]
        try:
            if running.source is not None:
                for one in found:
                    self._continue_source(running, read_snapshot(self._folder, one.digest)[1], anew=at.origin == STEPS)
            elif running.instance is not None and at.origin == WHOLE:
                for one in found:
                    if one.index == name.index:
                        running.instance.restore(*self._read_chain_of_run(one))
                        running.instance.count_from(0)
            elif running.instance is not None and running.writer is None:
                part = running.instance
                restore_share(
                    part.state, self._stage(running).owners, part.index, [self._read_chain_of_run(one) for one in found]
                )
        except (msgspec.MsgspecError, StateFormatError, IndexError, ValueError) as error:
            raise DamagedSnapshot(
                f"{running.name} {DOES_NOT_FIT}: its rows or its state have another form now"
                f" ({error}). Restore it with --drop {running.name.split('+')[0]}, or with the code that it was saved with"
            ) from None
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None

    def _read_chain_of_run(self, saved: SnapshotChain) -> list[StoredBlock]:
        """What the elements of a chain of another run say, a whole one first."""
        found: list[StoredBlock] = []
        onto = b""
        for digest in (*saved.before, saved.digest):
            header, blocks = stored_snapshot(self._folder, digest)
            if header.onto != onto:
                raise DamagedSnapshot(
                    f"what stage {header.stage} saved rests on another element than the checkpoint says"
                )
            found.append(blocks[0])
            onto = digest
        return found

    @staticmethod
    def _continue_source(running: RunningInstance, blocks: list[bytes], *, anew: bool) -> None:
        """A source goes on behind what another run has read."""
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
        """An element of an instance's stage, in any of its terms.

        Raises:
            DamagedElement, OperationFailed: it cannot be read, or is of another run or stage.
        """
        header, blocks = stored_snapshot(self._folder, digest)
        if (header.run, header.stage, header.steps) != (self._run, running.stage, self._steps(running.stage)):
            raise DamagedSnapshot(f"{running.name}: its element is of another run, or of {', '.join(header.steps)}")
        return header, blocks

    def _chain(self, running: RunningInstance, saved: SnapshotChain, last: SnapshotHeader) -> list[StoredBlock]:
        """What the elements say that the last one rests on, in order."""
        found: list[StoredBlock] = []
        before = b""
        for digest in saved.before:
            header, blocks = self.read(running, digest)
            if header.onto != before:
                raise DamagedSnapshot(f"{running.name}: an element of its chain rests on another one")
            found.append(blocks[0])
            before = digest
        if last.onto != before:
            raise DamagedSnapshot(f"{running.name}: its element rests on another one than its chain says")
        return found

    def _begins_empty(self, running: RunningInstance, at: RestoreFrom) -> bool:
        """Whether its state was lost and its topology lets it go on with none, so that nobody names an element of it."""
        stage = self._stage(running)
        snapshots = [self.read(running, one.digest)[0] for one in at.snapshots if one.stage == running.stage]
        return stage.if_lost == EMPTY and all(header.generation == stage.generation for header in snapshots)

    def close(self) -> None:
        """What is being written is let go: an epoch that was not prepared was not committed either."""
        self.slices.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._log_thread.shutdown(wait=False, cancel_futures=True)
