"""Check of a partition when a writer opens it again: its valid end after a crash of the last writer.

Cases, and their handling:

* The last writer was killed during a write: the file ends within an entry, or with rows that no COMMIT covers. That tail is cut
  off, even whole segments of a long checkpoint interval.
* The power failed: `committed` may be ahead of the segments. The rows are lost and their offsets are not reused: a new segment
  begins at the committed end, and readers of the gap get an error.
* A byte before the committed end has changed. Nothing is cut; the segment stays for its valid entries, and a new one begins at
  the committed end.
* A run goes back behind rows that became columns meanwhile. Their batch is not cut, because that needs pyarrow: a new segment
  begins at the end, and readers get no row of a batch behind the beginning of the next segment.
* The register of a run has the committed end. It is the end, whether the partition has recorded the commit or not. If the run
  emits rows at once (`cuts` is false), rows committed after it stay.
"""

import os
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from agiledart_sink_log.entries import (
    COMMIT,
    HAS_ROWS,
    SEGMENT_HEADER_BYTES,
    Damage,
    SegmentScan,
    check_segment_header,
    entries_after,
    seed_of,
)
from agiledart_sink_log.layout import Segment, read_committed, segments_of
from agiledart_sink_log.plain_files import open_plain


@dataclass(frozen=True)
class ReopenedPartition:
    """Position at which a writer continues.

    Attributes:
        end: offset of the next row.
        segment: file to append to; None: begin a new one at `end`.
        size: its valid bytes; later bytes are cut off.
        cut_bytes: number of removed bytes, including `gone`.
        lost_from: first unreadable committed row before `end` (damage or a power cut); None: all are valid.
        is_within_batch: `end` lies within a batch by columns, which stays as it is.
        gone: segments that begin after the end.
    """

    end: int
    segment: Segment | None
    size: int = 0
    cut_bytes: int = 0
    lost_from: int | None = None
    gone: tuple[Segment, ...] = ()
    is_within_batch: bool = False


def recover(
    directory: Path, log_id: str, partition: int, keep: int | None = None, *, cuts: bool = True
) -> ReopenedPartition:
    """Check a partition without changing it, and return where its writer continues.

    Args:
        keep: end of a partition whose commits a register stores; None: the last commit on the disk.
        cuts: remove rows that were committed after `keep`; else `keep` is the least end.

    Raises:
        OSError: a file cannot be read.
    """
    recorded = read_committed(directory)
    is_given = keep is not None and cuts
    known = max(keep or 0, 0 if is_given or recorded is None else recorded[1])
    looks: list[_SegmentTail] = []
    for segment in reversed(segments_of(directory)):
        looks.append(_SegmentTail(segment, log_id, partition))
        if segment.base <= known or (not is_given and looks[-1].commit is not None):
            break
    end = known if is_given else max([known, *(look.commit or 0 for look in looks)])
    gone = tuple(look.segment for look in looks if look.segment.base > end)
    cut_bytes = sum(look.total for look in looks if look.segment.base > end)
    inside = next((look for look in looks if look.segment.base <= end), None)
    if inside is None:
        return ReopenedPartition(end, None, 0, cut_bytes, gone=gone)
    reached, size = inside.up_to(end)
    if reached < end and inside.has_batch_over(end):
        return ReopenedPartition(end, None, 0, cut_bytes, gone=gone, is_within_batch=True)
    if reached < end:
        return ReopenedPartition(end, None, 0, cut_bytes, lost_from=reached, gone=gone)
    if not size:  # the writer was killed at the beginning of the file: begin it again
        return ReopenedPartition(end, None, 0, cut_bytes, gone=gone)
    return ReopenedPartition(end, inside.segment, size, cut_bytes + inside.total - size, gone=gone)


class _SegmentTail:
    """Valid entries of a segment, up to the first incomplete one.

    Attributes:
        total: bytes of the file.
        commit: greatest offset of a COMMIT, also after damage; None without one.
    """

    def __init__(self, segment: Segment, log_id: str, partition: int) -> None:
        self.segment = segment
        self.commit: int | None = None
        self._offsets, self._positions = array("Q"), array("Q")  # after each valid entry
        seed = seed_of(log_id, partition)
        descriptor = open_plain(segment.path, os.O_RDONLY)
        try:
            self.total = os.fstat(descriptor).st_size
            scan = SegmentScan(descriptor, SEGMENT_HEADER_BYTES, self.total, seed)
            good = 0
            try:
                check_segment_header(os.pread(descriptor, SEGMENT_HEADER_BYTES, 0), log_id, partition, segment.base)
                good = SEGMENT_HEADER_BYTES
                self._note(segment.base, good)
                self._read(scan)
            except Damage as damage:
                if damage.position:
                    good = self._positions[-1]
            else:
                good = self._positions[-1]
            for _, entry in entries_after(descriptor, good, seed):
                if entry.kind == COMMIT:
                    self._committed(entry.offset)
        finally:
            os.close(descriptor)

    def _read(self, scan: SegmentScan) -> None:
        offset = self.segment.base
        while (entry := scan.next()) is not None:
            if entry.offset > offset or (entry.kind in HAS_ROWS and entry.offset != offset):
                raise Damage(scan.position, f"offset {entry.offset} where {offset} should be")
            scan.check_body(entry)
            if entry.kind == COMMIT:
                self._committed(entry.offset)
            else:
                offset = entry.end
            self._note(offset, scan.position)

    def _note(self, offset: int, position: int) -> None:
        self._offsets.append(offset)
        self._positions.append(position)

    def _committed(self, offset: int) -> None:
        self.commit = max(offset, self.commit or 0)

    def has_batch_over(self, end: int) -> bool:
        """Return whether a valid entry has rows before and behind this offset; only batches by columns span commits."""
        place = bisect_right(self._offsets, end)
        return 0 < place < len(self._offsets)

    def up_to(self, end: int) -> tuple[int, int]:
        """Return (offset, position) after the last valid entry that ends at or before this offset; (base, 0) without one."""
        place = bisect_right(self._offsets, end) - 1
        if place < 0:
            return self.segment.base, 0
        return self._offsets[place], self._positions[place]
