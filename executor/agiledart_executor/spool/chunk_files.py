"""Chunks in a file, each with its length, CRC-32 and number of rows: the building blocks of spools and source logs."""

import errno
import os
import struct
from typing import Final

from agiledart_kernel.errors import OperationFailed

HEADER: Final = struct.Struct(">III")
"""Header of a chunk: length and CRC of the body, number of rows in it."""

RESERVE_BYTES: Final = 256 << 10
"""Approximate size of the largest chunk; a file has space while one more chunk fits."""

MAX_SEGMENT_BYTES: Final = 16 << 20
SEGMENTS: Final = 8
"""Smallest number of files that share the bound: the space of a file is freed when all of it was read."""

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_all(descriptor: int, data: bytes, position: int) -> None:
    """Write all bytes at a position. Raises OSError."""
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, position)
        position += written
        left = left[written:]


def read_all(descriptor: int, length: int, position: int) -> bytes:
    """Read `length` bytes at a position. Raises OSError, also when the file ends before."""
    parts = []
    while length:
        part = os.pread(descriptor, length, position)
        if not part:
            raise OSError(errno.EIO, "its file is shorter than what was written")
        parts.append(part)
        position += len(part)
        length -= len(part)
    return b"".join(parts)


def failed(what: str, error: OSError, advice: str) -> OperationFailed:
    """Return an error of the disk as text for users; `advice` says what to do when the disk is full."""
    if error.errno in _NO_SPACE:
        return OperationFailed(f"the disk of {what} is full: make room there{advice}")
    return OperationFailed(f"{what} cannot be written: {(error.strerror or str(error)).lower()}")
