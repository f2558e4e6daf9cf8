"""Columns find the instances that rows find."""

from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart import col
from agiledart_dataflow.data.batch import as_rows, listed
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.grouping import grouped
from agiledart_dataflow.data.partitioning import KeyRouter, split_by_key
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowExpression
from agiledart_dataflow.state.owner_table import owners_by_key
from agiledart_dataflow.user_code.callsite import CallSite


class Row(NamedTuple):
    """Keys of every kind."""

    number: int
    text: str
    real: float
    maybe: int | None
    at: datetime
    flag: bool


rows_of = st.lists(
    st.builds(
        Row,
        st.integers(-3, 3) | st.integers(),
        st.sampled_from(["a", "b", "ä", ""]),
        st.sampled_from([0.0, -0.0, 1.0, 2.5]),
        st.none() | st.integers(0, 2),
        st.sampled_from([datetime.fromisoformat("2013-01-01"), datetime.fromisoformat("2014-01-01")]),
        st.booleans(),
    ),
    max_size=20,
)
KEYS = [
    ("number",),
    ("text",),
    ("real",),
    ("maybe",),
    ("at",),
    ("flag",),
    ("text", "flag"),
    ("number", "maybe", "text"),
]


@settings(deadline=None)
@given(rows_of, st.sampled_from(KEYS), st.sampled_from(["rows", "times", "positions", "array"]))
def test_columns_are_split_like_rows(rows: list[Row], names: tuple[str, ...], carries: str) -> None:
    key = KeyExpression(tuple(RowExpression(col(name).node, Row, CallSite("here", 1)) for name in names))
    order: Any = {
        "rows": None,
        "times": list(range(len(rows))),
        "positions": [(i, 1, 0, i) for i in range(len(rows))],
        "array": np.arange(len(rows)),
    }[carries]
    by_rows = split_by_key(rows, listed(order), key, KeyRouter(owners_by_key(3)), 3)
    by_columns = split_by_key(Columns.from_rows(rows, Row), order, key, KeyRouter(owners_by_key(3)), 3)
    assert [(as_rows(part), listed(at)) for part, at in by_columns] == [(part, at) for part, at in by_rows]


@settings(deadline=None)
@given(rows_of, st.sampled_from(KEYS))
def test_keys_are_numbered_in_order_of_arrival(rows: list[Row], names: tuple[str, ...]) -> None:
    columns = Columns.from_rows(rows, Row)
    numbers, firsts = grouped([columns.named(name) for name in names], len(rows))
    known: dict[Any, int] = {}
    keys = [tuple(getattr(row, name) for name in names) for row in rows]
    assert numbers.tolist() == [known.setdefault(key, len(known)) for key in keys]
    assert firsts.tolist() == [keys.index(key) for key in known]


def test_an_invalid_key_is_an_error() -> None:
    key = KeyExpression((RowExpression(col("real").node, Row, CallSite("here", 1)),))
    row = Row(1, "a", float("nan"), None, datetime.fromisoformat("2013-01-01"), True)
    with pytest.raises(TypeError, match="NaN"):
        split_by_key(Columns.from_rows([row], Row), None, key, KeyRouter(owners_by_key(3)), 3)
