"""CRC-32C (Castagnoli) of what lies on disks. Source: RFC 3720, appendix B.4.

The library is loaded at the first checksum: it brings a parser of command lines and a reader of packages' metadata, 1 MB that
an idle agent does not need.
"""

from collections.abc import Callable
from typing import Any

_compute: Callable[[Any, int], int] | None = None


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the checksum of some bytes.

    Args:
        before: checksum of the bytes in front of them.
    """
    global _compute
    if _compute is None:
        from crc32c import crc32c as compute

        _compute = compute
    return _compute(data, before)
