"""Rewriting of full segments: rows that a sink wrote as they came become batches by columns, ten thousand rows each.

A segment is rewritten when every row of it is committed and another segment follows. The new file has the same rows at the same
offsets, their times of storing, the last COMMIT, and the old file's time of change, by which retention works. It is complete and on
the disk before it takes the old one's name, so a process killed at any moment leaves one or the other. The writer's lock is not
needed: a writer never changes a full segment, it only removes the oldest. A segment that was removed meanwhile is removed again.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from agiledart_sink_log.column_form import ColumnForm, has_flat_columns
from agiledart_sink_log.column_index import encode_index
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


@dataclass
class _Waiting:
    """Stored batches that become one."""

    entries: list[tuple[EntryHeader, bytes]] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class _SegmentEntries:
    """Entries of the new file, from those of the old one."""

    def __init__(self, scan: SegmentScan, seed: int, description: Description, full: FullSegment) -> None:
        self._scan, self._seed, self._full = scan, seed, full
        self._schema = description.schema_id
        self._form = ColumnForm(description.fields)
        self._waiting = _Waiting()
        self._last_commit: EntryHeader | None = None

    def entries(self) -> Iterator[bytes]:
        """Yield the bytes of each entry. Raises `Damage`."""
        expected = self._full.base
        while (entry := self._scan.next()) is not None:
            if entry.kind == COMMIT:
                self._last_commit = entry
                continue
            if entry.offset != expected or entry.end > self._full.end or entry.schema != self._schema:
                raise Damage(self._scan.position, f"offset {entry.offset} where {expected} should be")
            expected = entry.end
            if entry.kind == COLUMNS:
                yield from self._joined()
                yield self._copied(entry)
                continue
            self._take(entry)
            if self._waiting.rows >= BATCH_ROWS or self._waiting.size >= BATCH_BYTES:
                yield from self._joined()
        if expected != self._full.end:
            raise Damage(self._scan.position, f"the segment ends at offset {expected}, not at {self._full.end}")
        yield from self._joined()
        if self._last_commit is not None:  # the end is committed, which the last COMMIT of a long epoch did not say
            last = self._last_commit
            yield commit(self._seed, last.schema, self._full.end, last.epoch, last.at_ms)

    def _copied(self, entry: EntryHeader) -> bytes:
        index = self._scan.index(entry)
        columns = self._scan.columns(entry, index, range(len(index)))
        return columns_record(
            self._seed, entry.schema, entry.offset, entry.epoch, entry.at_ms, entry.rows, encode_index(index), columns
        )

    def _take(self, entry: EntryHeader) -> None:
        self._waiting.entries.append((entry, self._scan.body(entry)))
        self._waiting.rows += entry.rows
        self._waiting.size += entry.length

    def _joined(self) -> Iterator[bytes]:
        """Yield one entry by columns, or the waiting ones as they are when a value has no flat column."""
        waiting, self._waiting = self._waiting, _Waiting()
        if not waiting.entries:
            return
        try:
            yield self._by_columns(waiting)
        except ValueError:
            for entry, body in waiting.entries:
                yield record(self._seed, entry.schema, entry.offset, entry.epoch, entry.at_ms, entry.rows, body)

    def _by_columns(self, waiting: _Waiting) -> bytes:
        rows = []
        for entry, body in waiting.entries:
            decoded = self._form.decoded_rows(body)
            if len(decoded) != entry.rows:
                raise ValueError(f"{len(decoded)} rows in a batch of {entry.rows}")
            rows += decoded
        stored_ms = [(entry.rows, entry.at_ms) for entry, _ in waiting.entries]
        index, columns = self._form.encoded(self._form.columns_of(rows), stored_ms)
        if len(index) + sum(map(len, columns)) > MAX_STORED_BYTES:
            raise ValueError("the columns are larger than an entry may be")
        first, last = waiting.entries[0][0], waiting.entries[-1][0]
        return columns_record(self._seed, first.schema, first.offset, last.epoch, last.at_ms, len(rows), index, columns)
