"""`Seal`: what the committed part of an output file looks like, so that one that somebody has changed is not gone on with.

Its first 64 KiB and its last 4 KiB are compared: that costs little at each epoch whatever the file's size, and somebody who edits,
replaces or writes a file anew changes one of the two. What was changed in between only is not noticed.
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
    """Somebody else has changed, removed or taken the name of a file: trying again does not help."""


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
        """As an element has it."""
        return _BEGINNING + msgspec.json.encode(self).decode()


NOTHING: Final = Seal(0, 0, 0)


def parse_sealed_file(text: str) -> SealedFile | None:
    """What the identity of a sink says; None: it is of something else, or of another version."""
    if not text.startswith(_BEGINNING):
        return None
    try:
        return msgspec.json.decode(text[len(_BEGINNING) :], type=SealedFile)
    except msgspec.MsgspecError:
        return None


def seal_of(file: int, length: int) -> Seal:
    """Of an open file, as it is now. Raises OSError."""
    head = os.pread(file, min(length, HEAD_BYTES), 0)
    tail = os.pread(file, min(length, TAIL_BYTES), max(0, length - TAIL_BYTES))
    return Seal(length, zlib.crc32(head), zlib.crc32(tail))


def fault_of(file: int, seal: Seal) -> str:
    """How an open file is another one up to there than it was; empty: it is the same, and may have grown. Raises OSError."""
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
    """Raise `OutputFileChangedError` unless an open file still has its name: rows that go into another one are nowhere. Raises OSError, too."""
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
