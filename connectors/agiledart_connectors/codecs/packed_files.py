"""Packed files: known by their first bytes, and read as what is in them; kinds that cannot be read are named."""

import bz2
import gzip
import lzma
import zlib
from importlib.util import find_spec
from typing import Any, BinaryIO, Final

from agiledart_kernel.errors import OperationFailed

MAGIC_BYTES: Final = 10
"""First bytes of a file that tell whether it is packed."""

_GZIP, _BZIP2, _XZ, _ZSTANDARD = "gzip", "bzip2", "xz", "Zstandard"
_MAGIC: Final = (
    (b"\x1f\x8b", _GZIP),
    (b"\xfd7zXZ\x00", _XZ),
    (b"\x28\xb5\x2f\xfd", _ZSTANDARD),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"\x1f\x9d", "compress"),
    (b"Rar!\x1a\x07", "RAR"),
)
_BZIP2_BLOCK: Final = b"1AY&SY"
_EMPTY_BZIP2: Final = b"\x17rE8P\x90"


def packing_of(magic: bytes) -> str:
    """Return how a file with these first bytes is packed; empty: it is not."""
    if magic.startswith(b"BZh") and magic[4:10] in (_BZIP2_BLOCK, _EMPTY_BZIP2):
        return _BZIP2
    return next((name for first, name in _MAGIC if magic.startswith(first)), "")


def open_unpacked(file: BinaryIO, path: str) -> BinaryIO:
    """Return a file that reads what is in a file, open at its beginning; the same where it is not packed.

    Raises:
        OperationFailed: it is packed in a way that cannot be read; the message names it.
        OSError: it cannot be read.
    """
    magic = file.read(MAGIC_BYTES)
    file.seek(0)
    packing = packing_of(magic)
    if not packing:
        return file
    opened: Any = None
    if packing == _GZIP:
        opened = gzip.open(file, "rb")  # noqa: SIM115  the caller closes it
    elif packing == _BZIP2:
        opened = bz2.open(file, "rb")  # noqa: SIM115
    elif packing == _XZ:
        opened = lzma.open(file, "rb")  # noqa: SIM115
    elif packing == _ZSTANDARD and find_spec("pyarrow") is not None:
        import pyarrow

        opened = pyarrow.CompressedInputStream(file, "zstd")
    if opened is not None:
        unpacked: BinaryIO = opened
        return unpacked
    file.close()
    advice = "unpack it first" if packing != _ZSTANDARD else "install agiledart[columns], or unpack it first"
    raise OperationFailed(f"{path} is packed by {packing}, which cannot be read here: {advice}")


UNPACKING_ERRORS: Final = (zlib.error, lzma.LZMAError, gzip.BadGzipFile)
"""Errors of damaged packed data, beside EOFError for such as end early."""


def is_packed(path: str) -> bool:
    """Return whether a file is packed; False where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return bool(packing_of(file.read(MAGIC_BYTES)))
    except OSError:
        return False
