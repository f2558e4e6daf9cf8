"""Latencies as a log-scale histogram: bounded, exact to 3 %, and the same whether merged or measured in one place."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

_SUB_BITS = 5
_SUB = 1 << _SUB_BITS


def _bucket(value: int) -> int:
    """Return the bucket of a non-negative value: exact below 32, then 32 buckets for each power of two."""
    if value < _SUB:
        return value
    shift = value.bit_length() - _SUB_BITS - 1
    return (shift << _SUB_BITS) + (value >> shift)


def _middle(bucket: int) -> int:
    """Return a value in the middle of a bucket."""
    if bucket < 2 * _SUB:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((bucket - (shift << _SUB_BITS)) << shift) + (1 << shift >> 1)


class LatencySummary(msgspec.Struct, frozen=True, gc=False):
    """Latency figures that users see; milliseconds."""

    samples: int
    p50: float
    p95: float
    p99: float
    largest: float


class LatencyHistogram:
    """Counts of latencies in nanoseconds; a negative one (a clock was set back) counts as zero."""

    __slots__ = ("_counts", "largest", "samples")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.samples = 0
        self.largest = 0

    def add(self, nanoseconds: int, times: int = 1) -> None:
        """Count a latency."""
        value = max(nanoseconds, 0)
        bucket = _bucket(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self.samples += times
        self.largest = max(self.largest, value)

    def add_array(self, latencies: "Array") -> None:
        """Count an array of int64 latencies, by calls of NumPy."""
        if not len(latencies):
            return
        values = np.maximum(latencies, 0)
        shifts = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - _SUB_BITS - 1, 0)
        buckets, numbers = np.unique((shifts << _SUB_BITS) + (values >> shifts), return_counts=True)
        for bucket, count in zip(buckets.tolist(), numbers.tolist(), strict=True):
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.samples += len(values)
        self.largest = max(self.largest, int(values.max()))

    def merge(self, other: "LatencyHistogram") -> None:
        """Add the counts of another histogram."""
        for bucket, count in other.to_plain():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.samples += other.samples
        self.largest = max(self.largest, other.largest)

    def percentile(self, share: float) -> float:
        """Return the latency in milliseconds that this share (0 … 1) of the samples does not exceed; 0 without samples."""
        rank = max(1, -int(-share * self.samples // 1))
        for bucket, count in sorted(self._counts.items()):
            rank -= count
            if rank <= 0:
                return min(_middle(bucket), self.largest) / 1e6
        return 0.0

    def summary(self) -> LatencySummary:
        """Return the usual percentiles, rounded to a microsecond."""
        p50, p95, p99 = (round(self.percentile(share), 3) for share in (0.5, 0.95, 0.99))
        return LatencySummary(self.samples, p50, p95, p99, round(self.largest / 1e6, 3))

    def cumulative(self, bounds_ns: Sequence[int]) -> tuple[list[int], int]:
        """Return for ascending bounds the number of samples up to each (to a bucket's precision), and the samples' sum."""
        counts = [0] * len(bounds_ns)
        total = 0
        for bucket, count in self._counts.items():
            value = _middle(bucket)
            total += value * count
            place = bisect_left(bounds_ns, value)
            if place < len(counts):
                counts[place] += count
        return list(accumulate(counts)), total

    def to_plain(self) -> list[tuple[int, int]]:
        """Return (bucket, count) pairs in order, for the wire; `largest` is kept to its bucket's precision."""
        return sorted(self._counts.items())

    @classmethod
    def from_plain(cls, pairs: list[tuple[int, int]]) -> "LatencyHistogram":
        """Return the histogram that `to_plain` described."""
        histogram = cls()
        for bucket, count in pairs:
            histogram.add(_middle(bucket), count)
        return histogram
