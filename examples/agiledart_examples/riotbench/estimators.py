"""Estimators of RIoTBench with plain state: Kalman filter, sliding regression, block average, distinct count."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

PROCESS_NOISE, SENSOR_NOISE, INITIAL_ERROR = 0.125, 0.32, 30.0
TRAINED_ON, HORIZON = 10, 10
"""Values of the sliding regression, and values that it predicts."""


@dataclass
class Kalman:
    """Scalar Kalman filter: p += q; k = p / (p + r); x += k (z - x); p *= 1 - k."""

    x: float = 0.0
    p: float = INITIAL_ERROR

    def update(self, value: float) -> float:
        """Take a measurement and return the estimate."""
        p = self.p + PROCESS_NOISE
        gain = p / (p + SENSOR_NOISE)
        self.x += gain * (value - self.x)
        self.p = (1 - gain) * p
        return self.x


class Prediction(NamedTuple):
    """Next value, and the mean of the next ten."""

    next: float
    mean: float


@dataclass
class SlidingRegression:
    """Least squares of a value on its running number over the last ten values.

    Attributes:
        values: last values, oldest first.
    """

    values: list[float] = field(default_factory=list)

    def update(self, value: float) -> Prediction | None:
        """Take a value and predict the next ones; None up to the tenth value."""
        is_warm = len(self.values) == TRAINED_ON
        self.values.append(value)
        if not is_warm:
            return None
        del self.values[0]
        middle = (TRAINED_ON - 1) / 2
        mean = sum(self.values) / TRAINED_ON
        spread = sum((i - middle) ** 2 for i in range(TRAINED_ON))
        slope = sum((i - middle) * (v - mean) for i, v in enumerate(self.values)) / spread
        first = mean + slope * (TRAINED_ON - middle)
        return Prediction(first, first + slope * (HORIZON - 1) / 2)


@dataclass
class BlockAverage:
    """Mean of consecutive blocks of values.

    Attributes:
        total, count: of the open block.
        last: mean of the last complete block; None before the first.
    """

    total: float = 0.0
    count: int = 0
    last: float | None = None

    def update(self, value: float, size: int) -> float | None:
        """Take a value; return the mean of the block that it completes, else None."""
        self.total += value
        self.count += 1
        if self.count < size:
            return None
        self.last, self.total, self.count = self.total / size, 0.0, 0
        return self.last


@dataclass
class DistinctCount:
    """Approximate number of different texts, by the greatest numbers of trailing zeros in buckets of hashes.

    Attributes:
        ranks: greatest number of each bucket.

    Source: [Durand-Flajolet 2003]; estimate 0.79402 m 2^(mean rank).
    """

    ranks: list[int]

    def update(self, text: str) -> float:
        """Take a text and return the estimate."""
        buckets = len(self.ranks)
        digest = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big")
        bucket, rest = digest % buckets, digest // buckets
        zeros = (rest & -rest).bit_length() - 1 if rest else 32 - (buckets.bit_length() - 1)
        self.ranks[bucket] = max(self.ranks[bucket], zeros)
        return float(0.79402 * buckets * 2 ** (sum(self.ranks) / buckets))
