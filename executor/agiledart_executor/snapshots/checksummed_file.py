"""Small files of a run behind a checksum: what a disk has damaged, or another node wrote, is never taken for what was written here.

A file that an earlier release wrote has no checksum and begins as a MessagePack array does; it is read as it is.
"""

from hashlib import blake2b
from typing import Final

from agiledart_kernel.errors import AgileDartError

_MAGIC: Final = b"\xc1ADARTF1"
"""No MessagePack begins with 0xc1."""

_SUM_BYTES: Final = 8
_ARRAYS: Final = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))


class DamagedFile(AgileDartError):
    """It is not what was written here; the text says how that shows."""


def add_checksum(content: bytes, file_identity: str) -> bytes:
    """What to write.

    Args:
        whose: which file of which node this is: a copy of another one is found out.
    """
    return _MAGIC + _sum(content, file_identity) + content


def verified_content(raw: bytes, file_identity: str) -> bytes:
    """What was written; raises `DamagedFile`."""
    if not raw:
        raise DamagedFile("it is empty")
    if raw[0] in _ARRAYS:
        return raw
    start = len(_MAGIC) + _SUM_BYTES
    content = raw[start:]
    if not raw.startswith(_MAGIC) or raw[len(_MAGIC) : start] != _sum(content, file_identity):
        raise DamagedFile("its checksum is another one")
    return content


def _sum(content: bytes, file_identity: str) -> bytes:
    salt = blake2b(file_identity.encode(), digest_size=blake2b.SALT_SIZE).digest()
    return blake2b(content, digest_size=_SUM_BYTES, salt=salt).digest()
