"""Epochs in an executor: sources let barriers in, instances save themselves at them, sinks count rows at the coordinator's word.

The agent says `BeginEpoch` and hears `Prepared` of each instance here, when its element is on the disk; later it says
`CommitEpoch`. What is slow (hashing, writing, fsync) happens in one thread, in the order in which instances came to their barriers;
rows go on meanwhile. An epoch whose element cannot be written is given up by the coordinator; the flow goes on.
Source: recovery specification §10 (epoch), §11.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec

from agiledart_dataflow.plan.deployment import RestoreFrom
from agiledart_executor.elements import DamagedElement, ElementHeader, read_element, write_element
from agiledart_executor.going_back import Resumed
from agiledart_executor.messages import InstanceName, Prepared, Unprepared
from agiledart_executor.running_instance import Running
from agiledart_kernel.errors import OperationFailed


@runtime_checkable
class ByEpoch(Protocol):
    """A sink whose rows count by epoch."""

    def prepare(self) -> tuple[int, ...]:
        """An epoch ends here: all rows taken so far are safe; the end of each part."""
        ...

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """The rows before these ends count, with the epoch that ended there."""
        ...


def _by_epoch(writer: object) -> ByEpoch | None:
    return writer if isinstance(writer, ByEpoch) else None


class Seekable(Protocol):
    """A reader that can go back."""

    def position(self) -> bytes:
        """Where it stands."""
        ...

    def seek(self, position: bytes) -> None:
        """Go there. Raises `OperationFailed` when what it reads is not the same any more."""
        ...


_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


class Epochs:
    """Saves the instances of one executor at barriers, and brings them back.

    Args:
        folder: of the run, on this node's disk.
        run, life: number of the run and life of its plan.
        steps: stage → names of its steps.
        tell: to the agent.
    """

    def __init__(
        self,
        folder: Path,
        run: int,
        life: int,
        steps: Callable[[int], tuple[str, ...]],
        tell: Callable[[Prepared | Unprepared], None],
    ) -> None:
        self._folder, self._run, self._life = folder, run, life
        self._steps, self._tell = steps, tell
        self._thread = ThreadPoolExecutor(1, "elements")
        self._loop = asyncio.get_running_loop()
        self._ends: dict[InstanceName, dict[int, tuple[int, ...]]] = {}  # of sinks, by epoch not yet committed

    def opened(self, running: Running) -> None:
        """A sink is open: what it holds now belongs to epoch 0, whoever wrote it, and stays noted on this disk.

        Raises:
            OSError: the disk does not take that.
        """
        writer = self._takes(running)
        if writer is not None:
            path = self._opened_path(running.stage, running.index)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_name(f".{path.name}.part")
            part.write_bytes(msgspec.msgpack.encode(writer.prepare()))
            part.replace(path)

    def _opened_path(self, stage: int, index: int) -> Path:
        return self._folder / "opened" / f"{stage}.{index}"

    def kept_ends(self, stage: int, index: int, at: RestoreFrom) -> tuple[int, ...] | None:
        """Up to where the parts of a sink are committed; None for one that was never opened here.

        Raises:
            DamagedElement, OperationFailed: its element cannot be read.
        """
        digest = self._digest_of(stage, index, at)
        if digest:
            _, blocks = read_element(self._folder, digest)
            return _ENDS.decode(blocks[1]) if len(blocks) > 1 else None
        try:
            return _ENDS.decode(self._opened_path(stage, index).read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    @staticmethod
    def _digest_of(stage: int, index: int, at: RestoreFrom) -> bytes:
        return next((one.digest for one in at.elements if (one.stage, one.index) == (stage, index)), b"")

    @staticmethod
    def _takes(running: Running) -> ByEpoch | None:
        """The sink of an instance, if its rows count by epoch; it stays open until the last one is committed."""
        writer = _by_epoch(running.writer)
        running.by_epoch = writer is not None
        return writer

    def at_barrier(
        self, running: Running, epoch: int, snapshot: bytes, began_ns: int, *, has_ended: bool = False
    ) -> None:
        """An instance has come to the barrier of an epoch, or to its end.

        Args:
            snapshot: of it, as of the barrier.
            began_ns: when saving began; rows have waited since.
        """
        name = InstanceName(running.stage, running.index)
        writer = _by_epoch(running.writer)
        ends: tuple[int, ...] = ()
        try:
            if writer is not None:
                ends = writer.prepare()
        except (OperationFailed, OSError) as error:
            self._tell(Unprepared(epoch, name, str(error)))
            return
        blocks = [snapshot, msgspec.msgpack.encode(ends)] if ends else [snapshot]
        reader = None if running.source is None else running.source.reader
        if reader is not None and hasattr(reader, "position"):
            blocks.append(reader.position())
        header = ElementHeader(
            self._run, self._life, epoch, running.stage, running.index, self._steps(running.stage), has_ended
        )
        pause_ns = time.monotonic_ns() - began_ns

        def work() -> None:
            try:
                digest, size = write_element(self._folder, header, blocks)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                told = Unprepared(epoch, name, f"{self._folder} cannot be written: {why}")
                self._soon(self._tell, told)
                return
            self._soon(self._saved, running, epoch, digest, size, ends, has_ended, pause_ns)

        self._thread.submit(work)

    def at_end(self, running: Running) -> None:
        """An instance has come to the end of its input: what it is now holds for every epoch whose barrier it has not passed."""
        began, epoch = time.monotonic_ns(), running.barrier + 1
        if running.instance is not None:
            snapshot = running.instance.snapshot(epoch)
        else:
            assert running.source is not None
            snapshot = running.source.snapshot()
        self.at_barrier(running, epoch, snapshot, began, has_ended=True)

    def _soon(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:  # the process ends, and its loop is closed
            return

    def _saved(
        self,
        running: Running,
        epoch: int,
        digest: bytes,
        size: int,
        ends: tuple[int, ...],
        has_ended: bool,
        pause_ns: int,
    ) -> None:
        self._prepared(running, epoch, digest, size, ends, has_ended=has_ended, pause_ns=pause_ns)

    def _prepared(
        self,
        running: Running,
        epoch: int,
        digest: bytes,
        size: int,
        ends: tuple[int, ...],
        *,
        has_ended: bool,
        pause_ns: int = 0,
    ) -> None:
        name = InstanceName(running.stage, running.index)
        if ends:
            self._ends.setdefault(name, {})[epoch] = ends
        self._tell(Prepared(epoch, name, digest, size, ends, has_ended, pause_ns))

    def commit(self, running: Running, epoch: int) -> None:
        """An epoch is committed in the register: a sink lets its rows count. Nothing for one that it had not prepared.

        Raises:
            OperationFailed: the sink's disk does not take the mark; the register remembers.
        """
        prepared = self._ends.get(InstanceName(running.stage, running.index), {})
        known = [one for one in prepared if one <= epoch]
        writer = _by_epoch(running.writer)
        if not known or writer is None:
            return
        writer.commit(prepared[max(known)], epoch)
        for one in known:
            del prepared[one]

    def restore(self, running: Running, at: RestoreFrom) -> None:
        """Bring an instance back to where it was at a committed epoch; its channels begin anew.

        Raises:
            DamagedElement: the element here is not the one that was committed.
            OperationFailed: it cannot be read, or a source cannot go back there.
        """
        self._takes(running)
        running.barrier = running.wanted = at.epoch
        if not at.epoch:
            return  # the beginning: as a new instance is
        digest = self._digest_of(running.stage, running.index, at)
        if not digest:
            raise OperationFailed(f"{running.name}: nobody says what it was at epoch {at.epoch}")
        header, blocks = read_element(self._folder, digest)
        steps = self._steps(running.stage)
        if (header.run, header.steps) != (self._run, steps):
            raise DamagedElement(f"{running.name}: its element is of another run, or of {', '.join(header.steps)}")
        try:
            if running.source is not None:
                running.source.restore(blocks[0])
                if len(blocks) > 1:
                    running.source.reader.seek(blocks[1])
                else:
                    lines = running.source.lines
                    running.source.reader = Resumed(running.source.reader, lines, time.time_ns)
            elif running.instance is not None:
                running.instance.restore(blocks[0])
        except OperationFailed as error:
            raise OperationFailed(f"{running.name}: {error}") from None
        except (msgspec.MsgspecError, IndexError) as error:
            raise DamagedElement(f"{running.name}: its element does not fit: {error}") from None

    def close(self) -> None:
        """What is being written is let go: an epoch that was not prepared was not committed either."""
        self._thread.shutdown(wait=False, cancel_futures=True)
