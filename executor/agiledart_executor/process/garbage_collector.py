"""How often Python's garbage collector looks for cycles while rows pass.

Rows live for one batch. With Python's 700 new objects the collector looks at each batch in the middle of it, for 0.1 to 0.3 µs a
row, and finds nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG_OBJECTS: Final = 20_000
"""New objects that wait for the collector."""


def collect_rarely() -> None:
    """From now on, in a process that runs a job and nothing else; what it has imported is not looked at again."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """For as long as a job runs in a process that is somebody else's."""
    before = gc.get_threshold()
    rarer = 0 < before[0] < YOUNG_OBJECTS  # else its owner wants it so, or another job runs that began earlier
    if rarer:
        gc.set_threshold(YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        if rarer and gc.get_threshold()[0] == YOUNG_OBJECTS:  # else user code has changed its mind meanwhile
            gc.set_threshold(*before)


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """For as long as many objects are built that stay: the collector would look at all of them again and again. Afterwards they
    count as old ones, without a look; as frozen ones they would outlive whoever has them, in circles as they are.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        if was_enabled:  # else user code, or somebody who builds, too, wants it so
            gc.enable()
