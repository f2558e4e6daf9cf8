"""Writer of a partition.

It appends rows to the last segment, writes a COMMIT entry and the `committed` file at each flush, begins a new segment when one is
full, and removes the oldest when the log is too large or too old.

Durability: flushed rows survive the death of any process, because the operating system has them. Against a power cut the writer
forces them to the disk within `SYNC_SECONDS` while rows arrive, at the end of each segment, and at closing.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import LocalProtocolError, OperationFailed, RollBackNeeded
from agiledart_sink_log.entries import SEGMENT_HEADER_BYTES, columns_record, commit, record, seed_of, segment_header
from agiledart_sink_log.layout import (
    Segment,
    committed_bytes,
    pinned,
    read_committed,
    segment_path,
    segments_of,
    sync_directory,
)
from agiledart_sink_log.plain_files import open_plain
from agiledart_sink_log.reopened_partition import ReopenedPartition, recover

SYNC_SECONDS: Final = 1.0

_BUFFERED_BYTES: Final = 256 << 10

MAX_WAITING_BYTES: Final = 16 << 20
"""Greatest size of rows that wait in memory while the disk is full, if a register stores the commits. Beyond it the run ends."""

_MIN_AGE_ROLL_MS: Final = 1_000

Clock = Callable[[], int]


class BufferedBytes:
    """Size of the rows in memory, of all partitions of a log, bytes."""

    total = 0


class PartitionWriter:
    """The only writer of a partition.

    Args:
        schema: id of the rows' schema, written into each entry.
        segment_bytes: size at which a segment is full.
        max_bytes: of all segments of this partition; the one being written is never dropped.
        max_age_ms: a segment whose last row is older is dropped; 0: never.
        clock: wall time in ns.
        keep: committed end of a partition whose commits a register stores; later rows are cut off. None: the end on the disk.
        waits: keep rows in memory, up to a bound, while the disk is full; `prepare` reports it and retries at the next checkpoint.
        cuts: false: rows committed here after `keep` stay.
        waiting: shared with the other partitions of the log.

    Raises:
        OperationFailed: a file cannot be opened or written; the message has the path.
        RollBackNeeded: the disk has lost written rows of a partition that `waits`; the writer is unusable.
    """

    def __init__(
        self,
        directory: Path,
        log_id: str,
        partition: int,
        *,
        schema: int,
        segment_bytes: int,
        max_bytes: int,
        max_age_ms: int,
        clock: Clock = time.time_ns,
        keep: int | None = None,
        waits: bool = False,
        cuts: bool = True,
        waiting: BufferedBytes | None = None,
    ) -> None:
        self._waits, self._is_full, self._lost = waits, False, ""
        self._waiting = waiting or BufferedBytes()
        self._shown = self._directory = directory
        self._log_id, self._partition = log_id, partition
        self._seed = seed_of(log_id, partition)
        self._schema, self._segment_bytes, self._max_bytes = schema, segment_bytes, max_bytes
        self._max_age_ms, self._clock = max_age_ms, clock
        self._descriptor = self._committed_file = self._pin = -1
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._uncommitted = False
        self._synced_at = time.monotonic()
        self._is_dirty = False
        self.trimmed_rows = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._pin, self._directory = pinned(
                directory
            )  # users' code may write in the folder, and the agent opens the file, too
            self.recovered: ReopenedPartition = recover(self._directory, log_id, partition, keep, cuts=cuts)
            self._open(self.recovered)
        except OSError as error:
            self._release()
            raise self._unwritable(error) from None

    @property
    def end(self) -> int:
        """Return the offset of the next row."""
        return self._end

    @property
    def first(self) -> int:
        """Return the first retained offset."""
        return self._segments[0].base

    @property
    def bytes_kept(self) -> int:
        """Return the present size of all segments, bytes."""
        return sum(self._sizes.values()) + self._size

    def _open(self, reopened: ReopenedPartition) -> None:
        self._end = self._committed = reopened.end
        for segment in reopened.gone:
            segment.path.unlink(missing_ok=True)
        self._remove_trimmed()
        self._committed_file = open_plain(self._directory / "committed", os.O_RDWR | os.O_CREAT)
        self._segments = segments_of(self._directory)
        self._sizes = {segment.base: os.lstat(segment.path).st_size for segment in self._segments}
        if reopened.segment is not None:
            self._descriptor = open_plain(reopened.segment.path, os.O_RDWR)
            if reopened.cut_bytes:
                os.ftruncate(self._descriptor, reopened.size)
                os.fsync(self._descriptor)
            os.lseek(self._descriptor, reopened.size, os.SEEK_SET)
            self._size = reopened.size
            self._sizes.pop(reopened.segment.base, None)
            self._began_ms = self._now_ms()
        else:
            self._begin_segment()
            if reopened.is_within_batch:  # the segment before it has a commit behind this offset
                self._put(commit(self._seed, self._schema, self._end, 0, self._now_ms()))
        self._write_committed()
        self._trim()

    def _remove_trimmed(self) -> None:
        """Remove segments before the first retained offset: their writer was killed before their files went."""
        recorded, segments = read_committed(self._directory), segments_of(self._directory)
        for segment, following in pairwise(segments):
            if recorded is not None and following.base <= recorded[0]:
                segment.path.unlink(missing_ok=True)

    def _begin_segment(self) -> None:
        base = self._end
        path = segment_path(self._directory, base)
        # A file of this name is from a writer that was killed before any commit in it.
        self._descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._descriptor, 0)  # after the check: other kinds of files are left alone
        self._size = 0
        self._began_ms = self._now_ms()
        self._put(segment_header(self._log_id, self._partition, base))
        if not self._segments or self._segments[-1].base != base:
            self._segments.append(Segment(base, path))
        self._sizes.pop(base, None)
        sync_directory(self._directory)

    def append(self, body: bytes, rows: int) -> None:
        """Append a batch: the MessagePack array of `rows` rows. The next `commit` commits it."""
        self._append(record(self._seed, self._schema, self._end, 0, self._now_ms(), rows, body), rows)

    def append_columns(self, index: bytes, columns: Sequence[bytes], rows: int) -> None:
        """Append a batch by columns, as `ColumnForm.encoded` makes it."""
        self._append(columns_record(self._seed, self._schema, self._end, 0, self._now_ms(), rows, index, columns), rows)

    def _append(self, raw: bytes, rows: int) -> None:
        self._end += rows
        self._uncommitted = True
        self._pending.append(raw)
        self._pending_bytes += len(raw)
        self._waiting.total += len(raw)
        if self._pending_bytes >= _BUFFERED_BYTES:
            self.flush()
        if self._waiting.total > MAX_WAITING_BYTES:
            self._guarded(self._hand_over)

    def flush(self) -> None:
        """Write all appended rows to the operating system: they survive the process, and readers of uncommitted rows see them."""
        if self._pending and not self._is_full:
            with contextlib.suppress(*((OperationFailed,) if self._waits else ())):
                self._guarded(self._hand_over)

    def commit(self) -> None:
        """Commit all appended rows: readers see them."""
        if self._uncommitted:
            if not (self._waits and self._is_full):
                with contextlib.suppress(*((OperationFailed,) if self._waits else ())):
                    self._guarded(lambda: self._commit(self._end, 0))
        elif self._is_dirty and time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self._guarded(self._sync)

    def prepare(self) -> int:
        """End a checkpoint: force all appended rows to the disk, and return the offset after them.

        `commit_up_to` commits them. A full segment ends here, too.
        """

        def make_safe() -> None:
            self._hand_over()
            if not self._roll_when_full():
                self._sync()

        self._guarded(make_safe)
        return self._end

    def commit_up_to(self, offset: int, epoch: int) -> None:
        """Commit the rows before an offset that `prepare` returned, with their checkpoint."""
        if not self._committed <= offset <= self._end:
            raise LocalProtocolError(f"commit up to {offset} of {self._committed} to {self._end}")
        if offset > self._committed:
            self._guarded(lambda: self._commit(offset, epoch))

    def _commit(self, offset: int, epoch: int) -> None:
        self._pending.append(commit(self._seed, self._schema, offset, epoch, self._now_ms()))
        try:
            self._hand_over()
        except OSError:
            self._pending.pop()  # the same commit is repeated, or a later one follows
            raise
        self._committed = offset
        self._uncommitted = offset < self._end
        self._write_committed()
        if self._uncommitted:
            self._trim()
        elif not self._roll_when_full() and time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self._sync()

    def _roll_when_full(self) -> bool:
        old = self._max_age_ms and self._now_ms() - self._began_ms > max(self._max_age_ms // 8, _MIN_AGE_ROLL_MS)
        is_full = self._size >= self._segment_bytes or (old and self._size > SEGMENT_HEADER_BYTES)
        has_rows = self._segments[-1].base < self._end  # else the next segment would have the same name
        if is_full and has_rows:
            self._roll()
        return bool(is_full and has_rows)

    def _roll(self) -> None:
        self._sync()
        old, size, began_ms = self._descriptor, self._size, self._began_ms
        segments, sizes = list(self._segments), dict(self._sizes)
        self._sizes[self._segments[-1].base] = size
        path = segment_path(self._directory, self._end)
        is_new = not os.path.lexists(path)
        try:
            self._begin_segment()
        except OSError:
            if self._descriptor != old:
                os.close(self._descriptor)
                with contextlib.suppress(OSError):
                    if is_new:
                        path.unlink(missing_ok=True)
            self._descriptor, self._size, self._began_ms = old, size, began_ms
            self._segments, self._sizes = segments, sizes
            raise
        os.close(old)
        self._trim()

    def _trim(self) -> None:
        """Remove the oldest segments until size and age are within the limits."""
        limit_ms = self._now_ms() - self._max_age_ms
        if self.bytes_kept > self._max_bytes:  # rewritten segments are smaller
            self._sizes |= {
                segment.base: os.lstat(segment.path).st_size
                for segment in self._segments
                if segment.base in self._sizes
            }
        while len(self._segments) > 1 and self._segments[1].base <= self._committed:
            oldest = self._segments[0]
            too_old = self._max_age_ms and os.lstat(oldest.path).st_mtime_ns // 1_000_000 < limit_ms
            if not too_old and self.bytes_kept <= self._max_bytes:
                return
            # First `committed` records the trim, then the file goes: a reader in between gets `trimmed`.
            self._segments.pop(0)
            self._sizes.pop(oldest.base, None)
            self.trimmed_rows += self._segments[0].base - oldest.base
            self._write_committed()
            oldest.path.unlink(missing_ok=True)

    def _write_committed(self) -> None:
        os.pwrite(self._committed_file, committed_bytes(self.first, self._committed), 0)

    def _hand_over(self) -> None:
        size = self._size
        try:
            self._put(b"".join(self._pending))
        except OSError:
            self._is_full = True
            if self._waits:  # else the next writer cuts off the torn tail
                os.ftruncate(self._descriptor, size)
                self._size = os.lseek(self._descriptor, size, os.SEEK_SET)
            raise
        self._waiting.total -= self._pending_bytes
        self._pending, self._pending_bytes, self._is_full = [], 0, False

    def _put(self, raw: bytes) -> None:
        view = memoryview(raw)
        while view:
            written = os.write(self._descriptor, view)
            self._size += written
            view = view[written:]
        self._is_dirty = True

    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
            os.fdatasync(self._committed_file)
        except OSError as error:
            if self._waits:  # no retry: the system now regards the rows as written and would not report the loss again
                self._lost = str(self._unwritable(error))
                self._release()
                raise RollBackNeeded(self._lost) from None
            raise
        self._is_dirty = False
        self._synced_at = time.monotonic()

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._lost:
            raise RollBackNeeded(self._lost)
        if self._descriptor < 0:
            raise OperationFailed(f"{self._shown} is closed")
        try:
            work()
        except OSError as error:
            if not self._waits:
                self._release()  # the disk now has a torn tail, which the next writer cuts off
            raise self._unwritable(error) from None

    def close(self, *, commits: bool = True) -> None:
        """Commit (without checkpoints), force all rows to the disk, close the files; a second call has no effect."""
        if self._descriptor < 0:
            return
        try:
            if commits:
                self.commit()
            else:
                self._guarded(self._hand_over)
            if self._descriptor >= 0:
                self._guarded(self._sync)
        finally:
            self._release()

    def _release(self) -> None:
        for descriptor in (self._descriptor, self._committed_file, self._pin):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._descriptor = self._committed_file = self._pin = -1

    def _unwritable(self, error: OSError) -> OperationFailed:
        path = str(error.filename or self._shown).replace(str(self._directory), str(self._shown), 1)
        return OperationFailed(f"{path} cannot be written: {(error.strerror or str(error)).lower()}")
