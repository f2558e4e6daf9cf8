"""Between which numbers of instances a stage may scale."""

from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError

MOST_INSTANCES = 128
"""As many as there are key groups: an instance more would own none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Least and largest number of instances; 1 ≤ low ≤ high ≤ 128."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= MOST_INSTANCES:
            raise ConfigurationError(
                f"limits {self.low}..{self.high}: the lower one is at least 1 and at most the higher one, "
                f"the higher one at most {MOST_INSTANCES} (there are {MOST_INSTANCES} key groups)."
            )

    def clamp(self, instances: int) -> int:
        """The nearest number within."""
        return max(self.low, min(self.high, instances))
