"""Small files of a run behind a checksum, so that a damaged file or one of another node is never taken for this node's.

A file that an earlier release wrote has no checksum and begins with a MessagePack array; it is read unchecked.
"""

from hashlib import blake2b
from typing import Final

from agiledart_kernel.errors import AgileDartError

_MAGIC: Final = b"\xc1ADARTF1"
"""Magic bytes; no MessagePack value begins with 0xc1."""

_SUM_BYTES: Final = 8
_ARRAYS: Final = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))


class DamagedFile(AgileDartError):
    """Error for a file that differs from what was written here; the text names the evidence."""


def add_checksum(content: bytes, file_identity: str) -> bytes:
    """Return the content with its checksum in front, as it is written to the disk.

    Args:
        content: of the file.
        file_identity: names the file and its node, so that a copy of another file is detected.
    """
    return _MAGIC + _sum(content, file_identity) + content


def verified_content(raw: bytes, file_identity: str) -> bytes:
    """Verify the checksum and return the content; raises `DamagedFile`."""
    if not raw:
        raise DamagedFile("it is empty")
    if raw[0] in _ARRAYS:
        return raw
    start = len(_MAGIC) + _SUM_BYTES
    content = raw[start:]
    if not raw.startswith(_MAGIC) or raw[len(_MAGIC) : start] != _sum(content, file_identity):
        raise DamagedFile("its checksum does not match")
    return content


def _sum(content: bytes, file_identity: str) -> bytes:
    salt = blake2b(file_identity.encode(), digest_size=blake2b.SALT_SIZE).digest()
    return blake2b(content, digest_size=_SUM_BYTES, salt=salt).digest()
