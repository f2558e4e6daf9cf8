"""Fingerprints of input files, by which a rewound source notices a replaced file: its first bytes, and whether it shrank."""

import zlib
from pathlib import Path
from typing import NamedTuple

from agiledart_kernel.errors import OperationFailed

FINGERPRINT_BYTES = 64 << 10
"""Bytes from the file's beginning that are compared; the rest is read again without a comparison."""


class FileFingerprint(NamedTuple):
    """First bytes of a file when a run first opened it: their number and their CRC-32."""

    length: int
    crc: int


def fingerprint_of(path: str, length: int = FINGERPRINT_BYTES) -> FileFingerprint | None:
    """Return the fingerprint of a plain file; None for a folder, a pattern or a pipe."""
    file = Path(path)
    if not path or not file.is_file():
        return None
    with file.open("rb") as opened:
        data = opened.read(length)
    return FileFingerprint(len(data), zlib.crc32(data))


def check_unchanged(path: str, before: FileFingerprint) -> None:
    """Raise `OperationFailed` unless the file begins as it did before; it may have grown."""
    try:
        now = fingerprint_of(path, before.length)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if now == before:
        return
    if now is None:
        raise OperationFailed(f"{path} does not exist any more. Put it back, or submit again")
    change = "is shorter than it was" if now.length < before.length else "begins in another way than it did"
    raise OperationFailed(f"{path} {change}: the file was replaced or changed. Put the old one back, or submit again")
