"""Chunks in a file, each with its length, its CRC-32 and how many rows it has: what spools and source logs are made of."""

import errno
import os
import struct
from typing import Final

from agiledart_kernel.errors import OperationFailed

HEADER: Final = struct.Struct(">III")
"""Length and CRC of the body, rows in it."""

RESERVE_BYTES: Final = 256 << 10
"""A chunk is about so large at most; there is room while one more of them fits."""

MAX_SEGMENT_BYTES: Final = 16 << 20
SEGMENTS: Final = 8
"""The bound is used in at least so many files: the space of a file comes back when all of it was read."""

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_all(descriptor: int, data: bytes, position: int) -> None:
    """Write all of it there. Raises OSError."""
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, position)
        position += written
        left = left[written:]


def read_all(descriptor: int, length: int, position: int) -> bytes:
    """Read so much there. Raises OSError, also when the file ends before."""
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
    """An error of the disk in the user's words; `advice`: what to do when it is full."""
    if error.errno in _NO_SPACE:
        return OperationFailed(f"the disk of {what} is full: make room there{advice}")
    return OperationFailed(f"{what} cannot be written: {(error.strerror or str(error)).lower()}")
