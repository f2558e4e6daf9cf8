"""Objectives of a placement by name, and weighted sums of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from agiledart_kernel.errors import ConfigurationError

SINGLE = ("response", "availability", "traffic", "usage", "energy", "score", "cost", "power")
"""Metrics that can be optimised alone or in a weighted sum. All but `availability` are minimised."""

OBJECTIVES = (*SINGLE, "weighted")
WEIGHT_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Objective:
    """Aim of a placement: a metric, or a weighted sum of metrics.

    Args:
        name: one of `OBJECTIVES`.
        weights: metric → weight of `weighted`; they sum to 1.
        ranges: metric → (best, worst) value that normalise its term; those of availability are logarithms. A metric that is
            missing gets its range from the pay-off table of the single objectives.
    """

    name: str
    weights: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check names, weights and ranges. Raises ConfigurationError."""
        if self.name not in OBJECTIVES:
            raise ConfigurationError(f"objective {self.name!r}: {unknown_name(self.name, OBJECTIVES)}")
        for name in (*self.weights, *self.ranges):
            if name not in SINGLE:
                raise ConfigurationError(f"weights and ranges: {name!r}: {unknown_name(name, SINGLE)}")
        if (self.name == "weighted") != bool(self.weights):
            raise ConfigurationError("the objective `weighted` needs weights, and no other objective takes any.")
        if self.weights:
            total = sum(self.weights.values())
            if any(not 0 <= weight <= 1 for weight in self.weights.values()) or abs(total - 1) > WEIGHT_TOLERANCE:
                raise ConfigurationError(f"weights: they must lie between 0 and 1 and sum to 1, not to {total:g}.")
        for name, (low, high) in self.ranges.items():
            if not low < high:
                raise ConfigurationError(f"ranges: {name}={low:g}:{high:g}: the first value must be the smaller one.")


def unknown_name(name: str, known: tuple[str, ...]) -> str:
    """Return the end of a message about an unknown name: the known ones, and the closest."""
    close = get_close_matches(name, known, 1)
    return f"use one of {', '.join(known)}.{f' Did you mean {close[0]}?' if close else ''}"
