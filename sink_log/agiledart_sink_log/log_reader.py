"""Read access to the rows of a log by offset; works while a writer appends and trims, and after it has ended.

The reader keeps a sparse index (file position by offset) of visited entries in memory, for committed rows only, because nothing
before the committed end ever changes.
"""

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.column_index import ZoneCondition, may_match
from agiledart_sink_log.entries import (
    COLUMNS,
    COMMIT,
    HAS_ROWS,
    HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    Damage,
    EntryHeader,
    SegmentScan,
    check_segment_header,
    entries_after,
    seed_of,
)
from agiledart_sink_log.layout import (
    COPY,
    Segment,
    is_locked,
    partition_directory,
    read_committed,
    read_description,
    segments_of,
)
from agiledart_sink_log.plain_files import open_plain
from agiledart_sink_log.protocol import BY_COLUMNS, LEFT_OUT, ROWS, PartitionEnds

INDEX_STEP_BYTES: Final = 64 << 10
MAX_INDEXED_SEGMENTS: Final = 256
MAX_ANSWER_BATCHES: Final = 8_192


class TrimmedError(OperationFailed):
    """Rows at this offset were trimmed; `first` is the first retained offset."""

    def __init__(self, name: str, partition: int, offset: int, first: int) -> None:
        super().__init__(
            f"Rows {offset:,} to {first - 1:,} of the log {name}, partition {partition}, were trimmed "
            f"by the log's limits of size and age. Continue at offset {first}, and raise the limits (max_bytes, max_age) "
            f"or read more often."
        )
        self.first = first


class DamagedError(OperationFailed):
    """Rows at this offset are damaged; `next_good` is the first valid offset after them."""

    def __init__(self, name: str, partition: int, offset: int, next_good: int) -> None:
        super().__init__(
            f"Rows {offset:,} to {next_good - 1:,} of the log {name}, partition {partition}, are damaged on the disk of their "
            f"node (wrong checksum, or lost in a power cut). Continue at offset {next_good}; "
            f"check that disk."
        )
        self.next_good = next_good


@dataclass(frozen=True)
class ReadSelection:
    """Selection of a reader that knows columns.

    Attributes:
        columns: numbers of the columns to read; None: all.
        where: conditions; batches without a matching row are left out.
    """

    columns: tuple[int, ...] | None = None
    where: tuple[ZoneCondition, ...] = ()


ALL: Final = ReadSelection()


@dataclass
class ReadBatch:
    """Stored batch as read.

    Attributes:
        form: `ROWS`, `BY_COLUMNS` or `LEFT_OUT`.
        parts: the MessagePack array of the rows, or the selected columns; nothing of a batch that was left out.
        left_out: bytes of it that were not read.
        stored: number of stored batches; several only that were left out.
    """

    offset: int
    rows: int
    form: int
    parts: Sequence[bytes | memoryview]
    at_ms: int = 0
    left_out: int = 0
    stored: int = 1

    @property
    def body(self) -> bytes:
        """Return the rows as stored; only for the form `ROWS`."""
        assert self.form == ROWS, "columns where rows are expected"
        return bytes(self.parts[0])

    @property
    def size(self) -> int:
        """Return the bytes that were read."""
        return sum(map(len, self.parts))


@dataclass
class _Index:
    """Positions of entries by offset: parallel lists, ascending.

    Attributes:
        file: inode of the segment; a rewritten one is another file, with other positions.
    """

    offsets: list[int]
    positions: list[int]
    file: int = 0

    def note(self, offset: int, position: int) -> None:
        if position - self.positions[-1] >= INDEX_STEP_BYTES and offset > self.offsets[-1]:
            self.offsets.append(offset)
            self.positions.append(position)

    def before(self, offset: int) -> tuple[int, int]:
        place = bisect_right(self.offsets, offset) - 1
        return self.offsets[place], self.positions[place]


@dataclass
class _Answer:
    """Batches of a fetch so far."""

    offset: int
    max_rows: int
    max_bytes: int
    selection: ReadSelection = ALL
    batches: list[ReadBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    is_full: bool = False

    def take(self, scan: SegmentScan, entry: EntryHeader, cursor: int, rows: int) -> bool:
        """Add a batch within the limits; the first batch is always added. Raises `Damage`.

        Args:
            rows: of the batch that count; those behind the beginning of the next segment were cut off.
        """
        batch = self._read(scan, entry, rows)
        if batch is None:
            self.is_full = True
            return False
        previous = self.batches[-1] if self.batches else None
        if batch.form == LEFT_OUT and previous is not None and previous.form == LEFT_OUT:
            previous.rows += batch.rows
            previous.left_out += batch.left_out
            previous.stored += 1
        else:
            self.batches.append(batch)
        self.rows += entry.offset + batch.rows - max(entry.offset, cursor)
        self.size += batch.size
        self.is_full = (
            self.rows >= self.max_rows or self.size >= self.max_bytes or len(self.batches) >= MAX_ANSWER_BATCHES
        )
        return True

    def _read(self, scan: SegmentScan, entry: EntryHeader, rows: int) -> ReadBatch | None:
        """Return the first rows of a stored batch; None when it does not fit any more."""
        if entry.kind != COLUMNS:
            if self._is_beyond(entry.length):
                return None
            return ReadBatch(entry.offset, entry.rows, ROWS, [scan.body(entry)], entry.at_ms)
        index = scan.index(entry)
        if not may_match(index, entry.rows, self.selection.where):
            return ReadBatch(entry.offset, rows, LEFT_OUT, [], entry.at_ms, entry.length)
        chosen = self.selection.columns
        numbers = range(len(index)) if chosen is None else chosen
        size = sum(index[number].length for number in set(numbers) if number < len(index))
        if self._is_beyond(size):
            return None
        columns = scan.columns(entry, index, numbers)
        return ReadBatch(entry.offset, rows, BY_COLUMNS, columns, entry.at_ms, entry.length - size)

    def _is_beyond(self, size: int) -> bool:
        return bool(self.size) and self.size + size > self.max_bytes


class LogReader:
    """Reader of one log of this node; not thread-safe.

    Raises:
        OperationFailed: there is no log in this folder.
    """

    def __init__(self, directory: Path) -> None:
        self._files = _files_of(directory)  # before it is read: else a change in between would never be seen
        description = read_description(directory)
        if description is None:
            raise OperationFailed(f"there is no log in {directory}")
        self.directory, self.description = directory, description
        self.damaged_reads = 0
        self._indexes: OrderedDict[tuple[int, int], _Index] = OrderedDict()

    def refresh(self) -> bool:
        """Read the description again, because a new run may have opened the log. Return False when another log replaced it."""
        files = _files_of(self.directory)
        if files and files == self._files:
            return True
        description = read_description(self.directory)
        if description is None or description.log_id != self.description.log_id:
            return False
        self.description, self._files = description, files
        return True

    @property
    def is_open(self) -> bool:
        """Return whether a writer has the log open."""
        return is_locked(self.directory)

    def ends(self, partition: int, *, uncommitted: bool = False) -> PartitionEnds:
        """Return first, committed and latest offset; `latest` is searched only with `uncommitted`."""
        folder = partition_directory(self.directory, partition)
        recorded = read_committed(folder)
        if recorded is None:
            segments = segments_of(folder)
            if not segments:
                return PartitionEnds(partition, 0, 0, 0)
            recorded = (segments[0].base, self._last_commit(partition, segments))
        first, end = recorded
        latest = end
        if uncommitted:
            segments = segments_of(folder)
            if segments:
                latest = max(end, self._walk(partition, segments[-1], end)[1])
        return PartitionEnds(partition, first, end, latest)

    def _last_commit(self, partition: int, segments: list[Segment]) -> int:
        """Return the committed end from the segments; with checkpoints the last segments may have no commit."""
        for segment in reversed(segments):
            end, _ = self._walk(partition, segment, None)
            if end is not None:
                return end
        return segments[0].base

    def _walk(self, partition: int, segment: Segment, known: int | None) -> tuple[int | None, int]:
        """Return (committed, latest) end of a segment; None for the committed end without a commit.

        Args:
            known: committed end, at which the search can begin.
        """
        committed: int | None = None
        latest, start = segment.base, SEGMENT_HEADER_BYTES
        try:
            descriptor = open_plain(segment.path, os.O_RDONLY)
        except OSError:
            return committed, latest
        try:
            if known is not None:
                latest, start = self._index(partition, segment, descriptor).before(known)
            scan = SegmentScan(descriptor, start, os.fstat(descriptor).st_size, self._seed(partition))
            while (entry := scan.next()) is not None:
                latest = max(latest, entry.end)
                if entry.kind == COMMIT:
                    committed = max(committed or 0, entry.offset)
        except Damage:  # the fetch of these rows reports it
            pass
        finally:
            os.close(descriptor)
        return committed, latest

    def _seed(self, partition: int) -> int:
        return seed_of(self.description.log_id, partition)

    def _index(self, partition: int, segment: Segment, descriptor: int) -> _Index:
        key, file = (partition, segment.base), os.fstat(descriptor).st_ino
        index = self._indexes.get(key)
        if index is None or index.file != file:
            index = self._indexes[key] = _Index([segment.base], [SEGMENT_HEADER_BYTES], file)
            while len(self._indexes) > MAX_INDEXED_SEGMENTS:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(key)
        return index

    def fetch(
        self,
        partition: int,
        offset: int,
        max_rows: int,
        max_bytes: int,
        *,
        uncommitted: bool = False,
        selection: ReadSelection = ALL,
    ) -> tuple[list[ReadBatch], int, int]:
        """Return batches from `offset` on, the next offset, and the end; no batch when there is no row yet.

        Raises:
            TrimmedError, DamagedError: at the offset itself; later faults appear in the next fetch.
        """
        ends = self.ends(partition, uncommitted=uncommitted)
        end = ends.latest if uncommitted else ends.committed
        name = self.description.name
        if offset >= end:
            return [], offset, end
        answer = _Answer(offset, max_rows, max_bytes, selection)
        segments = segments_of(partition_directory(self.directory, partition))
        if not segments and offset >= ends.first:
            raise DamagedError(name, partition, offset, end)  # not trimmed: the files were removed
        if not segments or offset < segments[0].base or offset < ends.first:
            first = max(ends.first, segments[0].base if segments else end)
            raise TrimmedError(name, partition, offset, first)
        place = bisect_right([segment.base for segment in segments], offset) - 1
        cursor = offset
        for number in range(place, len(segments)):
            until = min(end, segments[number + 1].base) if number + 1 < len(segments) else end
            try:
                cursor = self._collect(partition, segments[number], cursor, until, ends.committed, answer)
            except FileNotFoundError:
                if answer.batches:
                    break
                retained = segments_of(partition_directory(self.directory, partition))
                raise TrimmedError(name, partition, offset, retained[0].base if retained else end) from None
            except Damage as damage:
                if answer.batches:
                    break
                self.damaged_reads += 1
                good = _next_good(segments[number], damage.position, cursor, until, self._seed(partition))
                raise DamagedError(name, partition, offset, good) from None
            if answer.is_full or cursor >= end:
                break
        return answer.batches, answer.batches[-1].offset + answer.batches[-1].rows if answer.batches else offset, end

    def _collect(
        self, partition: int, segment: Segment, cursor: int, until: int, committed: int, answer: _Answer
    ) -> int:
        """Collect batches of one segment up to `until`; return the offset after the last. Raises `Damage`, FileNotFoundError."""
        descriptor = open_plain(segment.path, os.O_RDONLY)
        try:
            index = self._index(partition, segment, descriptor)
            version = check_segment_header(
                os.pread(descriptor, SEGMENT_HEADER_BYTES, 0), self.description.log_id, partition, segment.base
            )
            expected, start = index.before(cursor)
            scan = SegmentScan(descriptor, start, os.fstat(descriptor).st_size, self._seed(partition), version)
            while expected < until and not answer.is_full:
                at = scan.position
                try:
                    entry = _expected(scan, expected)
                except Damage:
                    # The requested rows may lie after the damage; then the damage does not concern this fetch.
                    resumed = _resynchronised(descriptor, at, cursor, self._seed(partition))
                    if resumed is None:
                        raise
                    expected, scan.position = resumed
                    continue
                if expected <= committed:
                    index.note(expected, at)
                expected = max(expected, entry.end)
                if entry.kind in HAS_ROWS and entry.end > cursor:
                    rows = min(entry.rows, until - entry.offset) if entry.kind == COLUMNS else entry.rows
                    if not answer.take(scan, entry, cursor, rows):
                        break
                    cursor = entry.offset + rows
        finally:
            os.close(descriptor)
        return cursor


def _files_of(directory: Path) -> tuple[tuple[int, int, int], ...]:
    """Return what identifies the present description: inode, time and size of both files; () when they are not there."""
    try:
        stats = [os.lstat(directory / name) for name in ("log.json", COPY)]
    except OSError:
        return ()
    return tuple((stat.st_ino, stat.st_ctime_ns, stat.st_size) for stat in stats)


def _expected(scan: SegmentScan, offset: int) -> EntryHeader:
    """Return the next entry, which must begin with this offset. Raises `Damage`."""
    at = scan.position
    entry = scan.next()
    if entry is None:
        raise Damage(at, "the segment ends too early")
    if entry.offset != offset and not (entry.kind == COMMIT and entry.offset < offset):
        raise Damage(at, f"offset {entry.offset} where {offset} should be")
    return entry


def _resynchronised(descriptor: int, position: int, cursor: int, seed: int) -> tuple[int, int] | None:
    """Return (offset, position) of the valid record after a damaged place that has the row `cursor`."""
    for place, entry in entries_after(descriptor, position, seed):
        if place > position and entry.kind in HAS_ROWS and entry.offset <= cursor < entry.end:
            return entry.offset, place
    return None


def _next_good(segment: Segment, position: int, after: int, until: int, seed: int) -> int:
    """Return the first readable offset after a damaged place: in this segment, or at the beginning of the next one.

    A segment with a damaged header is skipped as a whole.
    """
    if position == 0:
        return until
    try:
        descriptor = open_plain(segment.path, os.O_RDONLY)
    except OSError:
        return until
    try:
        size = os.fstat(descriptor).st_size
        for place, entry in entries_after(descriptor, position, seed):
            if entry.kind in HAS_ROWS and after < entry.offset < until and place + HEADER_BYTES + entry.length <= size:
                return entry.offset
    finally:
        os.close(descriptor)
    return until
