"""What of a partition is good when its writer opens it again, after whatever ended the last one.

Awkward cases, and what is done:

* The last writer was killed in mid-write: the file ends within an entry, or with rows that no COMMIT covers. That tail is cut off.
* The power failed: `committed` may say more than the segment holds. The rows are lost and their offsets are not used again: a
  new segment begins at the committed end, and readers of the gap are told.
* A byte before the committed end has changed. Nothing is cut, the segment stays as it is for what is still good in it, and a
  new one begins at the committed end.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from agiledart_sink_log.entries import (
    COMMIT,
    SEGMENT_HEADER_BYTES,
    Damage,
    SegmentScan,
    check_segment_header,
    entries_after,
    seed_of,
)
from agiledart_sink_log.layout import Segment, read_committed, segments_of


@dataclass(frozen=True)
class Recovered:
    """Where a writer goes on.

    Attributes:
        end: offset of the next row.
        segment: the file to append to, or None: begin a new one at `end`.
        size: its good bytes; what lies behind is to be cut off.
        cut_bytes: how many bytes that is.
        lost_from: committed rows from here to `end` cannot be read: damage or a power cut; None: all are good.
    """

    end: int
    segment: Segment | None
    size: int = 0
    cut_bytes: int = 0
    lost_from: int | None = None


def recover(directory: Path, log_id: str, partition: int) -> Recovered:
    """Look at a partition without changing it. Raises OSError."""
    told = read_committed(directory)
    told_end = told[1] if told is not None else 0
    segments = segments_of(directory)
    if not segments:
        return Recovered(told_end, None)
    found = _look(segments[-1], log_id, partition)
    if told_end > found.end:
        return Recovered(told_end, None, lost_from=found.end)
    if found.lost_from is not None or found.size == 0:  # size 0: killed while it began the file, which begins anew
        return Recovered(found.end, None, lost_from=found.lost_from)
    return found


def _look(segment: Segment, log_id: str, partition: int) -> Recovered:
    """What one segment holds; `size` 0 when not even its beginning is good."""
    seed = seed_of(log_id, partition)
    descriptor = os.open(segment.path, os.O_RDONLY)
    try:
        total = os.fstat(descriptor).st_size
        scan = SegmentScan(descriptor, SEGMENT_HEADER_BYTES, total, seed)
        end, good, offset = segment.base, SEGMENT_HEADER_BYTES, segment.base
        try:
            check_segment_header(os.pread(descriptor, SEGMENT_HEADER_BYTES, 0), log_id, partition, segment.base)
            while (entry := scan.next()) is not None:
                if entry.offset != offset:
                    raise Damage(scan.position, f"offset {entry.offset} where {offset} should be")
                scan.body(entry)
                offset = entry.end
                if entry.kind == COMMIT:
                    end, good = entry.offset, scan.position
        except Damage as damage:
            if damage.position == 0:
                good = 0
        rest = os.pread(descriptor, total - good, good)
    finally:
        os.close(descriptor)
    later = max((entry.offset for _, entry in entries_after(rest, seed) if entry.kind == COMMIT), default=end)
    if later > end:
        return Recovered(later, None, good, 0, lost_from=end)
    return Recovered(end, segment, good, total - good)
