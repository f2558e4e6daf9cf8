"""The latency histogram: exact to 3 %, the same merged or not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.counts.latency import LatencyHistogram

SAMPLES = st.lists(st.integers(-5, 10**13), min_size=1, max_size=60)


def filled(samples: list[int]) -> LatencyHistogram:
    """A histogram of these samples."""
    histogram = LatencyHistogram()
    for sample in samples:
        histogram.add(sample)
    return histogram


@given(SAMPLES, st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_percentiles_are_those_of_the_sorted_samples_within_3_percent(samples: list[int], share: float) -> None:
    ordered = sorted(max(sample, 0) for sample in samples)
    rank = max(1, -int(-share * len(ordered) // 1))
    exact = ordered[rank - 1] / 1e6
    assert filled(samples).percentile(share) == pytest.approx(exact, rel=0.032, abs=1e-6)


@given(SAMPLES, SAMPLES)
def test_a_merged_histogram_equals_one_measured_in_one_place(left: list[int], right: list[int]) -> None:
    merged = filled(left)
    merged.merge(filled(right))
    assert merged.to_plain() == filled(left + right).to_plain()
    assert merged.samples == len(left) + len(right)
    assert LatencyHistogram.from_plain(merged.to_plain()).to_plain() == merged.to_plain()


def test_the_histogram_is_bounded() -> None:
    assert len(filled([2**i + j for i in range(63) for j in range(64)]).to_plain()) < 64 * 34


def test_without_samples_percentiles_are_zero() -> None:
    assert filled([]).summary().p99 == 0.0


@given(st.lists(st.integers(-5, 2**62) | st.integers(0, 4_000), max_size=60))
def test_counting_many_at_once_equals_counting_one_by_one(values: list[int]) -> None:
    one_by_one, array = filled(values), LatencyHistogram()
    array.add_array(np.array(values, np.int64))
    assert (array.to_plain(), array.samples, array.largest) == (
        one_by_one.to_plain(),
        one_by_one.samples,
        one_by_one.largest,
    )
