"""Memory that this process keeps for itself after it was freed.

glibc gives large blocks back to the kernel at once, and the next one costs a page fault for every 4 KiB: a fifth of the agent's
CPU time for answers of 4 MiB. It raises its bounds when a larger block is freed (mallopt(3), M_MMAP_THRESHOLD).
"""

import contextlib
import ctypes


def keep_freed_memory(size: int) -> None:
    """Have the C library keep up to twice `size` bytes of freed memory, at most 64 MiB; no effect with another library than glibc.

    No page of the block is touched.
    """
    bytes(size)


def return_freed_memory() -> None:
    """Return to the kernel what the imports of the start have freed, 1 MB; no effect with another library than glibc."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
