"""Speed of one core against a reference: a loop, timed at the first start of an agent; its result is kept in the state directory.

The loop is Python code of the kind that instances run: integers, a dictionary, calls. The fastest of several turns counts, because
other processes only make a turn slower.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

FILE: Final = "processor_speed"

REFERENCE_NS: Final = 3_300_000
"""Duration of a turn on the reference: one core of a server of 2023 takes about as long."""

_ROUNDS: Final = 20_000
_REPETITIONS: Final = 9
LEAST, MOST = 1, 100_000
"""Plausible speeds, permille of the reference."""


def _turn() -> int:
    counts: dict[int, int] = {}
    value = 1
    for number in range(_ROUNDS):
        value = (value * 1_103_515_245 + number) & 0x7FFFFFFF
        counts[value & 255] = counts.get(value & 255, 0) + 1
    return len(counts)


def timed_speed_permille(clock: Callable[[], int] = time.perf_counter_ns) -> int:
    """Return the speed of a core now, permille of the reference."""
    best = 0
    for _ in range(_REPETITIONS):
        began = clock()
        _turn()
        took = max(1, clock() - began)
        best = took if not best else min(best, took)
    return max(LEAST, min(MOST, 1_000 * REFERENCE_NS // best))


def processor_speed_permille(state_dir: Path) -> int:
    """Return the speed that was timed at the first start, permille; time it when the directory has none."""
    file = state_dir / FILE
    try:
        stored = int(file.read_text())
        if LEAST <= stored <= MOST:
            return stored
    except (OSError, ValueError):
        pass  # the first start, or a damaged file: it is timed again
    speed = timed_speed_permille()
    file.write_text(f"{speed}\n")
    return speed
