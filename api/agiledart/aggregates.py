"""Aggregates for windows: `.aggregate("mean-temperature", mean_of(lambda reading: reading.celsius))`.

Sums and means are exact before they are rounded once, so they do not depend on the order of the rows.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from agiledart_dataflow.aggregation.aggregators import Aggregator, CompositeAggregator, Count, Extreme, Mean, Sum

R = TypeVar("R")
V = TypeVar("V")
Number = TypeVar("Number", int, float)


def count_of() -> Aggregator[Any, Any, int]:
    """Count the rows."""
    return Count()


def sum_of(number: Callable[[R], Number]) -> Aggregator[R, Any, Number]:
    """Sum a number of each row."""
    return Sum(number)


def mean_of(number: Callable[[R], float]) -> Aggregator[R, Any, float]:
    """Compute the mean of a number of each row."""
    return Mean(number)


def min_of(value: Callable[[R], V]) -> Aggregator[R, Any, V]:
    """Find the least value of the rows."""
    return Extreme(value, 0)


def max_of(value: Callable[[R], V]) -> Aggregator[R, Any, V]:
    """Find the greatest value of the rows."""
    return Extreme(value, -1)


def all_of(*aggregators: Aggregator[R, Any, Any]) -> Aggregator[R, Any, tuple[Any, ...]]:
    """Compute several aggregates of the same rows, as a tuple."""
    return CompositeAggregator(aggregators)
