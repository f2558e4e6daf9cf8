"""Statistics of pairs: two engines are compared within a round, and the rounds' ratios are summarised.

On a shared machine the minute of a round matters more than the engine; dividing within the round leaves the engine's effect.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Quartiles:
    """Median and quartiles of some values; with fewer than four, the least and the most stand for the quartiles."""

    median: float
    lower: float
    upper: float
    count: int

    def shown(self, digits: int = 2) -> str:
        """Return a text such as `1.03 (1.01–1.08)`."""
        return f"{self.median:.{digits}f} ({self.lower:.{digits}f}–{self.upper:.{digits}f})"

    def plain(self) -> dict[str, float]:
        """Return the figures for JSON."""
        return {name: round(value, 5) for name, value in asdict(self).items()}


def spread(values: Iterable[float]) -> Quartiles | None:
    """Return the quartiles of the values; None when there are none."""
    ordered = sorted(values)
    if not ordered:
        return None
    lower, upper = ordered[0], ordered[-1]
    if len(ordered) >= 4:
        lower, _, upper = statistics.quantiles(ordered, n=4, method="inclusive")
    return Quartiles(statistics.median(ordered), lower, upper, len(ordered))


def ratios(over: Mapping[int, float], under: Mapping[int, float]) -> list[float]:
    """Return a ratio for each round in which both were measured."""
    return [over[number] / under[number] for number in sorted(over) if under.get(number)]


def best(engines: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Return the least value of each round, over the rounds that any engine has."""
    least: dict[int, float] = {}
    for values in engines:
        for number, value in values.items():
            least[number] = min(value, least.get(number, value))
    return least


def won(values: Sequence[float]) -> int:
    """Return how many ratios are below 1."""
    return sum(value < 1 for value in values)


def shuffled(items: Sequence[T], seed: int, number: int) -> list[T]:
    """Return the order of a round, drawn from the seed anew for each round."""
    order = list(items)
    Random(f"{seed}/{number}").shuffle(order)
    return order
