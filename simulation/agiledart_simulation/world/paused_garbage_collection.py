"""The collector of circles rests while a simulated ring works, and comes between one ring and the next."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """For one ring: first what earlier ones left is collected, then nothing is looked for.

    A working ring makes no circles worth a fifth of its time. A ring that is over is full of them: without this, several of ten
    thousand nodes in one process would add up, a gigabyte each.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
