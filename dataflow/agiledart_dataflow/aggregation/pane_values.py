"""Values that a window keeps of its rows, and the results that it makes of them when it closes.

Built-in aggregates keep the values themselves, one flat list per key, and compute once, when the window closes.
Appending to a list is the cheapest use of a number in Python, and a sum made at once is exact. Long lists are
compacted, exactly. Other aggregators keep the state that their own code makes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import ne
from typing import Any, Final, Literal

from agiledart_dataflow.aggregation.aggregators import Aggregator, CompositeAggregator, Count, Extreme, Mean, Sum
from agiledart_dataflow.aggregation.exact_sums import compacted, rounded_sum

Kind = Literal["count", "sum", "mean", "least", "greatest"]

LONG: Final = 64
"""Number of rows of one key from which a list is worth compacting: a row then costs 0.23 µs, of many rows 0.18 (measured)."""

PlainCompact = tuple[int, list[list[Any]], list[list[Any]]]
"""(number of rows, parts of the sum of each value, [least, greatest] of each value)."""

_EXACT_INTEGER = 2**53


@dataclass(frozen=True)
class AggregatePart:
    """One aggregate: its kind, and the number of its value among the kept values."""

    kind: Kind
    value: int = 0


@dataclass(frozen=True)
class KeptValues:
    """A window's aggregate as values to keep and parts to compute.

    Attributes:
        values: row → value, each distinct function once.
        parts: in the order of the results.
        built: results → the window's value.
    """

    values: tuple[Callable[[Any], Any], ...]
    parts: tuple[AggregatePart, ...]
    built: Callable[[tuple[Any, ...]], Any]

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """Numbers of the values whose sum is needed."""
        return tuple(sorted({part.value for part in self.parts if part.kind in ("sum", "mean")}))

    @cached_property
    def compared(self) -> dict[int, tuple[Kind, ...]]:
        """Extremes that are needed of each value, by its number, the least first."""
        kinds: dict[int, set[Kind]] = {}
        for part in self.parts:
            if part.kind in ("least", "greatest"):
                kinds.setdefault(part.value, set()).add(part.kind)
        return {number: tuple(sorted(names, reverse=True)) for number, names in kinds.items()}


def kept_values(aggregator: Aggregator[Any, Any, Any]) -> KeptValues | None:
    """Return the values to keep for an aggregator; None for a user's own."""
    values: list[Callable[[Any], Any]] = []
    parts: list[AggregatePart] = []
    built = _built(aggregator, values, parts)
    return None if built is None else KeptValues(tuple(values), tuple(parts), built)


def _built(
    aggregator: Aggregator[Any, Any, Any], values: list[Callable[[Any], Any]], parts: list[AggregatePart]
) -> Callable[[tuple[Any, ...]], Any] | None:
    if isinstance(aggregator, CompositeAggregator):
        makers = []
        for part in aggregator.parts:
            start = len(parts)
            made = _built(part, values, parts)
            if made is None:
                return None
            makers.append((made, start, len(parts)))
        if not any(isinstance(part, CompositeAggregator) for part in aggregator.parts):
            return aggregator.built
        return lambda results: aggregator.built(tuple(made(results[a:b]) for made, a, b in makers))
    exactly = type(aggregator)  # a subclass may compute something else
    if exactly is Count:
        parts.append(AggregatePart("count"))
    elif isinstance(aggregator, Sum) and exactly is Sum:
        parts.append(AggregatePart("sum", _number(aggregator.value_of, values)))
    elif isinstance(aggregator, Mean) and exactly is Mean:
        parts.append(AggregatePart("mean", _number(aggregator.value_of, values)))
    elif isinstance(aggregator, Extreme) and exactly is Extreme:
        kind: Kind = "least" if aggregator.place == 0 else "greatest"
        parts.append(AggregatePart(kind, _number(aggregator.value_of, values)))
    else:
        return None
    return _first


def fitness(values_kept: KeptValues) -> list[str]:
    """Return for each value `v0`, `v1` … an expression that raises where no result could be made of it: a text in a sum, a None."""
    summed = {part.value for part in values_kept.parts if part.kind in ("sum", "mean")}
    return [
        f"0 + v{number}" if number in summed else f"v{number} < v{number}" for number in range(len(values_kept.values))
    ]


def _first(results: tuple[Any, ...]) -> Any:
    return results[0]


def _number(function: Callable[[Any], Any], values: list[Callable[[Any], Any]]) -> int:
    if function not in values:
        values.append(function)
    return values.index(function)


def total(values: Sequence[Any]) -> Any:
    """Return the exact sum, rounded once when a float is among the values; an int for ints."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and float in kinds:
        return rounded_sum(values)
    if float in kinds:
        if any(type(value) is int and abs(value) > _EXACT_INTEGER for value in values):
            return _rounded_fraction(values)
        return rounded_sum(map(float, values))
    return sum(values)


def _rounded_fraction(values: Sequence[Any]) -> float:
    usual = rounded_sum([float(value) for value in values if type(value) is float])
    if usual - usual != 0.0:  # an infinity or NaN among them decides alone
        return usual
    return float(sum(map(Fraction, values), Fraction(0)))


def extreme(values: Sequence[Any], *, least: bool) -> Any:
    """Return the least or greatest value, whatever their order: NaN if one is NaN, and 0.0 for a zero of either sign."""
    extreme_value = min(values) if least else max(values)
    if type(extreme_value) is float:
        if any(map(ne, values, values)):
            return float("nan")
        return extreme_value + 0.0
    return extreme_value


class Compact:
    """Summary of compacted values: their number, and for each value its sum, least and greatest.

    An extreme that no result needs is replaced by the other.
    """

    __slots__ = ("count", "extremes", "sums")

    def __init__(self, values: int) -> None:
        self.count = 0
        self.sums: list[list[Any]] = [[] for _ in range(values)]
        self.extremes: list[list[Any]] = [[] for _ in range(values)]

    def take(self, flat: list[Any], values_kept: KeptValues) -> None:
        """Add the values of a flat list, which the caller then empties.

        Where values cannot be added or compared, raise what they raise, and add none.
        """
        width = len(values_kept.values)
        sums, extremes = list(self.sums), list(self.extremes)
        for number in values_kept.summed:
            sums[number] = _short(sums[number] + flat[number::width])
        for number, ends_wanted in values_kept.compared.items():
            candidates = extremes[number] + flat[number::width]
            ends = [extreme(candidates, least=kind == "least") for kind in ends_wanted]
            extremes[number] = [ends[0], ends[-1]]
        self.count, self.sums, self.extremes = self.count + len(flat) // width, sums, extremes

    @property
    def plain(self) -> PlainCompact:
        """The summary as plain data."""
        return self.count, self.sums, self.extremes


def _short(values: list[Any]) -> list[Any]:
    """Return a short list with the same exact sum and the same type of result."""
    kinds = set(map(type, values))
    if float not in kinds:
        return [sum(values)] if values else []
    if len(kinds) == 1:
        return compacted(values) or [0.0]
    integers = [value for value in values if type(value) is not float]
    floats = [value for value in values if type(value) is float]
    return ([sum(integers)] if integers else []) + (compacted(floats) or [0.0] if floats else [])


def results(flat: list[Any], before: Compact | None, values_kept: KeptValues) -> tuple[Any, ...]:
    """Return the results of all parts for a key's values."""
    width = len(values_kept.values)
    count = len(flat) // width + (0 if before is None else before.count)
    computed: list[Any] = []
    for part in values_kept.parts:
        if part.kind == "count":
            computed.append(count)
            continue
        number = part.value
        column = flat[number::width] if width > 1 else flat
        if part.kind in ("sum", "mean"):
            summed = total(column if before is None else before.sums[number] + column)
            computed.append(summed if part.kind == "sum" else float(summed) / count)
        else:
            candidates = column if before is None else before.extremes[number] + column
            computed.append(extreme(candidates, least=part.kind == "least"))
    return tuple(computed)
