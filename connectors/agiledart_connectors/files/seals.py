"""`Seal`: fingerprint of an output file's committed part, so that a sink never continues a file that was changed.

A seal covers the first 64 KiB and the last 4 KiB: that costs little at each epoch whatever the file's size. A user who edits,
replaces or rewrites a file changes the head or the tail. A change that lies only in between is not detected.
"""

import os
import zlib
from pathlib import Path
from typing import Final

import msgspec

from agiledart_kernel.errors import OperationFailed

HEAD_BYTES: Final = 64 << 10
TAIL_BYTES: Final = 4 << 10

_BEGINNING: Final = "sealed "


class OutputFileChangedError(OperationFailed):
    """Another program has changed or removed a file, or taken its name: trying again does not help."""


class Seal(msgspec.Struct, frozen=True):
    """A file up to a length.

    Attributes:
        head, tail: CRC32 of its first `HEAD_BYTES` and its last `TAIL_BYTES`.
    """

    length: int
    head: int
    tail: int


class SealedFile(msgspec.Struct, frozen=True):
    """Which file it is, as an element says it. `path`: absolute."""

    path: str
    seal: Seal

    @property
    def text(self) -> str:
        """Return the seal as a snapshot stores it."""
        return _BEGINNING + msgspec.json.encode(self).decode()


NOTHING: Final = Seal(0, 0, 0)


def parse_sealed_file(text: str) -> SealedFile | None:
    """Return the sealed file that a sink's identity names; None: the identity is of another kind or version."""
    if not text.startswith(_BEGINNING):
        return None
    try:
        return msgspec.json.decode(text[len(_BEGINNING) :], type=SealedFile)
    except msgspec.MsgspecError:
        return None


def seal_of(file: int, length: int) -> Seal:
    """Return the seal of an open file up to a length. Raises OSError."""
    head = os.pread(file, min(length, HEAD_BYTES), 0)
    tail = os.pread(file, min(length, TAIL_BYTES), max(0, length - TAIL_BYTES))
    return Seal(length, zlib.crc32(head), zlib.crc32(tail))


def fault_of(file: int, seal: Seal) -> str:
    """Return how an open file differs from its seal; empty when it is the same, and may have grown. Raises OSError."""
    size = os.fstat(file).st_size
    if size < seal.length:
        return f"has {size:,} bytes, and {seal.length:,} were committed"
    now = seal_of(file, seal.length)
    if now == seal:
        return ""
    where = "begins in another way than" if now.head != seal.head else "is another one before its committed end than"
    return f"{where} what was committed"


def check_seal(file: int, path: str, seal: Seal) -> None:
    """Raise `OutputFileChangedError` unless an open file is up to there what it was. Raises OSError, too."""
    if fault := fault_of(file, seal):
        raise OutputFileChangedError(f"{path} {fault}: somebody has changed it. Put it back, or submit again")


def check_name(file: int, path: Path) -> None:
    """Raise `OutputFileChangedError` unless an open file still has its name: rows written to an unnamed file are lost.

    Raises OSError, too.
    """
    there = os.fstat(file)
    try:
        named = path.stat()
    except FileNotFoundError:
        raise OutputFileChangedError(
            f"{path} is gone: somebody has removed or renamed it. Put it back, or submit again"
        ) from None
    if (named.st_dev, named.st_ino) != (there.st_dev, there.st_ino):
        raise OutputFileChangedError(
            f"{path} is another file now: somebody has put it there. Put the old one back, or submit again"
        )
