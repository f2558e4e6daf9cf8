"""Sums are what exact arithmetic gives, rounded once: in lists, in compacted lists, in arrays by group."""

from fractions import Fraction
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.aggregation.exact_sums import compacted, grouped_integer_sums, grouped_sums, rounded_sum

finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6) | st.sampled_from([0.1, -0.1, 1e-9, 12.5, 2.0**-40, 1e17, -1e17, -0.0, 5e-324])


def exact(values: list[float]) -> float:
    """The definition."""
    if any(map(isnan, values)) or (inf in values and -inf in values):
        return nan
    for infinity in (inf, -inf):
        if infinity in values:
            return infinity
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return inf if total > 0 else -inf


def same(one: float, other: float) -> bool:
    """Equal; NaN is NaN; a zero is positive."""
    return (isnan(one) and isnan(other)) or (one == other and str(one) == str(other))


@settings(deadline=None)
@given(st.lists(st.floats() | moderate, max_size=30))
def test_a_sum_is_rounded_once_whatever_the_order(values: list[float]) -> None:
    assert same(rounded_sum(values), exact(values))
    assert same(rounded_sum(values[::-1]), exact(values))


@settings(deadline=None)
@given(st.lists(finite | moderate, max_size=30), st.lists(finite | moderate, max_size=9))
def test_a_compacted_list_keeps_the_same_sum(values: list[float], more: list[float]) -> None:
    assert same(rounded_sum([*compacted(values), *more]), exact(values + more))


def test_a_long_list_is_compacted() -> None:
    assert len(compacted([0.1 * i for i in range(10_000)])) <= 3
    assert compacted([1.5, -1.5]) == []
    assert len(compacted([nan, 1.0])) == 2


@settings(deadline=None)
@given(st.lists(st.tuples(moderate, st.integers(0, 4)), max_size=60))
def test_usual_values_are_summed_by_group(pairs: list[tuple[float, int]]) -> None:
    check_groups(pairs)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats() | moderate, st.integers(0, 4)), max_size=30))
def test_any_values_are_summed_by_group(pairs: list[tuple[float, int]]) -> None:
    check_groups(pairs)


def check_groups(pairs: list[tuple[float, int]]) -> None:
    """Each group's sum is that of its list."""
    values = np.array([value for value, _ in pairs])
    groups = np.array([group for _, group in pairs], np.int64)
    sums = grouped_sums(values, groups, 5).tolist()
    for group in range(5):
        assert same(sums[group], exact([value for value, of in pairs if of == group]))


@pytest.mark.parametrize("size", [1, 750, 10_000, 32_768])
def test_many_values_of_one_group_are_summed_exactly(size: int) -> None:
    random = np.random.default_rng(size)
    values = np.round(random.uniform(2.5, 22.5, size), 2) / np.round(random.uniform(0.01, 90, size), 2)
    sums = grouped_sums(values, np.zeros(size, np.int64), 1)
    assert sums.tolist() == [exact(values.tolist())]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), st.integers(0, 2)), max_size=20))
def test_sums_of_ints_are_exact(pairs: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in pairs], np.int64)
    groups = np.array([group for _, group in pairs], np.int64)
    assert list(map(int, grouped_integer_sums(values, groups, 3))) == [
        sum(value for value, of in pairs if of == group) for group in range(3)
    ]
