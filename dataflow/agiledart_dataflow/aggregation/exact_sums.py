"""Sums of floats that are exact before one rounding: the same for every order, parallelism, batch size and form.

Definition of a sum, in rows and in columns: NaN when a value is NaN or both infinities are among the values; an
infinity when one is; else the double nearest to the exact sum, which is an infinity beyond the greatest double, and 0.0
(never -0.0) for no values.

Columns: values are split on a grid of powers of two, coarse enough that the parts of all rows add up without rounding.
Source: [Rump 2008] §3 (ExtractVector), where the error-free split and its bound are proven.
"""

from collections.abc import Iterable
from fractions import Fraction
from math import fsum, inf, isinf, isnan, nan
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

_LARGE = 2.0**960
"""Above this value the grid, or a partial sum, could overflow."""

_EXACT_INTEGER = 2**53
"""Doubles represent all integers exactly up to this value."""


def rounded_sum(values: Iterable[float]) -> float:
    """Return the sum of some floats, rounded once."""
    values = list(values)
    try:
        return fsum(values) + 0.0
    except (OverflowError, ValueError):  # a partial sum was too large, or inf - inf
        return _unusual_sum(values)


def _unusual_sum(values: list[float]) -> float:
    infinities = [value for value in values if isinf(value)]
    if any(map(isnan, values)) or (infinities and infinities.count(infinities[0]) != len(infinities)):
        return nan
    if infinities:
        return infinities[0]
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return inf if total > 0 else -inf


def compacted(values: list[float]) -> list[float]:
    """Return a short list with exactly the same sum for finite values of moderate size; else the values unchanged."""
    parts: list[float] = []
    try:
        rest = fsum(values)
        while rest and abs(rest) < _LARGE:
            parts.append(rest)
            rest = fsum([*values, *[-part for part in parts]])
    except (OverflowError, ValueError):
        return values
    return parts if rest == 0.0 else values


def grouped_sums(values: "Array", groups: "Array", count: int) -> "Array":
    """Return the sum of each group's floats; `groups` gives for each value the number of its group, below `count`."""
    parts, usual = grouped_parts(values, groups, count)
    if usual:
        if len(parts) <= 2:  # the processor itself rounds the sum of two doubles once
            return parts[0] + parts[-1] if len(parts) == 2 else parts[0]
        stacked = np.stack(parts)
        sums = parts[0] + parts[1]
        unsure = np.flatnonzero(np.any(stacked[2:] != 0.0, axis=0))
        for group, column in zip(unsure.tolist(), stacked[:, unsure].T.tolist(), strict=True):
            sums[group] = rounded_sum(column)
        return sums
    sums = np.zeros(count)
    order = np.argsort(groups, kind="stable")
    cuts = np.searchsorted(groups[order], np.arange(count + 1)).tolist()
    listed = values[order].tolist()
    for group in range(count):
        sums[group] = rounded_sum(listed[cuts[group] : cuts[group + 1]])
    return sums


def grouped_parts(values: "Array", groups: "Array", count: int) -> tuple[list["Array"], bool]:
    """Return (arrays whose element-wise exact sum is each group's, True); or ([], False) when a value is too large.

    Each array holds sums that were formed without rounding; as a rule there are two.
    """
    if not len(values):
        return [np.zeros(count)], True
    largest = float(np.max(np.abs(values)))
    others: list[Any] = []
    if not largest < np.inf:  # NaN too: values that are not finite decide alone, and have a part of their own
        finite = np.isfinite(values)
        others.append(np.bincount(groups[~finite], values[~finite], count))
        values = np.where(finite, values, 0.0)
        largest = float(np.max(np.abs(values)))
    if largest >= _LARGE:
        return [], False
    parts: list[Any] = []
    spare_bits = max(1, len(values).bit_length() - 1)  # so that n times the largest stays below 2^53 units of the grid
    while largest > 0.0:
        grid = np.ldexp(1.5, int(np.frexp(largest)[1]) + spare_bits)
        high = (values + grid) - grid
        parts.append(np.bincount(groups, high, count))
        values = values - high
        largest = float(np.max(np.abs(values)))
    while others and len(parts) < 2:
        parts.append(np.zeros(count))  # so that the first two parts, whose sum is rounded once, are finite
    return [*parts, *others] or [np.zeros(count)], True


def grouped_integer_sums(values: "Array", groups: "Array", count: int) -> "Array | list[int]":
    """Return the sum of each group's ints; Python's ints when 64 bits do not hold them all."""
    if not len(values):
        return np.zeros(count, np.int64)
    largest = max(abs(int(values.max())), abs(int(values.min())))
    if largest * len(values) < _EXACT_INTEGER:
        return np.bincount(groups, values, count).astype(np.int64)
    if largest * len(values) < 2**63:
        sums = np.zeros(count, np.int64)
        np.add.at(sums, groups, values)
        return sums
    totals = [0] * count
    for group, value in zip(groups.tolist(), values.tolist(), strict=True):
        totals[group] += value
    return totals
