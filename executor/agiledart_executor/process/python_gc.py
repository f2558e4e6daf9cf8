"""Settings of Python's garbage collector while rows pass.

Rows live for one batch. At Python's default of 700 new objects the collector scans in the middle of each batch, for 0.1 to 0.3 µs
a row, and finds no garbage.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG_OBJECTS: Final = 20_000
"""Number of new objects after which the collector runs."""


def collect_rarely() -> None:
    """Collect rarely from now on, in a process that runs only one job; imported objects are not scanned again."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Collect rarely while a job runs in a process that belongs to a user."""
    before = gc.get_threshold()
    rarer = 0 < before[0] < YOUNG_OBJECTS  # else the process's owner chose that, or another job that began earlier
    if rarer:
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        if rarer and gc.get_threshold()[0] == YOUNG_OBJECTS:  # else user code has set another threshold meanwhile
            gc.set_threshold(*before)


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """Stop the collector while many long-lived objects are built, because it would scan all of them again and again.

    Afterwards they count as old objects, without a scan. They are not left frozen: frozen cycles would outlive their owner.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        if was_enabled:  # else user code, or another build, has switched it off
            gc.enable()
