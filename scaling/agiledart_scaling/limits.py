"""Limits of the number of instances of a stage."""

from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError

MOST_INSTANCES = 128
"""Most instances of a stage: the number of key groups, since one more instance would own none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Least and largest number of instances; 1 ≤ low ≤ high ≤ 128."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MOST_INSTANCES:
            raise ConfigurationError(
                f"invalid limits {self.low}..{self.high}: the lower one must be 1 or more and at most the higher one, "
                f"the higher one at most {MOST_INSTANCES} (there are {MOST_INSTANCES} key groups)."
            )

    def clamp(self, instances: int) -> int:
        """Return the number within the limits that is nearest."""
        return max(self.low, min(self.high, instances))
