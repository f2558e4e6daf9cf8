"""Memory of large rings in pages of 2 MiB, where the kernel can do that.

An event touches some hundred places of a node that no cache holds, and with pages of 4 KiB nearly each of them costs the walk of
a page table, too. Python takes its memory in pieces of 1 MiB, which the kernel never puts into one large page by itself.
"""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

_MADV_COLLAPSE = 25
"""Put a range into large pages now; Linux 6.1 and later, `madvise(2)`."""

_HUGE = 2 << 20
_MAPS = Path("/proc/self/maps")


def gather() -> int:
    """Move this process's private memory into large pages; bytes of the ranges where that succeeded, 0 where nobody can do it."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        maps = _MAPS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(end - begin for begin, end in _whole(maps) if madvise(begin, end - begin, _MADV_COLLAPSE) == 0)


def _whole(maps: str) -> Iterator[tuple[int, int]]:
    """The parts of private anonymous writable ranges that large pages can cover; ranges that touch count as one."""
    begin = end = 0
    for line in maps.splitlines():
        span, mode, _, _, _, *name = line.split(maxsplit=5)
        if mode != "rw-p" or name not in ([], ["[heap]"]):
            continue
        low, high = (int(part, 16) for part in span.split("-"))
        if low != end:
            yield from _aligned(begin, end)
            begin = low
        end = high
    yield from _aligned(begin, end)


def _aligned(begin: int, end: int) -> Iterator[tuple[int, int]]:
    begin, end = -(-begin // _HUGE) * _HUGE, end // _HUGE * _HUGE
    if begin < end:
        yield begin, end
