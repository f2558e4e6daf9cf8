"""Columns as what functions of batches take and give."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pytest

from agiledart_dataflow.batch_forms import columns_of, in_form
from agiledart_dataflow.columns import Columns


class Wide(NamedTuple):
    """A row of every kind of array."""

    number: int
    share: float
    full: bool
    at: datetime
    lasts: timedelta
    note: str
    tip: float | None


AT = datetime.fromisoformat("2020-01-01")
ROWS = [Wide(n, n / 2, n > 1, AT, timedelta(seconds=n), "x", None if n else 1.0) for n in range(4)]


@pytest.mark.parametrize("columns", [Columns.from_rows(ROWS, Wide), Columns.from_rows(ROWS, Wide).slice(1, 3)])
def test_arrays_that_go_out_cannot_be_written_to_and_come_back_without_a_copy(columns: Columns) -> None:
    batch = in_form(columns, "arrays")
    for array in batch.values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    again = columns_of(batch, Wide)
    assert again.rows() == columns.rows()
    for name in ("number", "share", "full", "at", "lasts"):
        assert np.shares_memory(again.named(name).values, columns.named(name).values)


class Measured(NamedTuple):
    """A row."""

    at: datetime
    celsius: float


@pytest.mark.parametrize(
    "part", [lambda array: array, lambda array: array[:2], lambda array: np.broadcast_to(array[0], 2)]
)
def test_an_array_that_is_filled_again_does_not_change_rows(part: Any) -> None:
    times, celsius = np.full(2, AT, "datetime64[us]"), np.ones(2)
    made = columns_of({"at": part(times), "celsius": part(celsius)}, Measured)
    times += 1
    celsius[:] = 2.0
    assert made.rows() == [Measured(AT, 1.0)] * 2
