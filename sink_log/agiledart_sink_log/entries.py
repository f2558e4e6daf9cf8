"""Format of a segment file: a header, then entries. Checksums cover every byte, so a flipped one is detected.

    segment  = SEGMENT header · entry*
    entry    = header (48 bytes: kind, schema, offset, epoch, wall time, rows, length, CRC of the body, CRC of the header) · body
    RECORD   : `rows` rows in the body, the first has the number `offset`
    COLUMNS  : the same rows by columns (`column_index.py`); the CRC of the body is that of its index, which has one for each column
    COMMIT   : everything before `offset` is committed; no body. With checkpoints it may follow rows that it does not cover

Offsets of rows within a segment follow each other without a gap. Integers are big-endian; CRC is CRC32C. That of an entry's header
begins with the log's `seed`, so an entry of another log or partition is invalid here, even when it is part of a row's bytes.
"""

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from agiledart_kernel.checksum import crc32c
from agiledart_sink_log.column_index import INDEX_LENGTH, ColumnEntry, decode_index, index_bytes
from agiledart_sink_log.protocol import MAX_STORED_BYTES

RECORD: Final = 1
COMMIT: Final = 2
COLUMNS: Final = 3
HAS_ROWS: Final = (RECORD, COLUMNS)
"""Kinds of entries with rows."""

MAGIC: Final = b"\xadL"
_ENTRY = struct.Struct(">2sBxIQQQIII")
_CRC = struct.Struct(">I")
HEADER_BYTES: Final = _ENTRY.size + _CRC.size

_SEGMENT_MAGIC: Final = b"ADARTLOG"
_SEGMENT = struct.Struct(">8sIIQ16s")
SEGMENT_HEADER_BYTES: Final = _SEGMENT.size + _CRC.size
FORMAT_VERSION: Final = 1
REWRITTEN: Final = 2
"""Version of a full segment that was rewritten as columns. Agents of releases before 0.2 do not read it."""

_WINDOW_BYTES: Final = 1 << 18
_INDEX_WINDOW_BYTES: Final = 8 << 10
"""Bytes that are read at a time in a rewritten segment: header and index of an entry. Its columns are read by themselves."""

_SEARCH_BYTES: Final = 1 << 20
MAX_SEARCHED_BYTES: Final = 256 << 20
"""Bytes after a damaged place that the reader searches for valid entries."""


class Damage(Exception):
    """Damaged bytes: their `position` in the file, and the fault as text."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position


class EntryHeader(NamedTuple):
    """Header of an entry. `end` is the offset after its rows, `length` the bytes of its body."""

    kind: int
    schema: int
    offset: int
    epoch: int
    at_ms: int
    rows: int
    length: int
    body_crc: int

    @property
    def end(self) -> int:
        return self.offset + self.rows


def seed_of(log_id: str, partition: int) -> int:
    """Return the initial value of the header checksums of this partition."""
    return crc32c(f"{log_id}/{partition}".encode())


def record(seed: int, schema: int, offset: int, epoch: int, at_ms: int, rows: int, body: bytes) -> bytes:
    """Return the bytes of a RECORD entry."""
    head = _ENTRY.pack(MAGIC, RECORD, schema, offset, epoch, at_ms, rows, len(body), crc32c(body))
    return head + _CRC.pack(crc32c(head, seed)) + body


def columns_record(
    seed: int, schema: int, offset: int, epoch: int, at_ms: int, rows: int, index: bytes, columns: Sequence[bytes]
) -> bytes:
    """Return the bytes of a COLUMNS entry.

    Args:
        index: as `encode_index` returns it.
        columns: IPC messages in the order of the index.
    """
    length = len(index) + sum(map(len, columns))
    head = _ENTRY.pack(MAGIC, COLUMNS, schema, offset, epoch, at_ms, rows, length, crc32c(index))
    return b"".join((head, _CRC.pack(crc32c(head, seed)), index, *columns))


def commit(seed: int, schema: int, offset: int, epoch: int, at_ms: int) -> bytes:
    """Return the bytes of a COMMIT entry."""
    head = _ENTRY.pack(MAGIC, COMMIT, schema, offset, epoch, at_ms, 0, 0, 0)
    return head + _CRC.pack(crc32c(head, seed))


def segment_header(log_id: str, partition: int, base: int, version: int = FORMAT_VERSION) -> bytes:
    """Return the header of a segment whose first row has the number `base`."""
    head = _SEGMENT.pack(_SEGMENT_MAGIC, version, partition, base, log_id.encode())
    return head + _CRC.pack(crc32c(head))


def check_segment_header(raw: bytes, log_id: str, partition: int, base: int) -> int:
    """Return the version of a segment. Raises `Damage` unless `raw` is the header of that segment."""
    for version in (FORMAT_VERSION, REWRITTEN):
        if raw[:SEGMENT_HEADER_BYTES] == segment_header(log_id, partition, base, version):
            return version
    raise Damage(0, "the beginning of the segment is not what was written")


def parse_entry(raw: bytes, start: int, position: int, seed: int) -> EntryHeader:
    """Return the entry header at `raw[start:]`, which is at `position` of its file. Raises `Damage`."""
    head = raw[start : start + _ENTRY.size]
    (check,) = _CRC.unpack_from(raw, start + _ENTRY.size)
    magic, kind, *rest = _ENTRY.unpack(head)
    if magic != MAGIC or crc32c(head, seed) != check:
        raise Damage(position, "the header of an entry is not what was written")
    entry = EntryHeader(kind, *rest)
    if kind not in (RECORD, COMMIT, COLUMNS) or entry.length > MAX_STORED_BYTES:
        raise Damage(position, f"an entry of kind {kind} with {entry.length} bytes")
    return entry


class SegmentScan:
    """Iteration over the entries of an open segment.

    Args:
        descriptor: of the file; its position never moves, so several scans can share it.
        position: beginning of an entry.
        stop: position at which the scan ends.
        version: of the segment; in a rewritten one small parts are read.
    """

    def __init__(self, descriptor: int, position: int, stop: int, seed: int, version: int = FORMAT_VERSION) -> None:
        self._descriptor, self._stop, self._seed = descriptor, stop, seed
        self._window_bytes = _WINDOW_BYTES if version == FORMAT_VERSION else _INDEX_WINDOW_BYTES
        self.position = position
        self._window = b""
        self._window_at = position

    def _bytes(self, start: int, length: int) -> bytes:
        inside = start - self._window_at
        if inside < 0 or inside + length > len(self._window):
            want = max(length, self._window_bytes)
            self._window = os.pread(self._descriptor, min(want, self._stop - start), start)
            self._window_at, inside = start, 0
        return self._window[inside : inside + length]

    def next(self) -> EntryHeader | None:
        """Return the header of the next entry; None when the rest is shorter than an entry: the end, or a torn tail."""
        if self.position + HEADER_BYTES > self._stop:
            return None
        raw = self._bytes(self.position, HEADER_BYTES)
        if len(raw) < HEADER_BYTES:
            return None
        entry = parse_entry(raw, 0, self.position, self._seed)
        if self.position + HEADER_BYTES + entry.length > self._stop:
            return None
        self.position += HEADER_BYTES + entry.length
        return entry

    def body(self, entry: EntryHeader) -> bytes:
        """Return the body of the RECORD that `next` returned last. Raises `Damage`."""
        start = self.position - entry.length
        raw = self._bytes(start, entry.length)
        if len(raw) != entry.length or crc32c(raw) != entry.body_crc:
            raise Damage(start - HEADER_BYTES, "rows are not what was written")
        return raw

    def index(self, entry: EntryHeader) -> tuple[ColumnEntry, ...]:
        """Return the index of the COLUMNS entry that `next` returned last. Raises `Damage`."""
        start = self.position - entry.length
        try:
            size = index_bytes(self._bytes(start, min(INDEX_LENGTH.size, entry.length)), entry.length)
            raw = self._bytes(start, size)
            if len(raw) != size or crc32c(raw) != entry.body_crc:
                raise ValueError("its checksum is wrong")
            return decode_index(raw, entry.length, entry.rows)
        except ValueError as error:
            raise Damage(start - HEADER_BYTES, f"the index of columns is not what was written: {error}") from None

    def columns(
        self, entry: EntryHeader, index: Sequence[ColumnEntry], numbers: Sequence[int]
    ) -> "list[bytes | memoryview]":
        """Return some columns of the COLUMNS entry that `next` returned last; b"" for one that it lacks. Raises `Damage`.

        Columns that lie side by side are read at once.
        """
        ends = [self.position - sum(column.length for column in index)]
        for column in index:
            ends.append(ends[-1] + column.length)
        parts: dict[int, memoryview] = {}
        for first, last in _runs(number for number in numbers if number < len(index)):
            raw = memoryview(os.pread(self._descriptor, ends[last + 1] - ends[first], ends[first]))
            for number in range(first, last + 1):
                part = raw[ends[number] - ends[first] : ends[number + 1] - ends[first]]
                if len(part) != index[number].length or crc32c(part) != index[number].crc:
                    raise Damage(self.position - entry.length - HEADER_BYTES, "a column is not what was written")
                parts[number] = part
        return [parts.get(number, b"") for number in numbers]

    def check_body(self, entry: EntryHeader) -> None:
        """Raise `Damage` unless the body of the entry that `next` returned last is what was written."""
        if entry.kind == COLUMNS:
            index = self.index(entry)
            self.columns(entry, index, range(len(index)))
        else:
            self.body(entry)


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return first and last of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs


def entries_after(descriptor: int, position: int, seed: int) -> Iterator[tuple[int, EntryHeader]]:
    """Yield (position, header) of each valid entry header after a damaged place.

    Searches a bounded range, a window at a time, because an attacker may have made the file very large.
    """
    stop = min(os.fstat(descriptor).st_size, position + MAX_SEARCHED_BYTES)
    while position + HEADER_BYTES <= stop:
        raw = os.pread(descriptor, min(_SEARCH_BYTES, stop - position), position)
        place = raw.find(MAGIC)
        while 0 <= place <= len(raw) - HEADER_BYTES:
            with contextlib.suppress(Damage):
                yield position + place, parse_entry(raw, place, position + place, seed)
            place = raw.find(MAGIC, place + 1)
        if len(raw) < HEADER_BYTES:
            return
        position += len(raw) - HEADER_BYTES + 1  # an entry may begin in one window and end in the next
