"""Rewriting of full segments: rows that a sink wrote as they came become batches by columns, ten thousand rows each.

A segment is rewritten when every row of it is committed and another segment follows. The new file has the same rows at the same
offsets, their times of storing, the last COMMIT, and the old file's time of change, by which retention works. It is complete and on
the disk before it takes the old one's name, so a process killed at any moment leaves one or the other. The writer's lock is not
needed: a writer never changes a full segment, it only removes the oldest. A segment that was removed meanwhile is removed again.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_sink_log.column_form import ColumnForm, has_flat_columns
from agiledart_sink_log.column_index import ColumnEntry, encode_index
from agiledart_sink_log.entries import (
    COLUMNS,
    COMMIT,
    FORMAT_VERSION,
    REWRITTEN,
    SEGMENT_HEADER_BYTES,
    Damage,
    EntryHeader,
    SegmentScan,
    check_segment_header,
    columns_record,
    commit,
    record,
    seed_of,
    segment_header,
)
from agiledart_sink_log.layout import (
    AUTO,
    Description,
    Segment,
    logs_in,
    pinned_partition,
    read_committed,
    segments_of,
    sync_directory,
)
from agiledart_sink_log.plain_files import open_plain
from agiledart_sink_log.protocol import MAX_STORED_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_import("pyarrow")

BATCH_ROWS: Final = 10_000
"""Rows of a batch by columns. Measured: with 750 rows reading costs a fifth more."""

BATCH_BYTES: Final = MAX_STORED_BYTES // 2
"""Bytes of rows after which a batch ends, so that its columns fit an entry."""

NEW: Final = ".columns"
"""Suffix of a file that is being written."""


@dataclass(frozen=True)
class FullSegment:
    """Full segment of rows.

    Attributes:
        log: folder of the log.
        base: offset of its first row.
        end: offset after its last row.
    """

    log: Path
    partition: int
    base: int
    end: int


def full_segments(root: Path) -> Iterator[FullSegment]:
    """Yield the segments below a state directory that can be rewritten, logs in order of name, oldest first."""
    for directory, description in logs_in(root):
        if description.columns != AUTO or not has_flat_columns(description.fields):
            continue
        for partition in range(description.partitions):
            with pinned_partition(directory, partition) as folder:
                recorded = read_committed(folder) if folder is not None else None
                if folder is None or recorded is None:
                    continue
                segments = segments_of(folder)
                for segment, following in pairwise(segments):
                    if recorded[0] <= segment.base and following.base <= recorded[1] and _has_rows(segment):
                        yield FullSegment(directory, partition, segment.base, following.base)


def _has_rows(segment: Segment) -> bool:
    """Return whether a segment was not rewritten yet; a damaged header counts as rewritten."""
    try:
        descriptor = open_plain(segment.path, os.O_RDONLY)
    except OSError:
        return False
    try:
        head = os.pread(descriptor, 12, 0)
    finally:
        os.close(descriptor)
    return int.from_bytes(head[8:], "big") == FORMAT_VERSION


def rewrite(full: FullSegment, description: Description) -> bool:
    """Rewrite a segment. Return False when it stays: it is damaged, or was removed.

    Raises OSError when the disk refuses; the segment then stays, too.
    """
    with pinned_partition(full.log, full.partition) as folder:
        if folder is None:
            return False
        segment = next((there for there in segments_of(folder) if there.base == full.base), None)
        if segment is None:
            return False
        temporary = segment.path.with_suffix(NEW)
        try:
            _write(segment, temporary, full, description)
            os.replace(temporary, segment.path)
        except (Damage, FileNotFoundError):
            return False
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        recorded = read_committed(folder)
        if (
            recorded is not None and recorded[0] >= full.end
        ):  # trimmed meanwhile: `committed` says so before a file goes
            segment.path.unlink(missing_ok=True)
        sync_directory(folder)
    return True


def remove_unfinished(full: FullSegment) -> None:
    """Remove files of a rewriter that was killed, in the partition of a segment. One rewriter runs at a time."""
    with pinned_partition(full.log, full.partition) as folder:
        if folder is not None:
            for name in os.listdir(folder):
                if name.endswith(NEW):
                    (folder / name).unlink(missing_ok=True)


def _write(segment: Segment, temporary: Path, full: FullSegment, description: Description) -> None:
    """Write the new file and force it to the disk. Raises `Damage` when the old one is not complete."""
    temporary.unlink(missing_ok=True)
    source = open_plain(segment.path, os.O_RDONLY)
    try:
        target = open_plain(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            before = os.fstat(source)
            seed = seed_of(description.log_id, full.partition)
            head = os.pread(source, SEGMENT_HEADER_BYTES, 0)
            check_segment_header(head, description.log_id, full.partition, full.base)
            _put(target, segment_header(description.log_id, full.partition, full.base, REWRITTEN))
            scan = SegmentScan(source, SEGMENT_HEADER_BYTES, before.st_size, seed)
            for raw in _SegmentEntries(scan, seed, description, full).entries():
                _put(target, raw)
            os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
            os.fsync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _put(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]


@dataclass(frozen=True)
class _StoredEntry:
    """Entry with rows of the old segment.

    Attributes:
        body: the rows as MessagePack; b"" of columns.
        index, columns: of an entry by columns.
    """

    header: EntryHeader
    body: bytes = b""
    index: tuple[ColumnEntry, ...] = ()
    columns: tuple[bytes, ...] = ()

    def copied(self, seed: int) -> bytes:
        """Return the bytes of the entry as they are."""
        head = self.header
        about = (seed, head.schema, head.offset, head.epoch, head.at_ms, head.rows)
        if head.kind == COLUMNS:
            return columns_record(*about, encode_index(self.index), self.columns)
        return record(*about, self.body)


class _SegmentEntries:
    """Entries of the new file, from those of the old one."""

    def __init__(self, scan: SegmentScan, seed: int, description: Description, full: FullSegment) -> None:
        self._scan, self._seed, self._full = scan, seed, full
        self._schema = description.schema_id
        self._form = ColumnForm(description.fields)
        self._waiting: list[_StoredEntry] = []
        self._last_commit: EntryHeader | None = None

    def entries(self) -> Iterator[bytes]:
        """Yield the bytes of each entry. Raises `Damage`."""
        expected = self._full.base
        rows = size = 0
        while (entry := self._scan.next()) is not None:
            if entry.kind == COMMIT:
                self._last_commit = entry
                continue
            if entry.offset != expected or entry.end > self._full.end or entry.schema != self._schema:
                raise Damage(self._scan.position, f"offset {entry.offset} where {expected} should be")
            expected = entry.end
            if rows and rows + entry.rows > BATCH_ROWS and entry.rows > BATCH_ROWS // 2:
                yield from self._joined()  # a large one stays by itself
                rows = size = 0
            self._waiting.append(self._read(entry))
            rows, size = rows + entry.rows, size + entry.length
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield from self._joined()
                rows = size = 0
        if expected != self._full.end:
            raise Damage(self._scan.position, f"the segment ends at offset {expected}, not at {self._full.end}")
        yield from self._joined()
        if self._last_commit is not None:  # the end is committed, which the last COMMIT of a long epoch did not say
            last = self._last_commit
            yield commit(self._seed, last.schema, self._full.end, last.epoch, last.at_ms)

    def _read(self, entry: EntryHeader) -> _StoredEntry:
        if entry.kind != COLUMNS:
            return _StoredEntry(entry, self._scan.body(entry))
        index = self._scan.index(entry)
        return _StoredEntry(entry, b"", index, tuple(map(bytes, self._scan.columns(entry, index, range(len(index))))))

    def _joined(self) -> Iterator[bytes]:
        """Yield one entry by columns, or the waiting ones as they are when a value has no flat column."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if len(waiting) == 1 and waiting[0].header.kind == COLUMNS:
            yield waiting[0].copied(self._seed)
            return
        try:
            yield self._by_columns(waiting)
        except ValueError:
            for entry in waiting:
                yield entry.copied(self._seed)

    def _by_columns(self, waiting: list[_StoredEntry]) -> bytes:
        parts: list[list[pa.Array]] = []
        for is_by_columns, group in groupby(waiting, key=lambda entry: entry.header.kind == COLUMNS):
            entries = list(group)
            parts += map(self._arrays, entries) if is_by_columns else [self._arrays_of_rows(entries)]
        arrays = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        *columns, times = arrays
        index, messages = self._form.encoded(columns, times)
        if len(index) + sum(map(len, messages)) > MAX_STORED_BYTES:
            raise ValueError("the columns are larger than an entry may be")
        first, last = waiting[0].header, waiting[-1].header
        return columns_record(
            self._seed, first.schema, first.offset, last.epoch, last.at_ms, len(times), index, messages
        )

    def _arrays(self, entry: _StoredEntry) -> "list[pa.Array]":
        """Return the columns of an entry, and the times of storing. Raises ValueError."""
        rows, fields = entry.header.rows, len(self._form.kinds)
        if len(entry.columns) < fields:
            raise ValueError(f"{len(entry.columns)} columns of {fields} fields")
        arrays = [self._form.decoded(number, entry.columns[number], rows) for number in range(fields)]
        if len(entry.columns) > fields:
            return [*arrays, self._form.decoded(fields, entry.columns[fields], rows)]
        return [*arrays, pa.repeat(entry.header.at_ms, rows)]

    def _arrays_of_rows(self, entries: list[_StoredEntry]) -> "list[pa.Array]":
        """Return the columns of entries with rows, and the times of storing. Raises ValueError."""
        rows: list[Any] = []
        times = []
        for entry in entries:
            decoded = self._form.decoded_rows(entry.body)
            if len(decoded) != entry.header.rows:
                raise ValueError(f"{len(decoded)} rows in a batch of {entry.header.rows}")
            rows += decoded
            times.append(pa.repeat(entry.header.at_ms, len(decoded)))
        return [*self._form.columns_of(rows), pa.concat_arrays(times)]
