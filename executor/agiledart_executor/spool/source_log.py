"""Log of a source's readings, in files that survive its process; addressed by offset, trimmed from the front.

Each file is named by the offset of its first chunk; offsets count the bytes of all files ever written. When the log is opened, a
CRC detects a chunk that a power cut has torn. The log then ends before it, because no sender got an acknowledgement for it.
Source: recovery specification §12.
"""

import contextlib
import os
import secrets
import struct
import threading
import zlib
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
from agiledart_sink_log.writer_lock import claimed_folder

_SUFFIX = ".log"
_IDENTITY = "identity"


@dataclass(eq=False)
class _LogSegment:
    path: Path
    descriptor: int
    first: int
    size: int = 0
    synced: int = 0

    @property
    def end(self) -> int:
        return self.first + self.size


class SourceLog:
    """Log of one source.

    Args:
        folder: of this log alone; created when it is missing.
        max_bytes: bound of all files together; one chunk with a huge row may exceed it once.
        fresh: delete the files of an earlier run with the same name.

    Attributes:
        start, end: offsets of the first chunk and behind the last one.
        identity: unique to this log, because offsets of another log mean nothing here. Empty: an older version began the log.

    Raises:
        BusyError: another process writes it.
        OperationFailed: the folder cannot be made or read; also from `append` and `read`, when the disk fails.
    """

    def __init__(self, folder: Path, max_bytes: int, *, fresh: bool = False) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._segment_bytes = min(MAX_SEGMENT_BYTES, max_bytes // SEGMENTS)
        self._segments: list[_LogSegment] = []
        self._lock = threading.Lock()  # guards the list and its descriptors, because other threads call `sync`
        self._syncing = threading.Lock()
        self._is_new = True  # the folder has files whose names a power cut might lose
        self._claim = -1
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._claim = claimed_folder(folder, f"the source's log in {folder}")
            paths = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and path.stem.isdecimal())
            if fresh:
                for path in paths:
                    path.unlink()
            else:
                self._open(paths)
            self.identity = self._identified(is_new=fresh or not (paths or (folder / _IDENTITY).exists()))
        except OSError as error:
            self.close()
            reason = (error.strerror or str(error)).lower()
            raise OperationFailed(f"the source's log in {folder} cannot be opened: {reason}") from None
        self.start = self._segments[0].first if self._segments else 0
        self.end = self._segments[-1].end if self._segments else 0

    def _identified(self, *, is_new: bool) -> bytes:
        path = self._folder / _IDENTITY
        if is_new:
            part = path.with_name(f".{_IDENTITY}.part")
            part.write_bytes(secrets.token_bytes(8))
            part.replace(path)
        return path.read_bytes() if path.exists() else b""

    def has_space(self) -> bool:
        """Return True when another chunk may be appended."""
        return self.end - self._first_kept() + RESERVE_BYTES <= self._max_bytes

    def append(self, chunk: bytes, rows: int) -> None:
        """Append a chunk; all of it or, when an error is raised, nothing. The chunk survives a kill of the process."""
        entry = HEADER.pack(len(chunk), zlib.crc32(chunk), rows) + chunk
        try:
            segment = self._last()
            write_all(segment.descriptor, entry, segment.size)
        except OSError as error:
            if self._segments:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._segments[-1].descriptor, self._segments[-1].size)
            raise failed(f"the source's log in {self._folder}", error, "") from None
        segment.size += len(entry)
        self.end += len(entry)

    def read(self, offset: int) -> tuple[bytes, int]:
        """Return the chunk at an offset below the end, and the offset behind it."""
        segment = next((candidate for candidate in self._segments if candidate.first <= offset < candidate.end), None)
        if segment is None:
            raise OperationFailed(f"the source's log in {self._folder} has nothing at {offset}: it has lost a file")
        try:
            length, crc, _ = HEADER.unpack(read_all(segment.descriptor, HEADER.size, offset - segment.first))
            chunk = read_all(segment.descriptor, length, offset - segment.first + HEADER.size)
        except (OSError, struct.error) as error:
            raise OperationFailed(f"the source's log in {self._folder} cannot be read back: {error}") from None
        if zlib.crc32(chunk) != crc:
            raise OperationFailed(f"the source's log in {self._folder} came back damaged: check that disk")
        return chunk, offset + HEADER.size + length

    def trim(self, offset: int) -> None:
        """Free the space of whole files before an offset. The last file stays, because its name and size hold the end."""
        self.start = max(self.start, min(offset, self.end))
        while len(self._segments) > 1 and self._segments[0].end <= self.start:
            with self._lock:
                segment = self._segments.pop(0)
                os.close(segment.descriptor)
            segment.path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Fsync all chunks that were appended before; any thread may call this. Raises OSError."""
        with self._syncing:
            self._sync()

    def _sync(self) -> None:
        with self._lock:
            dirty = [
                (segment, segment.size, os.dup(segment.descriptor))
                for segment in self._segments
                if segment.synced < segment.size
            ]
            is_new, self._is_new = self._is_new, False
        try:
            if is_new:
                _sync_folder(self._folder)
            for segment, size, descriptor in dirty:
                os.fsync(descriptor)
                segment.synced = max(segment.synced, size)
        except OSError:
            self._is_new = True
            raise
        finally:
            for _, _, descriptor in dirty:
                os.close(descriptor)

    def close(self) -> None:
        """Close the files, which stay on the disk; may be called twice."""
        with self._lock:
            segments, self._segments = self._segments, []
            for segment in segments:
                os.close(segment.descriptor)
            if self._claim >= 0:
                os.close(self._claim)
                self._claim = -1

    def _first_kept(self) -> int:
        return self._segments[0].first if self._segments else self.end

    def _last(self) -> _LogSegment:
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            path = self._folder / f"{self.end:020d}{_SUFFIX}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with self._lock:
                self._segments.append(_LogSegment(path, descriptor, self.end))
                self._is_new = True
        return self._segments[-1]

    def _open(self, paths: list[Path]) -> None:
        """Open the files that follow each other, up to the first torn chunk; later chunks were never acknowledged."""
        is_whole = True
        for path in paths:
            first = int(path.stem)
            if not is_whole or (self._segments and self._segments[-1].end != first):
                is_whole = False
                path.unlink()
                continue
            segment = _LogSegment(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), first)
            self._segments.append(segment)
            length = os.fstat(segment.descriptor).st_size
            segment.size = _whole_bytes(segment.descriptor, length)
            if segment.size < length:
                is_whole = False
                os.ftruncate(segment.descriptor, segment.size)


def _whole_bytes(descriptor: int, length: int) -> int:
    """Return how many bytes of a file are whole chunks; a tail of zeros, as some file systems leave it, does not count."""
    at = 0
    while at + HEADER.size <= length:
        size, crc, _ = HEADER.unpack(read_all(descriptor, HEADER.size, at))
        behind = at + HEADER.size + size
        if not size or behind > length or zlib.crc32(read_all(descriptor, size, at + HEADER.size)) != crc:
            break
        at = behind
    return at


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
