"""Sampled rows of tapped steps on this node, bounded, until a reader has read them."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agiledart_executor.wire.agent_messages import TapSample
from agiledart_node.wire.formation_messages import TapRow, TapRows

MAX_TAPS = 16
"""Steps that may be tapped on one node at one time."""

MAX_ROWS = 200
"""Sampled rows of one step that wait for a reader; the oldest are dropped."""

FORGET_SECONDS = 10.0
"""Time without a reader after which a tap is dropped; executors stop sampling before."""

Key = tuple[str, int, str]
"""(application, version, step)."""


@dataclass
class _Tap:
    rows: deque[TapRow] = field(default_factory=lambda: deque(maxlen=MAX_ROWS))
    passed: dict[tuple[int, int], int] = field(default_factory=dict)
    number: int = 0
    read_at: float = 0.0


class Taps:
    """All taps of one agent.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taps: dict[Key, _Tap] = {}

    def read(self, key: Key, after: int) -> TapRows:
        """Return the rows after this number. It opens the tap, or keeps it open; it refuses when too many are open."""
        self.forget_old()
        tap = self._taps.get(key)
        if tap is None:
            if len(self._taps) >= MAX_TAPS:
                return TapRows(0, (), 0, f"{MAX_TAPS} steps are tapped here already; end another tap")
            tap = self._taps[key] = _Tap()
        tap.read_at = self._clock()
        return TapRows(0, tuple(row for row in tap.rows if row.number > after), sum(tap.passed.values()))

    def add(self, application: str, version: int, sampled: TapSample) -> None:
        """Keep the rows that an executor has sampled; ignore them when the tap has no reader."""
        tap = self._taps.get((application, version, sampled.step))
        if tap is None:
            return
        instance = sampled.instance
        tap.passed[instance.stage, instance.index] = sampled.passed
        for row in sampled.rows:
            tap.number += 1
            tap.rows.append(TapRow(tap.number, instance.index, row.time_ms, row.text))

    def forget_old(self) -> None:
        """Drop taps without a reader."""
        oldest = self._clock() - FORGET_SECONDS
        self._taps = {key: tap for key, tap in self._taps.items() if tap.read_at >= oldest}

    def __len__(self) -> int:
        return len(self._taps)
