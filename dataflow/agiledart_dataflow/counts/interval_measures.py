"""Measures of one instance in the last control interval, from counts that it keeps anyway: the input of autoscaling.

The driver samples the counts now and then; a window of samples gives the last five seconds, second by second, and the rows that
each edge carried in the last three intervals. Source: scaling specification §7.1.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from agiledart_kernel.instants import SECOND
from agiledart_kernel.limits import KEY_GROUPS

MEASURES = "measures"
"""Key of an instance's report: its `IntervalMeasures` in their wire form."""

SECONDS = 5
INTERVAL_NS = SECONDS * SECOND
"""Length of the control interval."""

INTERVALS = 3
"""Intervals over which selectivities are measured: a window's output comes in lumps."""

LATE_NS = SECOND // 2
"""Largest distance of a sample from the moment that it stands for."""

MAX_SAMPLES = 256
"""Most samples kept at one time; sampling more often than every 60 ms keeps less than three intervals."""


class CountSample(NamedTuple):
    """Counts since the start, at one moment.

    Attributes:
        at_ns: the moment.
        rows: taken in and processed; of a source: read and passed on.
        busy_ns: time in its own work.
        is_blocked: an output is full at this moment.
        waiting: rows that wait to enter it; of a source: that wait in memory and on disk.
        offered: of a source: rows that came to it, whatever happened to them.
        sent: rows sent, by edge.
        leaving: rows that wait to leave it, by edge.
        row_bytes: average bytes of an encoded row, by edge; missing: not known.
    """

    at_ns: int
    rows: int
    busy_ns: int
    is_blocked: bool
    waiting: int
    offered: int
    sent: Mapping[int, int]
    leaving: Mapping[int, int]
    row_bytes: Mapping[int, int] = MappingProxyType({})


class EdgeMeasures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Measures of one outgoing edge.

    Attributes:
        sent: rows in each of the last intervals, oldest first; leaving: rows that wait to leave, by second.
        row_bytes: average bytes of an encoded row, from when rows last crossed a link; 0: not known.
    """

    edge: int
    sent: tuple[int, ...]
    leaving: tuple[int, ...]
    row_bytes: int = 0


class IntervalMeasures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Measures of one instance in its last control interval.

    Attributes:
        span_ns: its length, nearly `INTERVAL_NS`.
        rows, busy_ns, blocked_ns: in it; blocked is counted in samples.
        offered: of a source: rows/s of each second.
        waiting: rows that wait to enter it, at the end of each second.
        taken: rows in each of the last intervals, oldest first; the last one is `rows`.
        edges: those that leave it.
        groups: (key group, rows) of a sample of recent rows; empty where no sample is taken, see `KeySample`.
    """

    span_ns: int
    rows: int
    busy_ns: int
    blocked_ns: int
    offered: tuple[float, ...]
    waiting: tuple[int, ...]
    taken: tuple[int, ...]
    edges: tuple[EdgeMeasures, ...] = ()
    groups: tuple[tuple[int, int], ...] = ()

    @property
    def is_sound(self) -> bool:
        """True when the values can come from a window; they are checked because other nodes send them."""
        lengths = (len(self.offered), len(self.waiting), *(len(edge.leaving) for edge in self.edges))
        numbers = (self.rows, self.busy_ns, self.blocked_ns, *self.offered, *self.waiting, *self.taken)
        of_edges = [number for edge in self.edges for number in (*edge.sent, *edge.leaving, edge.row_bytes)]
        of_groups = [rows for _, rows in self.groups]
        return (
            all(length == SECONDS for length in lengths)
            and abs(self.span_ns - INTERVAL_NS) <= 2 * LATE_NS
            and 1 <= len(self.taken) <= INTERVALS
            and all(len(edge.sent) == len(self.taken) for edge in self.edges)
            and all(0 <= number < 1 << 62 for number in (*numbers, *of_edges, *of_groups))
            and all(0 <= group < KEY_GROUPS for group, _ in self.groups)
            and len(self.groups) <= KEY_GROUPS
        )


class SampleWindow:
    """Window of the samples of the last intervals."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[CountSample] = deque(maxlen=MAX_SAMPLES)

    def add(self, sample: CountSample) -> None:
        """Add a sample; one that is not later than the last one is ignored."""
        samples = self._samples
        if samples and sample.at_ns <= samples[-1].at_ns:
            return
        samples.append(sample)
        while sample.at_ns - samples[0].at_ns > INTERVALS * INTERVAL_NS + LATE_NS:
            samples.popleft()

    def measures(self) -> IntervalMeasures | None:
        """Return the measures of the interval that ends with the last sample; None while samples for it are missing.

        That is the case while the instance is younger than an interval.
        """
        if not self._samples:
            return None
        samples = tuple(self._samples)
        times = [sample.at_ns for sample in samples]
        near = partial(_near, samples, times)
        end = times[-1]
        # Every second needs a sample near its end; without them the interval has no measures.
        seconds = [near(end - back * SECOND) for back in range(SECONDS, -1, -1)]
        bounds = [sample for sample in seconds if sample is not None]
        if len(bounds) <= SECONDS or any(a.at_ns >= b.at_ns for a, b in pairwise(bounds)):
            return None
        first, last = bounds[0], bounds[-1]
        # Earlier intervals count only as far back as samples reach, for selectivities.
        starts = [first]
        while len(starts) < INTERVALS and (earlier_start := near(end - (len(starts) + 1) * INTERVAL_NS)) is not None:
            starts.append(earlier_start)
        cuts = [*reversed(starts), last]
        within = samples[bisect_right(times, first.at_ns) :]
        # Blocked time is estimated by the share of samples at which an output was full.
        blocked = sum(sample.is_blocked for sample in within)
        return IntervalMeasures(
            span_ns=last.at_ns - first.at_ns,
            rows=last.rows - first.rows,
            busy_ns=last.busy_ns - first.busy_ns,
            blocked_ns=(last.at_ns - first.at_ns) * blocked // len(within),
            offered=tuple((b.offered - a.offered) * SECOND / (b.at_ns - a.at_ns) for a, b in pairwise(bounds)),
            waiting=tuple(sample.waiting for sample in bounds[1:]),
            taken=tuple(b.rows - a.rows for a, b in pairwise(cuts)),
            edges=tuple(
                EdgeMeasures(
                    edge,
                    tuple(b.sent.get(edge, 0) - a.sent.get(edge, 0) for a, b in pairwise(cuts)),
                    tuple(sample.leaving.get(edge, 0) for sample in bounds[1:]),
                    last.row_bytes.get(edge, 0),
                )
                for edge in sorted(last.sent)
            ),
        )


def _near(samples: Sequence[CountSample], times: Sequence[int], moment_ns: int) -> CountSample | None:
    """Return the sample nearest to a moment, of two equally near ones the earlier; None where it is too far."""
    after = bisect_left(times, moment_ns)
    if after == len(times) or (after and moment_ns - times[after - 1] <= times[after] - moment_ns):
        after -= 1
    return samples[after] if abs(times[after] - moment_ns) <= LATE_NS else None
