"""Move the memory of large simulated rings into pages of 2 MiB, where the kernel supports it.

An event touches some hundred addresses of a node that no cache holds. With pages of 4 KiB nearly each access also costs a page
table walk. Python allocates memory in arenas of 1 MiB, which the kernel never merges into one large page by itself.
"""

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path

_MADV_COLLAPSE = 25
"""Advice that collapses a range into large pages at once. Source: `madvise(2)`, Linux 6.1 and later."""

_HUGE = 2 << 20
_MAPS = Path("/proc/self/maps")


def gather() -> int:
    """Move this process's private memory into large pages; return the bytes moved, 0 where the kernel does not support it."""
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
    """Yield the parts of private anonymous writable ranges that large pages can cover; adjacent ranges count as one."""
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
