"""Positions as an array are the same positions: in order or not, on the wire, in the sample."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_dataflow.counts.sampling import sampled_among
from agiledart_dataflow.data.batch import Batch, has_positions, joined_order, listed, place
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.position import END, Position
from agiledart_dataflow.data.position_arrays import is_strictly_ascending, packed, record_positions, unpacked
from agiledart_dataflow.runtime.single_input_merge import merge_for
from agiledart_kernel.errors import RemoteProtocolError

ELEMENT = st.sampled_from([-1, 0, 1, 2, END]) | st.integers(-(2**63), 2**63 - 1)
POSITIONS = st.integers(4, 7).flatmap(lambda width: st.lists(st.tuples(*[ELEMENT] * width), min_size=1, max_size=8))


@given(POSITIONS)
def test_position_order_and_encoding_agree(positions: list[Position]) -> None:
    array = np.array(positions, np.int64)
    assert is_strictly_ascending(array) == all(a < b for a, b in pairwise(positions))
    assert listed(unpacked(packed(array), len(positions))) == positions
    assert packed(positions) == packed(array)
    assert listed(array) == positions
    assert [place(array, number) for number in range(len(positions))] == positions
    assert has_positions(array)
    assert listed(joined_order([array, array])) == listed(joined_order([array, positions])) == positions * 2


@given(st.lists(st.tuples(ELEMENT, st.just(1), st.integers(0, 99), st.integers(0, 2**40)), min_size=1, max_size=50))
def test_the_same_records_are_sampled(positions: list[Position]) -> None:
    assert sampled_among(np.array(positions, np.int64)) == sampled_among(positions)


def test_invalid_positions_from_the_wire_are_refused() -> None:
    assert listed(unpacked([5, 1, 0, b"\1" + bytes(15)], 2)) == [(5, 1, 0, 1), (5, 1, 0, 0)]
    narrow = b"\1" + bytes(15)
    wrong: list[list[Any]] = [
        [],
        [1, 1, 0, 2, 3],
        [1, 1, 0, b"1234567"],
        [1, 1, 0, bytes(8)],
        [2**64, 1, 0, 1],
        [narrow],
        [1, 1, narrow],
    ]
    for elements in wrong:
        with pytest.raises((ValueError, OverflowError)):
            unpacked(elements, 2)


@pytest.mark.parametrize("times", [[3, 4, 4], np.array([3, 4, 4])])
def test_records_of_a_source_get_positions(times: object) -> None:
    assert listed(record_positions(times, 2, 7, 3)) == [(3, 1, 2, 7), (4, 1, 2, 8), (4, 1, 2, 9)]


@pytest.mark.parametrize(
    ("positions", "watermark", "what"),
    [
        ([(1, 1, 0, 1), (1, 1, 0, 1)], (9,), "out of order"),
        ([(1, 1, 0, 1), (3, 1, 0, 2)], (2,), "out of order"),
        ([(0, 1, 0, 1), (3, 1, 0, 2)], (9,), "after mark"),
    ],
)
def test_an_input_of_columns_is_checked(positions: list[Position], watermark: Position, what: str) -> None:
    merge = merge_for([((0, 0), ())])
    merge.offer(0, 0, Batch([], None, (0, 5)))
    columns = Columns.from_rows([1, 2], int)
    with pytest.raises(RemoteProtocolError, match=what):
        merge.offer(0, 0, Batch(columns, np.array(positions), watermark))


def test_positions_of_different_lengths_are_joined_as_lists() -> None:
    short, long = record_positions([1, 2], 0, 0, 2), np.array([(3, 1, 0, 2, 7)])
    assert joined_order([short, long]) == [(1, 1, 0, 0), (2, 1, 0, 1), (3, 1, 0, 2, 7)]


def test_columns_that_lost_all_their_rows_carry_a_watermark() -> None:
    merge = merge_for([((0, 0), ())])
    empty = Columns.from_rows([1], int).slice(0, 0)
    merge.offer(0, 0, Batch(empty, record_positions([1], 0, 0, 1)[:0], (9,)))
    held, _, watermark = merge.take(100)
    assert (len(held), watermark) == (0, (9,))
