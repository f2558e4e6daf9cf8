"""Restoring of instances: from a committed epoch of their run, or from a checkpoint of another run.

Source: recovery specification §10 (epoch), §11.
"""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agiledart_connectors.files.seals import parse_sealed_file
from agiledart_connectors.sink_origin import CommittedOutput
from agiledart_dataflow.plan.deployment import DOES_NOT_FIT, STEPS, WHOLE, RestoreFrom, SnapshotChain
from agiledart_dataflow.plan.losses import EMPTY
from agiledart_dataflow.runtime.generation_handover import SnapshotParts
from agiledart_dataflow.state.plain_codec import StateFormatError
from agiledart_dataflow.state.restoring_from_run import restore_share
from agiledart_executor.checkpointing.opening_records import OpeningRecords
from agiledart_executor.checkpointing.source_positions import SourcePositions
from agiledart_executor.checkpointing.source_rewind import FastForwardedReader
from agiledart_executor.handover.previous_generation import take_over
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.snapshots.checksummed_file import DamagedFile
from agiledart_executor.snapshots.snapshot_file import (
    DamagedSnapshot,
    SnapshotHeader,
    StoredBlock,
    read_snapshot,
    stored_snapshot,
)
from agiledart_executor.spool.logged_reader import LoggedReader
from agiledart_kernel.errors import OperationFailed

_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


def read_of_stage(
    folder: Path, run: int, steps: Callable[[int], tuple[str, ...]], running: RunningInstance, digest: bytes
) -> tuple[SnapshotHeader, list[StoredBlock]]:
    """Read a snapshot of an instance's stage, of any generation.

    Args:
        folder: of the run, on this node's disk.
        run: number of the run.
        steps: stage → names of its steps.

    Raises:
        DamagedSnapshot, OperationFailed: it cannot be read, or belongs to another run or stage.
    """
    header, blocks = stored_snapshot(folder, digest)
    if (header.run, header.stage, header.steps) != (run, running.stage, steps(running.stage)):
        raise DamagedSnapshot(f"{running.name}: its snapshot is of another run, or of {', '.join(header.steps)}")
    return header, blocks


class InstanceRestorer:
    """Restorer of the instances of one executor; reads their snapshots from the disk.

    Args:
        folder: of the run, on this node's disk.
        run, attempt: number of the run and attempt of its plan.
        steps: stage → names of its steps.
        records: hold the ends of sinks at their opening.
        positions: take the positions to which sources are rewound.
    """

    def __init__(
        self,
        folder: Path,
        run: int,
        attempt: int,
        steps: Callable[[int], tuple[str, ...]],
        records: OpeningRecords,
        positions: SourcePositions,
    ) -> None:
        self._folder, self._run, self._attempt = folder, run, attempt
        self._steps, self._records, self._positions = steps, records, positions

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
        ends = self._records.ends(stage, index)
        if ends is None:
            return None  # nothing of this run is committed yet, so the sink's own last commit counts
        try:
            blocks = [] if saved is None else read_snapshot(self._folder, saved.digest)[1]
            identity = b"".join(blocks[2:3]).decode()
            return (
                CommittedOutput(ends)
                if parse_sealed_file(identity) is None
                else CommittedOutput(ends, identity, is_from_other_run=True)
            )
        except (OSError, DamagedFile, msgspec.MsgspecError):
            return None  # as above

    def restore(self, running: RunningInstance, at: RestoreFrom) -> None:
        """Restore an instance from a committed epoch; its channels begin anew.

        Raises:
            DamagedSnapshot: the snapshot here is not the committed one.
            OperationFailed: the snapshot cannot be read, or a source cannot rewind to it.
        """
        running.open_transaction()
        running.save_increments()
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
                    place = blocks[1].whole()
                    self._positions.restored(name, place)
                    _seek(running, place)
                else:
                    lines = running.source.lines
                    running.source.reader = (
                        FastForwardedReader(running.source.reader, lines, time.time_ns)
                        if running.rewind is None
                        else running.rewind(running.source.reader, lines)
                    )
            elif running.instance is not None:
                assert saved is not None  # the header was read from it
                running.instance.restore(*self._chain(running, saved, header), blocks[0])
                if running.sink.numbers is not None:
                    running.sink.numbers.resume_at(running.instance.written)
            if running.instance is not None:
                running.instance.count_from(at.epoch)
            self._emits_again(running)
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedSnapshot(f"{running.name}: its snapshot does not fit: {error}") from None

    def resume(self, running: RunningInstance, last: SnapshotParts, epoch: int) -> None:
        """Continue a standby instance at a committed epoch whose state it has already.

        Args:
            last: the other parts of its snapshot.
        """
        assert running.instance is not None  # only steps have standbys
        running.open_transaction()
        running.barrier = running.wanted = epoch
        running.instance.resume(last)
        running.instance.count_from(epoch)

    def read(self, running: RunningInstance, digest: bytes) -> tuple[SnapshotHeader, list[StoredBlock]]:
        """Read a snapshot of an instance's stage, of any generation. Raises as `read_of_stage`."""
        return read_of_stage(self._folder, self._run, self._steps, running, digest)

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
                    running.plan_stage.owners,
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
            _seek(running, blocks[1])
        else:
            source.reader = FastForwardedReader(source.reader, source.lines, time.time_ns)

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
        stage = running.plan_stage
        snapshots = [self.read(running, chain.digest)[0] for chain in at.snapshots if chain.stage == running.stage]
        return stage.if_lost == EMPTY and all(header.generation == stage.generation for header in snapshots)

    @staticmethod
    def _saved_of(stage: int, index: int, at: RestoreFrom) -> SnapshotChain | None:
        return next((chain for chain in at.snapshots if (chain.stage, chain.index) == (stage, index)), None)


def _seek(running: RunningInstance, position: bytes) -> None:
    """Rewind a source whose snapshot has a position."""
    seekable = running.reader_abilities.seekable
    if seekable is None:
        raise OperationFailed("its snapshot has a position of the input, and its reader cannot go to one any more")
    seekable.seek(position)
