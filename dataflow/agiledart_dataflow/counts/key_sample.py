"""Sample of the key groups of an instance's rows: a few rows of every sixteenth frame, of fewer frames when many rows come.

Counts of the present interval and the previous one are kept, so that a group that has become hot is detected within one.
Source: scaling specification §7.1.
"""

from collections import Counter
from collections.abc import Mapping

from agiledart_dataflow.counts.interval_measures import INTERVAL_NS
from agiledart_dataflow.data.batch import Held, as_rows, part_of
from agiledart_dataflow.data.partitioning import KeyFunction, key_group

SAMPLED_ROWS = 64
"""Rows sampled of one frame."""

EVERY = 16
"""Frames of which one is sampled; a power of two."""

ENOUGH = 1_000
"""Rows of an interval after which three of four frames are skipped: small frames cost most for each row."""

_REMEMBERED = 4_096
"""Keys whose group is remembered; beyond it the memory is cleared. To compute a group takes twenty times as long."""


class KeySample:
    """Counter of sampled rows by key group.

    Args:
        key_of: row → key, by edge.
    """

    def __init__(self, key_of: Mapping[int, KeyFunction]) -> None:
        self._key_of = key_of
        self._now: Counter[int] = Counter()
        self._before: Counter[int] = Counter()
        self._since_ns = 0
        self._groups: dict[object, int] = {}
        self._rows = self._passed = 0

    def look(self, edge: int, held: Held) -> None:
        """Count the first rows of a frame; rows whose key raises are left out, since the keyed step reports them itself."""
        key_of = self._key_of.get(edge)
        if key_of is None:
            return
        if self._rows >= ENOUGH:
            self._passed += 1
            if self._passed & 3:
                return
        self._rows += min(len(held), SAMPLED_ROWS)
        counts, groups = self._now, self._groups
        for row in as_rows(part_of(held, 0, SAMPLED_ROWS)):
            try:
                key = key_of(row)
                group = groups.get(key)
                if group is None:
                    group = self._remember(key)
                counts[group] += 1
            except Exception:  # noqa: BLE001  user code
                continue

    def _remember(self, key: object) -> int:
        if len(self._groups) >= _REMEMBERED:
            self._groups.clear()
        group = self._groups[key] = key_group(key)
        return group

    def counts(self, now_ns: int) -> tuple[tuple[int, int], ...]:
        """Return (group, rows of the sample), of this interval and the previous one."""
        if now_ns - self._since_ns >= INTERVAL_NS:
            self._before, self._now, self._since_ns, self._rows = self._now, Counter(), now_ns, 0
        return tuple(sorted((self._now + self._before).items()))
