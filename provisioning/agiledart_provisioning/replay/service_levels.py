"""Service levels of a replay: shares of items within 1, 2 and 5 times the expected duration."""

from dataclasses import dataclass
from math import erf, log, sqrt

from agiledart_kernel.level_factors import LEVELS
from agiledart_provisioning.state import OperatorType

NOISE = 0.35
"""Standard deviation of the logarithm of a service time, whose median is the printed duration."""


def share_within(bound_ms: float, wait_ms: float, duration_ms: float) -> float:
    """Return the probability that an item takes at most `bound_ms` after it has waited `wait_ms`."""
    if bound_ms <= wait_ms:
        return 0.0
    return 0.5 * (1.0 + erf(log((bound_ms - wait_ms) / duration_ms) / (NOISE * sqrt(2.0))))


@dataclass(slots=True)
class ServiceLevels:
    """Items of a replay, and how many of them kept each level."""

    items: float = 0.0
    real_time: float = 0.0
    near_real_time: float = 0.0
    relaxed: float = 0.0

    def add(self, entry: OperatorType, items: float, wait_ms: float) -> None:
        """Count items of a type that wait this long; the shares follow from the distribution of service times."""
        self.items += items
        duration = entry.slo_ms
        bounds = (factor * duration for factor in LEVELS.values())
        real_time, near_real_time, relaxed = (share_within(bound, wait_ms, duration) for bound in bounds)
        self.real_time += items * real_time
        self.near_real_time += items * near_real_time
        self.relaxed += items * relaxed

    def add_item(self, entry: OperatorType, taken_ms: float) -> None:
        """Count one item that took this long."""
        self.items += 1.0
        real_time, near_real_time, relaxed = (taken_ms <= factor * entry.slo_ms for factor in LEVELS.values())
        self.real_time += real_time
        self.near_real_time += near_real_time
        self.relaxed += relaxed

    def share(self, level: str) -> float:
        """Return the share of items that kept a level of `LEVELS`."""
        counts = {"real_time": self.real_time, "near_real_time": self.near_real_time, "relaxed": self.relaxed}
        return counts[level] / self.items if self.items else 1.0

    def violations(self, level: str) -> float:
        """Return the number of items that missed a level."""
        return self.items * (1.0 - self.share(level))
