"""Garbage collection is paused while a simulated ring works, and runs between one ring and the next."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector for one ring, after collecting what earlier ones left.

    A working ring makes no reference cycles worth a fifth of its time. A finished ring is full of them: without this, several
    rings of ten thousand nodes in one process would add up, a gigabyte each.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
