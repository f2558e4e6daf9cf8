"""Spool of a source: a bounded queue of chunks in files, first in, first out.

The files have no names: each is unlinked as soon as it is open, so that its space is freed whatever ends the process. (The price:
`df` shows the space, `du` does not; `agiledart status` shows the rows.) So a spool is empty after a restart. It needs no fsync,
because a power cut ends its process, too. A CRC-32 of each chunk is checked when it is read back.
"""

import contextlib
import os
import struct
import tempfile
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from agiledart_executor.spool.chunk_files import (
    HEADER,
    MAX_SEGMENT_BYTES,
    RESERVE_BYTES,
    SEGMENTS,
    failed,
    read_all,
    write_all,
)
from agiledart_kernel.errors import OperationFailed


@dataclass(eq=False)
class _SpoolSegment:
    descriptor: int
    size: int = 0
    read: int = 0


class SpoolLog:
    """Spool of one source's rows.

    Args:
        directory: on the disk to use; must exist.
        max_bytes: bound of all files together; one chunk with a huge row may exceed it once.

    Raises:
        OperationFailed: from `append` and `next`, when the disk fails; the message says what to do.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory, self._max_bytes = directory, max_bytes
        self._segment_bytes = min(MAX_SEGMENT_BYTES, max_bytes // SEGMENTS)
        self._segments: deque[_SpoolSegment] = deque()
        self._rows = 0
        self._closed = False

    @property
    def rows(self) -> int:
        """Number of rows in the spool."""
        return self._rows

    @property
    def bytes_used(self) -> int:
        """Bytes that the files take."""
        return sum(segment.size for segment in self._segments)

    def has_space(self) -> bool:
        """Return True when another chunk may be appended."""
        return self.bytes_used + RESERVE_BYTES <= self._max_bytes

    def append(self, chunk: bytes, rows: int) -> None:
        """Append a chunk; all of it or, when an error is raised, nothing."""
        segment = self._last()
        entry = HEADER.pack(len(chunk), zlib.crc32(chunk), rows) + chunk
        try:
            write_all(segment.descriptor, entry, segment.size)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(segment.descriptor, segment.size)
            raise self._failed(error) from None
        segment.size += len(entry)
        self._rows += rows

    def next(self) -> bytes | None:
        """Remove and return the first chunk; None when there is none."""
        while self._segments:
            segment = self._segments[0]
            if segment.read < segment.size:
                return self._read(segment)
            if len(self._segments) == 1 and segment.size < self._segment_bytes:
                self._restart(segment)
                return None
            os.close(self._segments.popleft().descriptor)
        return None

    def close(self) -> None:
        """Close the files, which frees their space; may be called twice."""
        self._closed = True
        while self._segments:
            os.close(self._segments.popleft().descriptor)
        self._rows = 0

    def _read(self, segment: _SpoolSegment) -> bytes:
        try:
            length, crc, rows = HEADER.unpack(read_all(segment.descriptor, HEADER.size, segment.read))
            chunk = read_all(segment.descriptor, length, segment.read + HEADER.size)
        except (OSError, struct.error) as error:
            raise OperationFailed(f"the spool in {self._directory} cannot be read back: {error}") from None
        if zlib.crc32(chunk) != crc:
            raise OperationFailed(f"the spool in {self._directory} came back damaged: check that disk")
        segment.read += HEADER.size + length
        self._rows -= rows
        return chunk

    def _restart(self, segment: _SpoolSegment) -> None:
        """Reuse the only file from its beginning, because all of it was read."""
        if segment.size:
            with contextlib.suppress(OSError):
                os.ftruncate(segment.descriptor, 0)
            segment.size = segment.read = 0

    def _last(self) -> _SpoolSegment:
        if self._closed:
            raise OperationFailed(f"the spool in {self._directory} is closed")
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            try:
                descriptor, path = tempfile.mkstemp(prefix="spool-", dir=self._directory)
                os.unlink(path)
            except OSError as error:
                raise self._failed(error) from None
            self._segments.append(_SpoolSegment(descriptor))
        return self._segments[-1]

    def _failed(self, error: OSError) -> OperationFailed:
        advice = f", lower spool_bytes ({self._max_bytes:,}), or shed rows when the spool is full with spool_full=shed"
        return failed(f"the spool in {self._directory}", error, advice)
