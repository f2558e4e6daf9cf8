"""Is a file that a source goes back in the one that it had read? Told by what it begins with, and whether it is shorter."""

import zlib
from pathlib import Path
from typing import NamedTuple

from agiledart_kernel.errors import OperationFailed

FINGERPRINT_BYTES = 64 << 10
"""Bytes from its beginning that are compared: what is read once more is compared with nothing else."""


class FileFingerprint(NamedTuple):
    """What a file began with when a run opened it first."""

    length: int
    crc: int


def fingerprint_of(path: str, length: int = FINGERPRINT_BYTES) -> FileFingerprint | None:
    """Of a plain file; None where there is none: a folder, a pattern, a pipe."""
    file = Path(path)
    if not path or not file.is_file():
        return None
    with file.open("rb") as opened:
        data = opened.read(length)
    return FileFingerprint(len(data), zlib.crc32(data))


def check_unchanged(path: str, before: FileFingerprint) -> None:
    """Raise `OperationFailed` unless the file begins as it did; it may have grown."""
    try:
        now = fingerprint_of(path, before.length)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if now == before:
        return
    if now is None:
        raise OperationFailed(f"{path} is not there any more. Put it back, or submit again")
    what = "is shorter than it was" if now.length < before.length else "begins in another way than it did"
    raise OperationFailed(f"{path} {what}: somebody has replaced or changed it. Put the old one back, or submit again")
